"""
The command line: one file per command. It decides nothing. It calls the service and prints the
result.
"""
