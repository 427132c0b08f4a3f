"""
The fixed order of deciding, who may answer, what is offered, and what a grant covers: each as a
table.
"""

from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION

from holdfast.ids import CallId, GrantId, InstanceId, SessionId, TurnId
from holdfast.session.authority.approvals import (
    SCOPES,
    folder_of,
    options_for,
    plan_digest,
    request,
    shown,
)
from holdfast.session.authority.context import (
    Audience,
    MessageSource,
    TurnContext,
    context_from_source,
)
from holdfast.session.authority.grants import covers, granted_arguments, is_below
from holdfast.session.authority.plan import Binding, Risk, ToolDefinition
from holdfast.session.authority.policy import (
    Allow,
    Ask,
    BoundCall,
    Deny,
    Policy,
    Rule,
    counts,
    judge,
    may_answer,
    offered,
)
from holdfast.session.events import ApprovalRequested
from holdfast.session.home.events import GrantProposed
from proof.scenarios import pure_session

TOOLS = {
    **pure_session.TOOLS,
    "read_file": ToolDefinition(
        name="read_file", description="Read.", parameters="{}", kind="read_file"
    ),
}


def context(source: MessageSource | None) -> TurnContext:
    return context_from_source(
        source, session=SESSION, instance=INSTANCE, turn=TurnId("t1"), workspace=None
    )


ALICE = context(MessageSource.local("alice"))
TEAM_ALICE = context(MessageSource.team("alice", "ops"))
WEBHOOK = context(MessageSource.automation("alice", channel="webhook"))
NOBODY = context(None)

ARGS = '{"branch":"old"}'
PLAIN = Binding(display="delete old")


def grant(**changes: Any) -> GrantProposed:
    made = GrantProposed(
        grant=GrantId("g1"),
        tool="delete",
        definition=TOOLS["delete"].digest(),
        arguments=ARGS,
        scope="session",
        folder=None,
        requester="alice",
        boundary="personal:alice",
        audience="personal",
        session=SESSION,
        instance=INSTANCE,
        approval="a-1",
        answer="x",
        proposed_at=1,
        granted_by="alice",
        expires_at=1000,
        identities={"alice": ("local:alice",)},
    )
    return msgspec.structs.replace(made, **changes)


def verdict(
    tool: str = "delete",
    *,
    context: TurnContext = ALICE,
    rule: Rule | None = None,
    binding: Binding = PLAIN,
    twin: bool = False,
    grants: Any = (),
) -> Any:
    policy = Policy(rules={context.audience: {tool: rule}} if rule else {})
    return judge(
        context=context,
        definition=TOOLS[tool],
        arguments=ARGS,
        binding=binding,
        policy=policy,
        grants=grants,
        in_doubt_twin=twin,
        now=2,
    )


