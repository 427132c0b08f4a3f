"""Generators of documents from the code."""
