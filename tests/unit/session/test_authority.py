"""Who asked, from where, under which boundary: cases 1 to 8, and what may be handed on."""

import typing
from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION, PureSession

from holdfast.errors import Refused, Unusable
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.session.authority.context import (
    Audience,
    LostContext,
    MessageSource,
    Principal,
    Provenance,
    TurnContext,
    Workspace,
    context_from_source,
    may_supersede,
    narrowed,
    same_authority,
)
from holdfast.session.authority.legacy import restore_legacy
from holdfast.session.authority.restore import restore
from holdfast.session.view.messages import Quote

T1 = TurnId("t1")
PLACE = Workspace("/srv", "1:2")


def context(source: MessageSource | None, **changes: Any) -> TurnContext:
    made = context_from_source(source, session=SESSION, instance=INSTANCE, turn=T1, workspace=PLACE)
    return msgspec.structs.replace(made, **changes)


ALICE = context(MessageSource.local("alice", quotes=(Quote("alice", "me"), Quote("bob", "him"))))


def test_every_durable_field_equals_the_source() -> None:
    """Case 1."""
    source = MessageSource.team("alice", "ops", channel="slack", quotes=(Quote("bob", "hi"),))
    assert context(source) == TurnContext(
        session=SESSION,
        instance=INSTANCE,
        turn=T1,
        audience=Audience.TEAM,
        boundary="team:ops",
        channel="slack",
        requester="alice",
        principal=Principal.TRUSTED_INTERNAL,
        provenance=Provenance(
            authenticity="verified", taint="clean", scope="group", kind="message"
        ),
        quoted_speakers=("bob",),
        interactive=True,
        workspace=PLACE,
    )


@pytest.mark.parametrize(
    "source",
    [
        None,
        MessageSource.none(),
        msgspec.structs.replace(MessageSource.local("x"), person=None, channel="none"),
        msgspec.structs.replace(MessageSource.local("x"), person="  ", channel="none"),
    ],
    ids=["missing", "none", "nobody", "blank"],
)
def test_a_source_without_a_person_has_the_least_authority(source: MessageSource | None) -> None:
    """Case 2: and whatever else a source without a person claims counts for nothing."""
    assert not MessageSource.none().can_prompt
    assert context(source) == TurnContext(
        session=SESSION,
        instance=INSTANCE,
        turn=T1,
        audience=Audience.PUBLIC,
        boundary="public",
        channel="none",
        requester=None,
        principal=Principal.UNTRUSTED_EXTERNAL,
        provenance=Provenance(
            authenticity="unverified", taint="tainted", scope="broadcast", kind="none"
        ),
        quoted_speakers=(),
        interactive=False,
        workspace=PLACE,
    )


@pytest.mark.parametrize("field", ["channel", "boundary"])
def test_a_source_without_a_place_is_malformed(field: str) -> None:
    with pytest.raises(Unusable, match="channel and a boundary"):
        context(msgspec.structs.replace(MessageSource.local("alice"), **{field: " "}))


def test_the_type_holds_nothing_that_moves() -> None:
    """
    Case 3, by reflection: these fields and no others, all of plain, frozen, serialisable types.
    """
    assert TurnContext.__struct_fields__ == (
        "session",
        "instance",
        "turn",
        "audience",
        "boundary",
        "channel",
        "requester",
        "principal",
        "provenance",
        "quoted_speakers",
        "interactive",
        "workspace",
    )
    assert Provenance.__struct_fields__ == ("authenticity", "taint", "scope", "kind")
    assert Workspace.__struct_fields__ == ("path", "identity", "node")
    assert TurnContext.__struct_config__.frozen
    kinds = {
        kind
        for field in msgspec.structs.fields(TurnContext)
        for kind in (typing.get_args(field.type) or (field.type,))
    }
    assert kinds == {
        SessionId,
        InstanceId,
        TurnId,
        Audience,
        Principal,
        Provenance,
        Workspace,
        str,
        bool,
        type(None),
        ...,
    }
    with pytest.raises(AttributeError):
        ALICE.turn = T1  # type: ignore[misc]


