"""The shell tool: command parsing, confinement, launcher and processes."""