AUTO, ASK, DENY = Rule(mode="auto"), Rule(mode="ask"), Rule(mode="deny")
OUTSIDE = Binding(display="x", reach="outside")
UNCONFINED = Binding(display="x", level="unconfined")
LIMITED = Binding(display="x", level="limited")
CONNECTED = Binding(display="x", level="isolated", network=True)
UNREADABLE = Binding(display="x", readable=False)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # audience profile
        ({"tool": "look"}, Allow("policy")),
        ({"tool": "look", "context": NOBODY}, Allow("policy")),
        ({"tool": "look", "context": TEAM_ALICE, "binding": OUTSIDE}, "denied_by_policy"),
        ({"tool": "shell", "context": TEAM_ALICE}, "denied_by_policy"),
        ({"tool": "tidy", "context": NOBODY}, "denied_by_policy"),
        ({"tool": "delete", "context": NOBODY}, "approval_unattended"),
        ({"tool": "delete"}, ("alice",)),
        # mode deny comes before everything that could allow
        ({"rule": DENY, "grants": [grant()]}, "denied_by_policy"),
        # an in-doubt twin comes before grants and auto
        ({"rule": AUTO, "twin": True, "grants": [grant()]}, ("alice",)),
        ({"tool": "tidy", "twin": True}, ("alice",)),
        ({"tool": "tidy", "twin": True, "context": WEBHOOK}, "approval_unattended"),
        # grants come before auto and ask
        (
            {"rule": ASK, "grants": [grant(requester="bob"), grant(grant=GrantId("g2"))]},
            Allow("g2"),
        ),
        ({"rule": AUTO, "grants": [grant()]}, Allow("g1")),
        ({"context": WEBHOOK, "grants": [grant()]}, Allow("g1")),
        # auto, but never outside the workspace, never with the network, and only where a command is
        # isolated
        ({"rule": AUTO, "binding": LIMITED}, ("alice",)),
        ({"rule": AUTO, "binding": CONNECTED}, ("alice",)),
        ({"rule": AUTO, "binding": Binding(display="x", level="isolated")}, Allow("policy")),
        ({"rule": AUTO}, Allow("policy")),
        ({"rule": AUTO, "binding": UNREADABLE}, Allow("policy")),
        ({"rule": AUTO, "binding": OUTSIDE}, ("alice",)),
        ({"rule": AUTO, "binding": UNCONFINED}, ("alice",)),
        # ask
        ({"rule": ASK}, ("alice",)),
        ({"context": WEBHOOK}, "approval_unattended"),
        ({"rule": Rule(mode="ask", approvers=())}, "approval_unattended"),
        ({"rule": Rule(mode="ask", approvers=("bob",)), "context": NOBODY}, "approval_unattended"),
        # a question always asks, and nothing of it is remembered
        ({"tool": "ask_person"}, ("alice",)),
        (
            {
                "tool": "ask_person",
                "grants": [grant(tool="ask_person", definition=TOOLS["ask_person"].digest())],
            },
            ("alice",),
        ),
        ({"tool": "ask_person", "context": NOBODY}, "approval_unattended"),
        ({"tool": "ask_person", "rule": DENY}, "denied_by_policy"),
    ],
    ids=str,
)
def test_the_order_of_deciding(case: dict[str, Any], expected: object) -> None:
    found = verdict(**case)
    if isinstance(expected, str):
        assert isinstance(found, Deny)
        assert found.code == expected
    elif isinstance(expected, tuple):
        assert isinstance(found, Ask)
        assert found.may_answer == expected
    else:
        assert found == expected


def test_a_rule_by_name_comes_before_the_star() -> None:
    policy = Policy(rules={Audience.TEAM: {"delete": ASK, "*": DENY}})
    assert (
        policy.rule(Audience.TEAM, "delete"),
        policy.rule(Audience.TEAM, "shell"),
        policy.rule(Audience.PERSONAL, "delete"),
    ) == (ASK, DENY, None)


@pytest.mark.parametrize(
    ("context", "approvers", "requester_may", "expected"),
    [
        (ALICE, None, None, ("alice",)),
        (ALICE, None, False, ()),
        (ALICE, ("bob",), None, ("alice", "bob")),
        (ALICE, ("bob", "alice"), None, ("alice", "bob")),
        (ALICE, ("bob", "carol"), False, ("bob", "carol")),
        (ALICE, ("bob", "alice"), False, ("bob",)),
        (ALICE, (), None, ()),
        (ALICE, (), False, ()),
        (ALICE, (), True, ("alice",)),
        (WEBHOOK, None, None, ()),
        (WEBHOOK, None, True, ()),
        (WEBHOOK, ("bob", "carol"), None, ("bob", "carol")),
        (WEBHOOK, ("bob", "alice"), None, ("bob", "alice")),
        (WEBHOOK, ("bob", "alice"), False, ("bob",)),
        (NOBODY, None, None, ()),
        (NOBODY, ("bob",), None, ()),
        (NOBODY, ("bob",), True, ()),
    ],
)
def test_the_requester_and_named_approvers_may_answer(
    context: TurnContext,
    approvers: tuple[str, ...] | None,
    requester_may: bool | None,
    expected: tuple[str, ...],
) -> None:
    """P3, A6: the requester, or an approver that policy names; nobody, when nobody asked."""
    assert (
        may_answer(
            context, Rule(mode="ask", approvers=approvers, requester_may_answer=requester_may)
        )
        == expected
    )


SHELL = Binding(display="ls", cwd="/srv")
FILE = Binding(display="write", path="/srv/a/b.txt")


