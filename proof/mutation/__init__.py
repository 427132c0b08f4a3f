"""Mutants of the code that must not be wrong, and the tests that notice them."""
