"""Commands that an approval may be remembered for: leaf programs at system paths."""
