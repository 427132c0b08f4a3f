"""Mutants of critical code, and the tests that notice them."""
