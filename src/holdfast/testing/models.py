"""
Models for your own tests: `ScriptModel` plays what you wrote, line by line, with no file and no
network.
"""

from holdfast.adapters.models.script import ScriptModel

__all__ = ["ScriptModel"]