def restored(fields: dict[str, Any]) -> TurnContext | LostContext:
    return restore(msgspec.json.encode(fields), session=SESSION, instance=INSTANCE)


WHOLE: dict[str, Any] = msgspec.to_builtins(ALICE)


def test_to_record_and_back_is_identical() -> None:
    """Case 4."""
    assert restored(WHOLE) == ALICE
    assert ALICE.has_third_party


@pytest.mark.parametrize("field", TurnContext.__struct_fields__)
def test_a_missing_field_is_named(field: str) -> None:
    """Case 4, 5: nothing is defaulted, a missing audience least of all."""
    lost = restored({name: value for name, value in WHOLE.items() if name != field})
    assert isinstance(lost, LostContext)
    assert (lost.field, lost.legacy) == (field, False)
    assert field in lost.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            (name, blank)
            for name in (
                "session",
                "instance",
                "turn",
                "audience",
                "boundary",
                "channel",
                "principal",
                "requester",
            )
            for blank in ("", "  ")
        ),
        *(
            (name, None)
            for name in (
                "session",
                "instance",
                "turn",
                "audience",
                "boundary",
                "channel",
                "principal",
                "provenance",
                "quoted_speakers",
                "interactive",
            )
        ),
        ("audience", "everyone"),
        ("principal", "root"),
        ("audience", ["personal"]),
        ("session", "ops/other"),
        ("instance", "life-2"),
        ("requester", 7),
        ("requester", None),  # interactive, but nobody to ask
        ("interactive", "yes"),
        ("quoted_speakers", "bob"),
        ("quoted_speakers", [""]),
        ("quoted_speakers", [3]),
        ("provenance", {}),
        ("provenance", {**WHOLE["provenance"], "authenticity": "certainly"}),
        ("provenance", {**WHOLE["provenance"], "taint": ""}),
        ("provenance", {**WHOLE["provenance"], "scope": "world"}),
        ("provenance", {**WHOLE["provenance"], "kind": " "}),
        ("provenance", {**WHOLE["provenance"], "extra": 1}),
        ("workspace", {"path": "", "identity": "1:2"}),
        ("workspace", {"path": "/srv", "identity": " "}),
        ("workspace", {"path": "/srv", "identity": "1:2", "extra": 1}),
        ("workspace", "/srv"),
    ],
    ids=str,
)
def test_a_damaged_field_is_named(field: str, value: object) -> None:
    """Case 4: blank, unknown, of another session or instance, incoherent."""
    lost = restored({**WHOLE, field: value})
    assert isinstance(lost, LostContext)
    assert lost.field == field


@pytest.mark.parametrize(("field", "value"), [("audience", "everyone"), ("principal", "root")])
def test_an_unknown_word_is_quoted_in_the_reason(field: str, value: str) -> None:
    assert restored({**WHOLE, field: value}) == LostContext(
        f"the turn's context has an unknown {field}: {value!r}", field
    )


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"x"', b"{", b""], ids=repr)
def test_no_record_at_all_is_refused(raw: bytes) -> None:
    assert restore(raw, session=SESSION, instance=INSTANCE) == LostContext(
        "the turn's context is missing or no JSON object"
    )


def test_an_unknown_field_is_refused() -> None:
    assert isinstance(restored({**WHOLE, "reply_target": "C1"}), LostContext)


@pytest.mark.parametrize(
    ("speakers", "has_third_party"),
    [((), False), (("alice",), False), (("alice", "bob"), True), (("bob",), True)],
)
def test_a_third_party_is_derived_from_the_speakers(
    speakers: tuple[str, ...], has_third_party: bool
) -> None:
    """Case 5, 47: the flag can't disagree with them; self-only quotes are not third-party."""
    one = msgspec.structs.replace(ALICE, quoted_speakers=speakers)
    assert one.has_third_party == has_third_party