@pytest.mark.parametrize(
    ("tool", "binding", "twin", "expected"),
    [
        ("delete", PLAIN, False, "approve_once approve_session approve_everywhere edit deny"),
        (
            "shell",
            SHELL,
            False,
            "approve_once approve_session approve_folder approve_everywhere edit deny",
        ),
        (
            "read_file",
            FILE,
            False,
            "approve_once approve_session approve_folder approve_everywhere edit deny",
        ),
        ("write_file", FILE, False, "approve_once approve_session approve_everywhere edit deny"),
        (
            "write_file",
            msgspec.structs.replace(FILE, memorable=False),
            False,
            "approve_once edit deny",
        ),
        ("shell", msgspec.structs.replace(SHELL, readable=False), False, "approve_once edit deny"),
        (
            "shell",
            msgspec.structs.replace(SHELL, level="isolated"),
            False,
            "approve_once approve_session approve_folder approve_everywhere edit deny",
        ),
        ("shell", msgspec.structs.replace(SHELL, level="limited"), False, "approve_once edit deny"),
        ("shell", msgspec.structs.replace(SHELL, level="unconfined"), False, "approve_once deny"),
        (
            "shell",
            msgspec.structs.replace(SHELL, level="unconfined", readable=False),
            True,
            "approve_once deny",
        ),
        ("delete", PLAIN, True, "approve_once edit deny"),
        ("ask_person", PLAIN, False, "answer deny"),
    ],
)
def test_options_offered(tool: str, binding: Binding, twin: bool, expected: str) -> None:
    """In this order, and nothing that is not safe to remember."""
    ask = Ask(
        may_answer=("alice",),
        reason="",
        rule="",
        expires_after_seconds=1,
        in_doubt_twin=twin,
        remember="any",
    )
    offered = options_for(TOOLS[tool], binding, ask)
    assert " ".join(each.option for each in offered) == expected
    assert all(each.covers for each in offered)


def test_approve_once_promises_no_more_than_the_call_fixes() -> None:
    """P1: a command that runs further files is approved without the bytes of those files."""
    ask = Ask(may_answer=("alice",), reason="", rule="", expires_after_seconds=1)

    def words(binding: Binding) -> str:
        return options_for(TOOLS["shell"], binding, ask)[0].covers

    plain = Binding(display="ls", level="isolated")
    assert words(plain) == "Runs exactly this call, once."
    opened = msgspec.structs.replace(plain, runs_open_files=True)
    assert words(opened) == "Runs exactly this command, once. Files that it runs can still change."
    assert opened.digest() == plain.digest(), "the display has the same words, and is bound"


def test_a_prompt_says_first_what_is_wrong() -> None:
    """P8, T2."""
    ask = Ask(
        may_answer=("alice",), reason="", rule="", expires_after_seconds=1, in_doubt_twin=True
    )
    lines = shown(
        Binding(display="rm x", level="unconfined", warnings=("look-alikes",)), ask
    ).split("\n")
    assert [line[:12] for line in lines] == ["! runs UNCON", "! look-alike", "! an earlier", "rm x"]


def test_policy_does_not_ask_about_a_call_that_is_too_long_to_show() -> None:
    """P4: never approvable from a prefix."""
    ask = Ask(may_answer=("alice",), reason="", rule="personal:ask", expires_after_seconds=1)
    common: dict[str, Any] = {
        "context": ALICE,
        "turn": ALICE.turn,
        "call": "c-1",
        "definition": TOOLS["delete"],
        "arguments": ARGS,
        "ask": ask,
        "prompt": 1,
        "now": 0,
    }
    assert request(**common, binding=Binding(display="x" * 20_000)) is not None
    assert request(**common, binding=Binding(display="x" * 20_001)) is None


DIGEST: dict[str, Any] = {
    "context": ALICE,
    "call": "c-1",
    "definition": TOOLS["delete"],
    "arguments": ARGS,
    "binding": PLAIN,
    "rule": "personal:ask",
    "display": "x",
}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("context", msgspec.structs.replace(ALICE, boundary="team:ops")),
        ("context", msgspec.structs.replace(ALICE, instance=InstanceId("life-2"))),
        ("call", "c-2"),
        ("definition", msgspec.structs.replace(TOOLS["delete"], code="v2")),
        ("arguments", '{"branch":"old" }'),
        ("rule", "personal:edited"),
        ("display", "y"),
        *(
            ("binding", msgspec.structs.replace(PLAIN, **change))
            for change in (
                {"display": "z"},
                {"cwd": "/x"},
                {"cwd_identity": "1"},
                {"interpreter": "sh"},
                {"scripts": ("a",)},
                {"environment": "e"},
                {"level": "unconfined"},
                {"reach": "outside"},
                {"readable": False},
                {"memorable": False},
                {"path": "/p"},
                {"warnings": ("w",)},
            )
        ),
    ],
    ids=str,
)
def test_every_part_of_the_plan_is_in_its_digest(part: str, value: object) -> None:
    """P1."""
    assert plan_digest(**{**DIGEST, part: value}) != plan_digest(**DIGEST)


