"""The meaning of events: pure functions over frozen values. No clock, no randomness, no I/O."""
