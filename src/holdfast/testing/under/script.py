"""
The scripted model of the contract, as a function: from a person's message and the results so far to
the next step. An adapter's test translates it into its framework's fake model.
"""

from typing import NamedTuple


class MadeCall(NamedTuple):
    """A call that the model makes."""

    id: str
    tool: str
    arguments: dict[str, object]


class Say(NamedTuple):
    """The model's last answer."""

    text: str


_CALLS: dict[str, tuple[tuple[MadeCall, ...], ...]] = {
    "restart the api": ((MadeCall("r1", "restart", {"service": "api"}),),),
    "restart and die": ((MadeCall("d1", "restart", {"service": "die"}),),),
    "restart two": (
        (
            MadeCall("two-a", "restart", {"service": "api"}),
            MadeCall("two-b", "restart", {"service": "web"}),
        ),
    ),
    "note, then restart": (
        (MadeCall("n1", "note", {"text": "begun"}),),
        (MadeCall("n2", "restart", {"service": "api"}),),
    ),
    "wait for it": ((MadeCall("s1", "stall", {"service": "api"}),),),
    "wait, but not for long": ((MadeCall("t1", "lag", {"service": "api"}),),),
    "ask the helper": ((MadeCall("h1", "helper", {"task": "helper: restart the api"}),),),
    "helper: restart the api": ((MadeCall("x1", "restart", {"service": "api"}),),),
}


def next_step(
    message: str, results: list[tuple[str, str]], rest: str
) -> tuple[MadeCall, ...] | Say:
    """
    Return the next step. `results` are the results of this message's calls, by call id; `rest` is
    everything else that the model read.
    """
    done = {name for name, _ in results}
    for batch in _CALLS.get(message, ()):
        if not all(call.id in done for call in batch):
            return batch
    if message == "how is it?":
        return Say(f"I was told: {rest}")
    return Say("; ".join(text for _, text in results) or "done")
