"""
From an incoming message to the command that accepts it, with its session and the values that the
session keeps for its sender.

An empty, malformed or too large message, or one with a known secret, is refused. Nothing is
accepted or driven here; only a missing session is created.
"""

import logging

import msgspec

from holdfast.errors import Refused, Unusable
from holdfast.ids import SessionId, new_instance
from holdfast.ports.journal_store import Draft, Journal
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import refuse_delegates_name
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports.types import TurnReport
from holdfast.session.authority.context import MessageSource, Workspace
from holdfast.session.codec import encode, half_a_character
from holdfast.session.commands import AcceptInput
from holdfast.session.decide.inputs import flaw_of_text
from holdfast.session.events import InputKind, SessionBorn
from holdfast.session.results import OnlyAnAnswerWord
from holdfast.session.state import SessionState

HTTP_CHANNEL = "http"
_log = logging.getLogger("holdfast.service")


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """
    An incoming message with its options. None means the value that the session keeps, or else the
    default.
    """

    text: str
    source: MessageSource | None
    agent: str | None = None
    model: str | None = None
    dedup: str | None = None
    aliases: tuple[str, ...] = ()  # further dedup keys
    workspace: Workspace | None = None
    # Used if the session keeps no workspace for the sender.
    default_workspace: Workspace | None = None
    kind: InputKind = "message"

    @property
    def sender(self) -> str:
        return (self.source.person if self.source is not None else None) or "nobody"


def refuse_unfit(world: World, session: SessionId, incoming: Incoming) -> None:
    """
    Refuse an unfit message before a session is created for it, so that it leaves nothing behind.
    Everything in it is journalled, its key and sender included.
    """
    if flaw := flaw_of_text(incoming.text):
        raise flaw
    refuse_secrets(world, incoming.text)
    try:
        beside = msgspec.json.encode(incoming).decode()
    except UnicodeEncodeError as exc:
        raise half_a_character() from exc
    refuse_secrets(world, session, beside, what="message's key, source, model or folder")


def written_as_json(arguments: object) -> str:
    """Write the arguments of a call, as a program passes them, as JSON."""
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError) as exc:
        raise Unusable(
            f"the arguments can't be written as JSON: {exc}",
            code="malformed",
            hint="hand in values of JSON, as your model or a person wrote them",
        ) from exc


async def ensure_session(world: World, session: SessionId, *, by: str) -> None:
    """Create a session of that name if it does not exist. Two concurrent calls create one."""
    if await world.store.current(session) is None:
        created = await create_session(world, session, by=by)
        if created is not None:
            await created.close()


async def create_session(world: World, session: SessionId, *, by: str) -> Journal | None:
    """
    Create a session of that name and return its handle, which the caller closes or hands on. Return
    None if another task or process was faster.
    """
    refuse_delegates_name(session)
    await world.check_clock()
    instance = new_instance(world.random_bytes)
    created = SessionBorn(session=session, instance=instance, origin="created", by=by)
    try:
        return await world.store.create(
            session, instance, [Draft(*encode(created))], origin="created", by=by
        )
    except Refused as exc:
        if exc.code != "exists":
            raise
        return None


def accept_command(world: World, state: SessionState, incoming: Incoming) -> AcceptInput:
    """
    Build the command. A session keeps its last agent and model and, for each person, the last
    workspace. A missing agent does not change the model.
    """
    source = incoming.source
    person = source.person if source is not None else None
    last = world.agents.get(state.agent) if incoming.agent is None and state.agent else None
    spec = last or world.agent(incoming.agent)
    if incoming.agent is None and state.agent not in (None, spec.name):
        _log.warning(
            "%s talks to the agent %r, which is not here: %r answers instead",
            state.session,
            state.agent,
            spec.name,
        )
    kept = state.model if state.agent == spec.name or incoming.agent is None else None
    # Over HTTP the workspace comes only from the server's settings, never from a folder on the
    # person's own machine.
    remembers = source is not None and source.channel != HTTP_CHANNEL
    remembered = state.workspaces.get(person) if person is not None and remembers else None
    lasting = (
        _as_it_is_now(world, remembered)
        if remembered is not None and incoming.workspace is None
        else None
    )
    return AcceptInput(
        text=incoming.text,
        source=source,
        agent=spec.name,
        model=(
            kept
            if kept is not None and incoming.model is None
            else world.models.resolve(incoming.model or spec.model).name
        ),
        policy=world.policy(),
        workspace=_of_this_node(
            world,
            incoming.workspace
            or (lasting if remembered is not None else incoming.default_workspace),
        ),
        dedup=incoming.dedup,
        aliases=incoming.aliases,
        kind=incoming.kind,
    )


def no_answer(word: OnlyAnAnswerWord, report: TurnReport) -> Refused:
    """
    Build the refusal of a plain "yes" to a prompt, instead of accepting it as a message. The hint
    names an option that the sender may choose, or else the people who may answer.
    """
    return Refused(
        "This word does not approve anything. The prompt still waits.",
        code="answer_word",
        hint=_how_to_answer(word, report),
    )


def _how_to_answer(word: OnlyAnAnswerWord, report: TurnReport) -> str:
    asked = [each for each in report.approvals if each.id in word.approvals]
    own = next((each for each in asked if word.by in each.may_answer), None)
    if own is not None:
        option = "answer --reason 'YOUR WORDS'" if "answer" in own.options else own.options[0]
        return (
            f"answer it with one of its options, such as `holdfast approvals answer {own.id}"
            f" {option}`; `holdfast approvals show {own.id}` has all"
        )
    show = f"`holdfast approvals show {word.approvals[0]}` shows it"
    if not asked:
        return show
    return f"{' or '.join(asked[0].may_answer) or 'nobody'} may answer it; {show}"


def _of_this_node(world: World, workspace: Workspace | None) -> Workspace | None:
    """Name this node in a folder that a client of this process has given."""
    if workspace is None or workspace.node or not world.node:
        return workspace
    return msgspec.structs.replace(workspace, node=world.node)


def _as_it_is_now(world: World, remembered: Workspace) -> Workspace | None:
    """
    A person's folder is remembered by its path, and its identity is recorded with each message. A
    missing folder means no workspace; no other is guessed.
    """
    if world.is_left_to(remembered.node):
        return remembered  # its node drives the turn, and sees what the folder is by then
    identity = world.folder_identity(remembered.path)
    if identity is None:
        _log.warning(
            "the workspace %s is gone, and this message has none; name one with --workspace",
            remembered.path,
        )
        return None
    return Workspace(remembered.path, identity, world.node)
