"""The page, in a real browser: what people see is complete and true, and what they press counts once."""