def test_changing_the_source_later_changes_nothing() -> None:
    """Case 6: the record is what counts, whatever the channel says of the same person now."""
    pure = PureSession()
    source = MessageSource.local("alice")
    pure.do(accept(source))
    before = pure.state.queued[0].context
    assert msgspec.structs.replace(source, audience=Audience.PUBLIC) != source
    pure.crash()
    assert (
        pure.state.queued[0].context
        == before
        == msgspec.structs.replace(ALICE, quoted_speakers=(), workspace=None)
    )


def accept(source: MessageSource | None, text: str = "hello", **more: Any) -> Any:
    from holdfast.session.authority.policy import Policy
    from holdfast.session.commands import AcceptInput

    return AcceptInput(text=text, source=source, agent="ops", model="demo", policy=Policy(), **more)


OLD = {
    "legacy": "c9",
    "channel": "slack",
    "requester": "alice",
    "principal": "operator",
    "audience": "team",
    "boundary": "team:ops",
    "quoted_speakers": ["bob"],
    "interactive": True,
    "scope": "group",
}


def test_a_legacy_request_is_restored_by_its_own_path() -> None:
    """Case 7: all the old fields; transport unverified, turn id legacy/<call>, flags kept."""
    old = restored(OLD)
    assert old == TurnContext(
        session=SESSION,
        instance=INSTANCE,
        turn=TurnId("legacy/c9"),
        audience=Audience.TEAM,
        boundary="team:ops",
        channel="slack",
        requester="alice",
        principal=Principal.OPERATOR,
        provenance=Provenance(
            authenticity="unverified", taint="tainted", scope="group", kind="message"
        ),
        quoted_speakers=("bob",),
        interactive=True,
        workspace=None,
    )
    assert old.has_third_party


def test_a_legacy_request_without_principal_is_untrusted() -> None:
    """Case 8: and still needs the same requester."""
    old = restored({**OLD, "principal": None})
    assert isinstance(old, TurnContext)
    assert (old.principal, old.requester) == (Principal.UNTRUSTED_EXTERNAL, "alice")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channel", None),
        ("channel", " "),
        ("requester", None),
        ("requester", ""),
        ("requester", 7),
        ("principal", "root"),
        ("principal", ["operator"]),
        ("audience", None),
        ("audience", ["team"]),
        ("boundary", ""),
        ("quoted_speakers", "bob"),
        ("quoted_speakers", [1]),
    ],
    ids=str,
)
def test_a_legacy_request_that_lacks_something_is_refused_with_the_reason(
    field: str, value: object
) -> None:
    """Case 8: any answer is told that it expired."""
    lost = restored({**OLD, field: value})
    assert isinstance(lost, LostContext)
    assert (lost.field, lost.legacy) == (field, True)


def test_a_legacy_request_of_another_session_is_refused() -> None:
    assert restored({**OLD, "session": "ops/other"}) == LostContext(
        "the old request belongs to another session, or to another instance of this one",
        "session",
        legacy=True,
    )


def test_a_legacy_automation_needs_no_requester_but_is_never_interactive() -> None:
    fields = {**OLD, "principal": "verified_automation", "requester": None}
    old = restore_legacy(fields, call="c9", session=SESSION, instance=INSTANCE)
    assert isinstance(old, TurnContext)
    assert (old.requester, old.interactive) == (None, False)


@pytest.mark.parametrize("word", ["true", "no", 1, []])
def test_a_legacy_flag_that_is_not_a_flag_grants_nothing(word: object) -> None:
    old = restored({**OLD, "interactive": word})
    assert isinstance(old, TurnContext)
    assert not old.interactive


# --- same authority


