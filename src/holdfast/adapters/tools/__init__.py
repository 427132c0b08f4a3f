"""
Tools: Python functions, and the built-in ones that look at files, write them and run commands.
"""
