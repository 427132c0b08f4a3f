"""
Frameworks alone in a crash, with their real packages: `make frameworks-alone` prints the table of
docs/guides/frameworks.md. One module per framework has the same three steps, each of which runs in
a process of its own.
"""