@pytest.mark.parametrize("field", ToolDefinition.__struct_fields__)
def test_every_part_of_a_definition_is_its_identity(field: str) -> None:
    """X1: whatever changes needs fresh consent."""
    changed = {
        "contract": "pure",
        "default_mode": "auto",
        "kind": "shell",
        "audience": "public",
        "free_fields": ("x",),
    }.get(field, "changed")
    assert (
        msgspec.structs.replace(TOOLS["delete"], **{field: changed}).digest()
        != TOOLS["delete"].digest()
    )


def covered(
    *,
    context: TurnContext = ALICE,
    tool: str = "delete",
    arguments: str = ARGS,
    binding: Binding = PLAIN,
    **changes: Any,
) -> bool:
    return covers(
        grant(**changes),
        context=context,
        definition=TOOLS[tool],
        arguments=arguments,
        binding=binding,
    )


def test_a_grant_covers_the_very_call() -> None:
    assert covered()
    assert covered(audience="team")  # given in a wider reader set: a narrower one is fine


@pytest.mark.parametrize(
    "flip",
    [
        {"tool": "tidy"},
        {"definition": "other"},
        {"requester": "bob"},
        {"boundary": "team:ops"},
        {"context": NOBODY},
        {"context": msgspec.structs.replace(ALICE, audience=Audience.TEAM)},
        {"context": msgspec.structs.replace(ALICE, requester="bob")},
        {"context": msgspec.structs.replace(ALICE, session=SessionId("ops/other"))},
        {"context": msgspec.structs.replace(ALICE, instance=InstanceId("life-2"))},
        {"binding": UNREADABLE},
        {"binding": UNCONFINED},
        {"binding": msgspec.structs.replace(PLAIN, memorable=False)},
        {"binding": LIMITED},
        {"binding": msgspec.structs.replace(PLAIN, cwd="/elsewhere")},
        {"arguments": '{"branch":"new"}'},
        {"arguments": '{"branch": "old"}'},
        {"scope": "once"},
        {"scope": "folder"},
    ],
    ids=str,
)
def test_each_dimension_of_a_grant_counts(flip: dict[str, Any]) -> None:
    """Case 34, P9: flip any one, and it is not covered."""
    assert not covered(**flip)


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
@pytest.mark.parametrize("scope", ["session", "everywhere"])
def test_a_grant_for_a_file_is_for_the_path_that_its_words_led_to(tool: str, scope: str) -> None:
    """Equal words lead elsewhere from another workspace, or once a link points elsewhere."""
    made = {
        "tool": tool,
        "definition": TOOLS[tool].digest(),
        "scope": scope,
        "path": "/srv/a/b.txt",
    }
    same = grant(**made)
    for path, inside in (("/srv/a/b.txt", True), ("/etc/b.txt", False), (None, False)):
        binding = Binding(display="x", path=path)
        assert (
            covers(same, context=ALICE, definition=TOOLS[tool], arguments=ARGS, binding=binding)
            is inside
        )


@pytest.mark.parametrize(
    ("cwd", "inside"),
    [
        ("/srv", True),
        ("/srv/deep", True),
        ("/srv2", False),
        ("/", False),
        ("/sr", False),
        (None, False),
    ],
)
def test_a_folder_grant_covers_that_folder_and_below(cwd: str | None, inside: bool) -> None:
    binding = Binding(display="ls", cwd=cwd)
    made = grant(
        tool="shell",
        definition=TOOLS["shell"].digest(),
        scope="folder",
        folder="/srv",
        arguments='{"command":"ls"}',
        session=SessionId("ops/other"),
    )
    assert (
        covers(
            made,
            context=ALICE,
            definition=TOOLS["shell"],
            arguments='{"command":"ls","cwd":"/x"}',
            binding=binding,
        )
        is inside
    )
    assert is_below(cwd, "/srv") is inside


def test_everywhere_is_anywhere_but_only_that_command() -> None:
    made = grant(
        tool="shell",
        definition=TOOLS["shell"].digest(),
        scope="everywhere",
        arguments='{"command":"ls"}',
        session=SessionId("ops/other"),
    )
    elsewhere = msgspec.structs.replace(SHELL, path="/x")  # a command's path is its folder
    assert covers(
        made,
        context=ALICE,
        definition=TOOLS["shell"],
        arguments='{"command":"ls","cwd":"/x"}',
        binding=elsewhere,
    )
    assert not covers(
        made,
        context=ALICE,
        definition=TOOLS["shell"],
        arguments='{"command":"ls -a","cwd":"/x"}',
        binding=SHELL,
    )


