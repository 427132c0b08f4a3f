"""Small built-in tools that run inside this process."""
