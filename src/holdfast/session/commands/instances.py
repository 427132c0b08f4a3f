"""The session itself: its model, its title, and the end of carried-over history."""

from holdfast.session.commands.base import Command


class GiveModel(Command[None], frozen=True):
    """Continue with another model, for turns whose own model is no longer available."""

    model: str
    by: str


class RenameSession(Command[str], frozen=True):
    """
    Give the conversation another title; empty: its first message gives it. The result is the title
    from now on. `may_all`: the operator or an admin, who may rename other people's conversations.
    """

    title: str
    by: str
    may_all: bool = False


class CloseInstance(Command[None], frozen=True):
    """The last command on carried-over history: none of its work is owed any more."""

    by: str
    reason: str
    attached: tuple[str, ...] = ()
