"""The level of a command: isolated by bubblewrap, limited by Landlock, or unconfined."""
