"""Caches and memory in SQLite: index, search, memory items."""
