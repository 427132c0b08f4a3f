"""The imperative shell: fold, decide, append, act, append."""
