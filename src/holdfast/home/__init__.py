"""
The library's entry point. A verb checks its arguments and calls the service; nothing here decides
or acts.
"""

from holdfast.home.agents import Agent, specs_from_agents
from holdfast.home.home import (
    Answer,
    Approval,
    Followed,
    Grant,
    Home,
    Job,
    Reminder,
    Session,
    Turn,
    open,  # noqa: A004  # holdfast.open
)

__all__ = [
    "Agent",
    "Answer",
    "Approval",
    "Followed",
    "Grant",
    "Home",
    "Job",
    "Reminder",
    "Session",
    "Turn",
    "open",
    "specs_from_agents",
]
