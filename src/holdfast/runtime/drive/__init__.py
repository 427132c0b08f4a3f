"""A turn, driven to its end or to a pause."""
