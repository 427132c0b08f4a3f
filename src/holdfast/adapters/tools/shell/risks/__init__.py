"""
Effects of a command that deserve a second look, each with its reason and its part of the text.

The rooms here decide nothing: they mark text for the approver. A missing mark permits nothing.
"""
