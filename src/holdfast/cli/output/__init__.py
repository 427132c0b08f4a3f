"""Text and exit codes of commands: everything that reaches a terminal goes through this folder."""
