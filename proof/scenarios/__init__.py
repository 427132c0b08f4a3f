"""Scenario files: a story in words, and the state after each step."""
