"""One open session as this process knows it: its folded state and the one way to move it."""
