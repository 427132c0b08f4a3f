"""
The ids of things, as types, and the one rule for session names.

Nothing here is random or reads a clock: ids that must be unpredictable are created outside and
passed in. Ids that must be the same after a crash (calls, approvals) are computed from the thing
that they belong to.
"""

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NewType

from blake3 import blake3

from holdfast.errors import Unusable

SessionId = NewType("SessionId", str)
InstanceId = NewType("InstanceId", str)
TurnId = NewType("TurnId", str)
InputId = NewType("InputId", str)
CallId = NewType("CallId", str)
ApprovalId = NewType("ApprovalId", str)
GrantId = NewType("GrantId", str)
MemoryId = NewType("MemoryId", str)
ReminderId = NewType("ReminderId", str)
JobId = NewType("JobId", str)

DELEGATE_CHANNEL = "delegate"  # sessions that agents started; people cannot create them

ID_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")


def session_id(text: str) -> SessionId:
    """
    Read `channel/thread`; a bare NAME means `local/NAME`.

    >>> session_id("ops/api")
    'ops/api'
    >>> session_id("notes")
    'local/notes'
    """
    channel, slash, thread = text.partition("/")
    if not slash:
        channel, thread = "local", channel
    if not (ID_PART.match(channel) and ID_PART.match(thread)):
        raise Unusable(
            f"{text!r} is not a session id",
            code="malformed",
            hint="use CHANNEL/THREAD, each of a-z, 0-9, '.', '_', '-' (64 at most, first a letter "
            "or digit)",
        )
    return SessionId(f"{channel}/{thread}")


def new_instance(random_bytes: Callable[[int], bytes]) -> InstanceId:
    """130 unguessable bits: one instance of a session. Journalled before it means anything."""
    return InstanceId(base64.b32encode(random_bytes(17)).decode().lower()[:26])


def short_digest(*parts: str | bytes) -> str:
    """26 lower-case base-32 characters (130 bits) over the parts, each length-prefixed."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    prefixed = b"".join([piece for part in raw for piece in (len(part).to_bytes(8, "big"), part)])
    return base64.b32encode(blake3(prefixed).digest(length=17)).decode().lower()[:26]


def turn_id(ordinal: int) -> TurnId:
    return TurnId(f"t{ordinal}")


@lru_cache(maxsize=256)  # computed when a call is bound, and again when it is decided
def call_id(instance: InstanceId, turn: TurnId, model_call: int, index: int) -> CallId:
    """The same call has the same id after any crash; a provider's own id is only data."""
    return CallId("c-" + short_digest("call", instance, turn, str(model_call), str(index)))


def delegate_session(call: CallId) -> SessionId:
    """
    The session of the delegate that a call starts. It is the same after any crash, so there is
    never a second one.
    """
    return SessionId(f"{DELEGATE_CHANNEL}/{call.removeprefix('c-')}")


def turn_id_of(accepted: InputId) -> TurnId:
    """
    Return the id of a message's own turn: input i7, turn t7. A message that joined an earlier turn
    has such an id too.
    """
    return TurnId("t" + accepted[1:])


def delegate_tool_name(agent: str) -> str:
    """The tool name that a model calls to hand a task to that agent."""
    return f"{DELEGATE_CHANNEL}_{agent}"


def delegate_of_tool(name: str) -> str:
    """The agent that a tool of that name hands a task to."""
    return name.removeprefix(f"{DELEGATE_CHANNEL}_")


def approval_id(instance: InstanceId, call: CallId, attempt: int) -> ApprovalId:
    """`attempt` counts the prompts of one call: an edit makes a new plan, and a new prompt."""
    return ApprovalId("a-" + short_digest("approval", instance, call, str(attempt)))


def memory_id(instance: InstanceId, call: CallId) -> MemoryId:
    """
    The item that one call remembers. Run again after a crash, the call remembers the same item, not
    a second one.
    """
    return MemoryId("m-" + short_digest("memory", instance, call))


def reminder_id(instance: InstanceId, origin: str) -> ReminderId:
    """
    `origin` is the call that set it, so that a repeated call sets nothing twice. A command passes
    something random.
    """
    return ReminderId("r-" + short_digest("reminder", instance, origin))


def job_id(instance: InstanceId, call: CallId) -> JobId:
    """One per call: a call is handed to the background at most once."""
    return JobId("j-" + short_digest("job", instance, call))
