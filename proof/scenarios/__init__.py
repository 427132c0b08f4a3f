"""Scenario files: a sequence of steps, and the state after each one."""
