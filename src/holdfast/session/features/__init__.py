"""One folder per feature of a session. Features do not import each other."""
