"""The serving process: start, stop, drives, tokens, codes, limits, metrics."""
