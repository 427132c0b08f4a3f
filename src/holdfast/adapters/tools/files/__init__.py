"""The built-in tools that read and write files."""
