"""Who asked, what policy says, and what an approval is bound to."""
