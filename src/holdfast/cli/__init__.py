"""
The command line: one file per command. Nothing here decides anything; it asks the service, and says
what came of it.
"""