@pytest.mark.parametrize(
    ("tool", "scope", "expected"),
    [
        ("shell", "session", '{"command":"ls","cwd":"/x"}'),
        ("shell", "folder", '{"command":"ls"}'),
        ("shell", "everywhere", '{"command":"ls"}'),
        ("read_file", "folder", "{}"),
        ("write_file", "folder", '{"command":"ls","cwd":"/x"}'),
        ("write_file", "everywhere", '{"command":"ls","cwd":"/x"}'),
        ("delete", "session", '{"command":"ls","cwd":"/x"}'),
    ],
)
def test_a_grant_binds_the_arguments_of_its_scope(tool: str, scope: str, expected: str) -> None:
    assert granted_arguments('{"command":"ls","cwd":"/x"}', TOOLS[tool], scope) == expected


def test_fields_that_a_tool_names_as_free_are_not_bound() -> None:
    free = msgspec.structs.replace(TOOLS["delete"], free_fields=("reason",))
    assert granted_arguments('{"branch":"old","reason":"why not"}', free, "session") == ARGS


def test_approve_folder_covers_the_folder_of_a_command_or_a_read_file() -> None:
    assert (
        folder_of(TOOLS["shell"], SHELL),
        folder_of(TOOLS["read_file"], FILE),
        folder_of(TOOLS["delete"], SHELL),
    ) == ("/srv", "/srv/a", None)
    assert folder_of(TOOLS["read_file"], Binding(display="x", path="/x")) == "/"
    assert folder_of(TOOLS["read_file"], SHELL) is None, "no file, no folder"
    assert folder_of(TOOLS["write_file"], FILE) is None, "a grant to write covers one path"
    assert folder_of(TOOLS["delete"], FILE) is None, (
        "only what shell and file tools do is bound to a folder"
    )


def test_local_people_are_operators_with_a_boundary_of_their_own() -> None:
    assert MessageSource.local("alice").boundary == "personal:alice"


RISK = Risk(kind="destructive", text="`rm` deletes files.", start=0, end=2)
RISKY = msgspec.structs.replace(SHELL, display="rm x", risks=(RISK,))


def _asked(tool: str, binding: Binding, *, twin: bool = False) -> ApprovalRequested:
    ask = Ask(
        may_answer=("alice",),
        reason="",
        rule="personal:ask",
        expires_after_seconds=1,
        in_doubt_twin=twin,
    )
    asked = request(
        context=ALICE,
        turn=ALICE.turn,
        call=CallId("c-1"),
        definition=TOOLS[tool],
        arguments="{}",
        binding=binding,
        ask=ask,
        prompt=1,
        now=0,
    )
    assert asked is not None
    return asked


@pytest.mark.parametrize(
    ("tool", "binding", "twin", "risks"),
    [
        ("shell", SHELL, False, []),
        ("shell", msgspec.structs.replace(SHELL, readable=False), False, []),
        ("shell", msgspec.structs.replace(SHELL, level="limited"), False, []),
        ("shell", msgspec.structs.replace(SHELL, level="unconfined"), False, ["unconfined"]),
        ("shell", RISKY, False, ["destructive"]),
        ("shell", RISKY, True, ["in_doubt_twin"]),
        ("delete", PLAIN, True, ["in_doubt_twin"]),
        ("ask_person", msgspec.structs.replace(PLAIN, readable=False), True, []),
    ],
)
def test_a_call_is_marked_by_its_effect_and_an_equal_call_in_doubt_alone(
    tool: str, binding: Binding, twin: bool, risks: list[str]
) -> None:
    """P4, P8: a call that may have run already says that, and only that."""
    assert [each.kind for each in _asked(tool, binding, twin=twin).risks] == risks


def test_a_mark_moves_with_the_lines_above_the_plan() -> None:
    warned = msgspec.structs.replace(RISKY, level="unconfined", warnings=("look",))
    asked = _asked("shell", warned)
    assert [asked.display[each.start : each.end] for each in asked.risks] == [
        "runs UNCONFINED: it could read keys and answer prompts on this machine",
        "rm",
    ]


def test_other_words_for_a_risk_void_no_prompt() -> None:
    """P1: the plan is what runs. A comment on it may change with a version."""
    other = msgspec.structs.replace(RISK, text="`rm` removes files.")
    assert RISKY.digest() == msgspec.structs.replace(RISKY, risks=(other,)).digest()
    assert RISKY.digest() != msgspec.structs.replace(RISKY, display="rm y").digest()