def test_only_the_turn_id_may_differ() -> None:
    assert same_authority(ALICE, msgspec.structs.replace(ALICE, turn=TurnId("t2")))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session", SessionId("ops/other")),
        ("instance", InstanceId("life-2")),
        ("audience", Audience.TEAM),
        ("boundary", "team:ops"),
        ("channel", "slack"),
        ("requester", "bob"),
        ("principal", Principal.TRUSTED_INTERNAL),
        ("provenance", msgspec.structs.replace(ALICE.provenance, taint="tainted")),
        ("quoted_speakers", ("alice", "mallory")),
        ("interactive", False),
        ("workspace", Workspace("/srv", "9:9")),
    ],
)
def test_any_other_difference_is_another_authority(field: str, value: object) -> None:
    """A7: every field but the turn id counts, one at a time."""
    assert not same_authority(ALICE, msgspec.structs.replace(ALICE, **{field: value}))


def test_two_messages_of_nobody_are_not_of_the_same_person() -> None:
    nobody = context(None)
    assert not same_authority(nobody, nobody)


# --- supersede


@pytest.mark.parametrize(
    ("changes", "supersedes"),
    [
        ({}, True),
        ({"channel": "slack"}, True),
        ({"requester": "bob"}, False),
        ({"audience": Audience.TEAM}, False),
        ({"boundary": "team:ops"}, False),
        ({"interactive": False}, False),
        ({"requester": None, "interactive": False}, False),
        ({"provenance": msgspec.structs.replace(ALICE.provenance, kind="reminder")}, False),
    ],
    ids=str,
)
def test_only_the_same_person_there_supersedes(changes: dict[str, Any], supersedes: bool) -> None:
    assert may_supersede(msgspec.structs.replace(ALICE, **changes), ALICE) is supersedes


# --- narrowing


def child(parent: TurnContext, **more: Any) -> TurnContext:
    return narrowed(
        parent, session=SESSION, instance=INSTANCE, turn=TurnId("t9"), kind="job", **more
    )


def test_a_child_has_what_its_parent_had() -> None:
    """A4: everything but the turn and the kind; third-party words taint."""
    provenance = msgspec.structs.replace(ALICE.provenance, kind="job", taint="tainted")
    assert child(ALICE) == msgspec.structs.replace(ALICE, turn=TurnId("t9"), provenance=provenance)


def test_a_public_child_loses_the_boundary() -> None:
    public = child(ALICE, audience=Audience.PUBLIC)
    assert (public.audience, public.boundary) == (Audience.PUBLIC, "public")


@pytest.mark.parametrize(
    ("parent", "wish"),
    [
        (ALICE, {"audience": Audience.TEAM}),
        (context(MessageSource.team("alice", "ops")), {"audience": Audience.PERSONAL}),
        (context(None), {"audience": Audience.PERSONAL}),
        (ALICE, {"principal": Principal.SYSTEM}),
        (context(MessageSource.team("alice", "ops")), {"principal": Principal.OPERATOR}),
        (context(None), {"principal": Principal.VERIFIED_AUTOMATION}),
        (context(MessageSource.automation("alice", channel="webhook")), {"interactive": True}),
    ],
    ids=str,
)
def test_a_child_that_asks_for_more_is_refused(parent: TurnContext, wish: dict[str, Any]) -> None:
    """A4."""
    with pytest.raises(Refused) as refused:
        child(parent, **wish)
    assert refused.value.code == "no_authority"


@pytest.mark.parametrize("parent", list(Principal))
def test_no_principal_becomes_more_than_it_was(parent: Principal) -> None:
    """Every pair: a child's child has no more than the child."""
    for middle in Principal:
        try:
            between = child(msgspec.structs.replace(ALICE, principal=parent), principal=middle)
        except Refused:
            continue
        for last in Principal:
            try:
                child(between, principal=last)
            except Refused:
                continue
            assert (
                child(msgspec.structs.replace(ALICE, principal=parent), principal=last).principal
                is last
            )
