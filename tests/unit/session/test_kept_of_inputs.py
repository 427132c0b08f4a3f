"""
The parts of a message that a session keeps for later ones: who spoke and may read, whose folder it is, the
agent and the model; and of nobody's, nothing.
"""

from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import PureSession, Stored, replay
from tests.unit.session.test_jobs import digging, only_job
from tests.unit.session.test_reminders import MINUTE, UTC, with_reminder

from holdfast.session.authority.context import LostContext, MessageSource, Workspace
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import AcceptInput, EndJob, FireReminders
from holdfast.session.events import InputAccepted
from holdfast.session.state import Reader, SessionState

SRV, OPT = Workspace("/srv", "1:2"), Workspace("/opt", "1:3")
alice, bob = MessageSource.local("alice"), MessageSource.local("bob")


def accepts(pure: PureSession, source: MessageSource | None, **more: Any) -> SessionState:
    pure.do(
        AcceptInput(
            **{"text": "hi", "agent": "ops", "model": "demo", "policy": Policy(), **more},
            source=source,
        )
    )
    return pure.state


def test_a_sender_becomes_a_reader_and_keeps_a_workspace() -> None:
    pure = PureSession()
    accepts(pure, alice, workspace=SRV)
    state = accepts(pure, bob)
    assert (state.people, state.workspaces) == ({"alice", "bob"}, {"alice": SRV})
    assert state.readers == {
        Reader("alice", "personal", "personal:alice"),
        Reader("bob", "personal", "personal:bob"),
    }
    state = accepts(pure, alice, workspace=OPT)
    assert (state.people, state.workspaces, len(state.readers)) == (
        {"alice", "bob"},
        {"alice": OPT},
        2,
    )
    assert accepts(pure, alice).workspaces == {
        "alice": OPT
    }  # a message without one says nothing of it


def test_a_message_without_a_person_adds_no_reader_and_no_workspace() -> None:
    state = accepts(PureSession(), MessageSource.none(), workspace=SRV)
    assert (state.people, state.workspaces, state.readers) == (frozenset(), {}, frozenset())


@pytest.mark.parametrize(("loop", "model"), [("ours", "other"), ("foreign", "demo")])
def test_the_next_message_goes_on_with_the_model_that_was_given_and_a_foreign_loop_gives_none(
    loop: str, model: str
) -> None:
    pure = PureSession()
    accepts(pure, alice)
    state = accepts(pure, alice, loop=loop, model="other", agent="dev")
    assert (state.model, state.agent) == (model, "dev")


def test_a_fired_reminder_changes_neither_agent_nor_model() -> None:
    pure = with_reminder(agent="dev", model="other")
    accepts(pure, alice)
    pure.now += MINUTE
    fired = [
        event
        for event in pure.do(FireReminders(zones={"UTC": UTC})).events
        if isinstance(event, InputAccepted)
    ]
    assert [(each.agent, each.model) for each in fired] == [("dev", "other")]
    assert (pure.state.model, pure.state.agent) == ("demo", "ops")


def test_a_report_is_known_by_its_jobs_id() -> None:
    pure = digging()
    job, before = only_job(pure).job, len(list(pure.state.dedup.items()))
    pure.do(EndJob(job=job, outcome="ok", text="dug"))
    kept = [key for key, _ in pure.state.dedup.items()]
    assert len(kept) == before + 1
    assert kept[-1].endswith(f"\0{job}")


@pytest.mark.parametrize(("change", "keys"), [({"audience": None}, 1), ({"channel": None}, 0)])
def test_a_message_keeps_its_dedup_key_when_its_context_is_lost(
    change: dict[str, Any], keys: int
) -> None:
    """
    A key outlives what it came with, so that a message is not taken in twice; one that says not
    even who sent it has no key.
    """
    pure = PureSession()
    accepts(pure, alice, dedup="k")
    *rest, last = pure.records
    body = msgspec.json.decode(last.body)
    body["context"].update(change)
    state = replay([*rest, Stored(last.type, last.version, msgspec.json.encode(body), last.at)])
    assert isinstance(state.queued[0].context, LostContext)
    assert len(list(state.dedup.items())) == keys
