"""
The contract of an adapter that puts Holdfast under a framework's loop, with real processes that are
killed. Subclass `UnderContract`, and name the line that runs the framework.
"""

from holdfast.testing.under.contract import UnderContract
from holdfast.testing.under.script import MadeCall, Say, next_step
from holdfast.testing.under.tools import Effects, RunEnd

__all__ = ["Effects", "MadeCall", "RunEnd", "Say", "UnderContract", "next_step"]
