"""The only place that moves: fold, decide, append, act, append."""
