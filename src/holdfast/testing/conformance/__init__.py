"""Suites that every store, index and memory must pass. Run them over your own adapter."""
