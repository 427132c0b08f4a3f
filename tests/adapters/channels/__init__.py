"""Chat platforms: what is particular to each."""
