"""Background work: its commands and its events."""
