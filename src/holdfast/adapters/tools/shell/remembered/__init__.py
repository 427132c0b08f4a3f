"""Commands whose approval may be remembered: leaf programs at system paths."""
