"""Sessions that a call of another session started."""
