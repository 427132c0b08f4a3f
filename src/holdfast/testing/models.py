"""
Models for your own tests: `ScriptModel` plays your script line by line, without a file or a
network.
"""

from holdfast.adapters.models.script import ScriptModel

__all__ = ["ScriptModel"]
