"""State as bytes and back. A snapshot is a cache of a fold, never a source."""
