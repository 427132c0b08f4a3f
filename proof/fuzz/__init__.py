"""Coverage-guided fuzzers of every parser."""
