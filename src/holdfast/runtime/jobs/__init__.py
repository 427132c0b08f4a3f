"""Background work: start, watch, follow, stop."""
