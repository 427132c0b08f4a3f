"""One module or folder per command. Each has `register(app)`."""
