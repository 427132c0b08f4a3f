"""Checkers of promises over recorded histories."""
