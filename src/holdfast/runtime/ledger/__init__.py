"""One open session in this process: its folded state and the one way to move it."""