@pytest.mark.parametrize(("tool", "shown"), [("look", True), ("delete", True), ("shell", False)])
def test_a_team_is_shown_the_tools_that_were_made_for_it(tool: str, shown: bool) -> None:
    """
    Those for everybody and those for teams; what is for a person alone would be denied whatever its
    arguments.
    """
    team = context_from_source(
        MessageSource.team("alice", "ops"),
        session=SESSION,
        instance=INSTANCE,
        turn=TurnId("t1"),
        workspace=None,
    )
    assert offered(team, TOOLS[tool], Policy()) is shown


@pytest.mark.parametrize(
    ("rule", "shown"),
    [(DENY, False), (ASK, True), (AUTO, True), (None, False)],
    ids=["denied", "asks", "runs", "nothing said"],
)
def test_the_policy_rule_of_a_tool_decides_whether_the_model_sees_it(
    rule: Rule | None, shown: bool
) -> None:
    """A5: settings come before the tool's own profile, which keeps a shell from a team."""
    policy = Policy(rules={Audience.TEAM: {"shell": rule}} if rule else {})
    assert offered(TEAM_ALICE, TOOLS["shell"], policy) is shown


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({}, "By default, delete asks before it runs."),
        ({"tool": "ask_person"}, "The agent asks a question."),
        ({"binding": OUTSIDE}, "It reaches outside the workspace."),
        (
            {"binding": OUTSIDE, "twin": True},
            "An earlier, equal call may have run already.",
        ),
    ],
    ids=str,
)
def test_a_prompt_says_why_it_asks(case: dict[str, Any], reason: str) -> None:
    """P4, T2: what may have happened already comes first."""
    assert verdict(**case).reason == reason


@pytest.mark.parametrize(
    ("tool", "binding", "covers"),
    [
        (
            "shell",
            SHELL,
            {
                "approve_session": "Runs now and whenever alice asks for exactly this command in /srv, in this conversation, for 30 days.",
                "approve_folder": "Runs now and whenever alice asks for exactly this command in /srv or below, in all conversations of alice, for 30 days.",
                "approve_everywhere": "Runs now and whenever alice asks for exactly this command, in any folder, in all conversations of alice, for 30 days.",
            },
        ),
        (
            "write_file",
            FILE,
            {
                "approve_session": "Runs now and whenever alice asks for exactly this, on this path, in this conversation, for 30 days.",
                "approve_everywhere": "Runs now and whenever alice asks for exactly this, on this path, in all conversations of alice, for 30 days.",
            },
        ),
        (
            "read_file",
            FILE,
            {
                "approve_session": "Runs now and whenever alice asks for exactly this, on this path, in this conversation, for 30 days.",
                "approve_folder": "Runs now and whenever alice asks for read_file on any path in /srv/a or below, in all conversations of alice, for 30 days.",
                "approve_everywhere": "Runs now and whenever alice asks for exactly this, on this path, in all conversations of alice, for 30 days.",
            },
        ),
    ],
    ids=["shell", "write_file", "read_file"],
)
def test_every_option_says_what_it_would_cover(
    tool: str, binding: Binding, covers: dict[str, str]
) -> None:
    """P4, P9: consent to a grant is consent to these words."""
    ask = Ask(may_answer=("alice",), reason="", rule="", expires_after_seconds=1, remember="any")
    offered = {
        each.option: each.covers
        for each in options_for(TOOLS[tool], binding, ask, requester="alice")
    }
    assert {option: words for option, words in offered.items() if option in SCOPES} == covers


def test_the_defaults_of_looked_and_rule_grant_the_least() -> None:
    """
    Nothing goes on in the background, and nothing is in doubt, because somebody forgot to say that
    it is not.
    """
    assert BoundCall(call=CallId("c1")) == BoundCall(
        call=CallId("c1"),
        definition=None,
        arguments=None,
        binding=None,
        background=False,
        problem=None,
    )
    assert Rule(mode="ask") == Rule(
        mode="ask", approvers=None, requester_may_answer=None, expires_after_seconds=None
    )


def test_an_answer_of_unknown_origin_counts_as_made_by_a_program() -> None:
    """P8: it is consent only where a program's answer is."""
    assert counts(None, ("script",))
    assert not counts(None, ("terminal", "page", "channels"))
