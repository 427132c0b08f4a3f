"""Tools: Python functions, and the built-in tools that read files, write files and run commands."""
