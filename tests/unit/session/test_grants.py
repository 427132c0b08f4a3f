"""
A5, P9: a grant rests on its giver, on the rule of now and on its time; each of them can end it.
"""

import itertools
from typing import Any

import msgspec
import pytest
from proof.checkers.grant_oracle import stands
from tests.unit.session.test_policy import ALICE, ARGS, PLAIN, TEAM_ALICE, TOOLS, WEBHOOK, grant

from holdfast.session.authority.approvals import options_for
from holdfast.session.authority.context import Audience
from holdfast.session.authority.grants import (
    SCOPES_OF,
    Terms,
    ends_at,
    flaw_of,
    granted_arguments,
    identities_of,
)
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import Allow, Ask, Deny, Policy, Rule, judge, terms_of
from holdfast.session.home.events import GrantProposed, decode_home_event

BOBS = {"granted_by": "bob", "identities": {"alice": ("local:alice",), "bob": ("local:bob",)}}


def decided(
    rule: Rule | None,
    *,
    star: bool = False,
    context: Any = ALICE,
    now: int = 2,
    policy: Policy | None = None,
    **changes: Any,
) -> Any:
    rules = {context.audience: {"*" if star else "delete": rule}} if rule is not None else {}
    return judge(
        context=context,
        definition=TOOLS["delete"],
        arguments=ARGS,
        binding=PLAIN,
        policy=msgspec.structs.replace(policy or Policy(), rules=rules),
        grants=[grant(**changes)],
        in_doubt_twin=False,
        now=now,
    )


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("scope", ["session", "everywhere"])
@pytest.mark.parametrize(
    ("rule", "giver", "counts"),
    [
        (None, {}, "session everywhere"),
        (Rule(mode="ask"), {}, "session everywhere"),
        (Rule(mode="auto"), {}, "session everywhere"),
        (Rule(mode="ask", remember="session"), {}, "session"),
        (Rule(mode="ask", remember="never"), {}, ""),
        (Rule(mode="deny"), {}, ""),
        # somebody is named: nothing is remembered unless the rule says so, whoever gave it
        (Rule(mode="ask", approvers=("bob",)), {}, ""),
        (Rule(mode="ask", approvers=("bob",)), BOBS, ""),
        (Rule(mode="ask", approvers=("bob",), requester_may_answer=False), {}, ""),
        (Rule(mode="ask", approvers=("bob",), requester_may_answer=False), BOBS, ""),
        (Rule(mode="ask", approvers=()), {}, ""),
        # it says so: then the giver must be one who may answer this very call now
        (Rule(mode="ask", approvers=("bob",), remember="any"), {}, "session everywhere"),
        (Rule(mode="ask", approvers=("bob",), remember="any"), BOBS, "session everywhere"),
        (Rule(mode="ask", approvers=("bob",), remember="session"), BOBS, "session"),
        (
            Rule(mode="ask", approvers=("bob",), requester_may_answer=False, remember="any"),
            BOBS,
            "session everywhere",
        ),
        (Rule(mode="ask", approvers=("bob",), requester_may_answer=False, remember="any"), {}, ""),
        (
            Rule(mode="ask", approvers=("carol",), requester_may_answer=False, remember="any"),
            BOBS,
            "",
        ),
        (Rule(mode="ask", approvers=(), remember="any"), {}, ""),
        (
            Rule(mode="ask", approvers=("alice",), requester_may_answer=False, remember="any"),
            {},
            "",
        ),
        # nobody is named any more: the approver of old has nothing to say
        (Rule(mode="ask", remember="any"), BOBS, ""),
        (Rule(mode="ask"), BOBS, ""),
    ],
)
def test_a_grant_counts_only_while_its_giver_could_answer_and_the_scope_is_allowed(
    rule: Rule | None, giver: dict[str, Any], counts: str, scope: str, star: bool
) -> None:
    """A5: whatever was allowed to be remembered once."""
    found = decided(rule, star=star, scope=scope, **giver)
    assert (found == Allow("g1")) is (scope in counts.split())
    assert (
        found == Allow("g1")
        or isinstance(found, Ask | Deny)
        or (rule is not None and found == Allow("policy") and rule.mode == "auto")
    )


@pytest.mark.parametrize(
    "giver",
    [{"granted_by": None}, {"granted_by": ""}, {"granted_by": "mallory"}, {"identities": {}}],
)
def test_a_grant_without_a_giver_counts_for_nothing(giver: dict[str, Any]) -> None:
    assert isinstance(decided(Rule(mode="ask"), **giver), Ask)


def test_the_requesters_own_grant_counts_in_a_turn_that_cannot_prompt() -> None:
    """
    Who may be reached is another question than whose answer counts; a rule that takes the right
    away ends it there too.
    """
    assert decided(None, context=WEBHOOK) == Allow("g1")
    assert isinstance(decided(Rule(mode="ask", approvers=("bob",)), context=WEBHOOK), Ask)
    assert isinstance(decided(Rule(mode="ask", remember="never"), context=WEBHOOK), Deny)


def test_the_rule_of_the_calls_own_audience_decides() -> None:
    """approve_everywhere, used where other rules hold."""
    team = {"scope": "everywhere", "boundary": "team:ops", "audience": "team"}
    assert decided(Rule(mode="ask"), context=TEAM_ALICE, **team) == Allow("g1")
    assert isinstance(
        decided(Rule(mode="ask", approvers=("bob",)), context=TEAM_ALICE, **team), Ask
    )
    moved = msgspec.structs.replace(ALICE, boundary="team:ops")
    assert decided(None, context=moved, **team) == Allow("g1"), (
        "a narrower audience of the same boundary"
    )
    assert isinstance(decided(Rule(mode="ask", remember="never"), context=moved, **team), Ask)


@pytest.mark.parametrize(
    ("now", "seconds", "counts"),
    [
        (999, 1, True),
        (1000, 1, False),
        (10**15, 1, False),
        (999, 10**6, True),
        (1000, 10**6, False),
    ],
)
def test_a_grant_ends(now: int, seconds: int, counts: bool) -> None:
    """A longer time of now does not extend it."""
    assert (
        decided(None, now=now, policy=Policy(remember_for_seconds=seconds)) == Allow("g1")
    ) is counts


def test_a_shorter_time_of_now_applies_to_what_was_given_before() -> None:
    long = grant(proposed_at=0, expires_at=30_000_000)
    assert (ends_at(long, 30_000), ends_at(long, 10), ends_at(long, 90_000)) == (
        30_000_000,
        10_000,
        30_000_000,
    )


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ({}, {}, True),
        ({"bob": {"slack": "T1/U1"}}, {"bob": {"slack": "T1/U1"}}, True),
        (
            {"bob": {"slack": "T1/U1"}},
            {"bob": {"slack": "T1/U1", "local": "bob"}},
            True,
        ),  # further known by a login
        (
            {"bob": {"slack": "T1/U1"}},
            {"bob": {"slack": "T1/U2"}},
            False,
        ),  # the name is another person's now
        (
            {"bob": {"slack": "T1/U1", "local": "bob"}},
            {"bob": {"local": "bob"}},
            False,
        ),  # the account is no longer theirs
        ({"bob": {"slack": "T1/U1"}}, {}, False),  # removed from [people]
        ({"bob": {"slack": "T1/U1"}}, {"robert": {"slack": "T1/U1"}}, False),  # renamed
        ({}, {"bob": {"local": "other"}}, False),  # the name was given to another login
        ({}, {"robert": {"local": "bob"}}, False),  # the login has another name
        (
            {"alice": {"local": "al"}},
            {"alice": {"local": "someone"}},
            False,
        ),  # the requester is another person now
    ],
)
def test_a_grant_is_between_the_people_it_was_given_by_and_for(
    then: dict[str, Any], now: dict[str, Any], same: bool
) -> None:
    identities = {name: identities_of(name, then) for name in ("alice", "bob")}
    rule = Rule(mode="ask", approvers=("bob",), remember="any")
    found = decided(rule, policy=Policy(people=now), granted_by="bob", identities=identities)
    assert (found == Allow("g1")) is same


def test_every_flaw_has_words_of_its_own() -> None:
    terms = Terms(
        givers=("alice",),
        scopes=SCOPES_OF["any"],
        seconds=10**6,
        people={},
        now=2,
        ways=("script", "page"),
    )
    flawed = [
        flaw_of(grant(granted_by=None), terms),
        flaw_of(grant(), msgspec.structs.replace(terms, now=1000)),
        flaw_of(grant(granted_by="bob"), terms),
        flaw_of(grant(), msgspec.structs.replace(terms, scopes=SCOPES_OF["never"])),
        flaw_of(grant(identities={"alice": ("local:someone",)}), terms),
        flaw_of(grant(way="terminal"), terms),
    ]
    assert flaw_of(grant(), terms) is None
    assert flaw_of(grant(way="page"), terms) is None
    assert flaw_of(grant(), msgspec.structs.replace(terms, ways=("page",))) == flawed[-1]
    assert None not in flawed
    assert len(set(flawed)) == len(flawed)


@pytest.mark.parametrize(
    ("rule", "remembers"),
    [
        (Rule(mode="ask"), "any"),
        (Rule(mode="auto"), "any"),
        (Rule(mode="ask", requester_may_answer=True), "any"),
        (Rule(mode="ask", requester_may_answer=False), "never"),
        (Rule(mode="ask", approvers=("bob",)), "never"),
        (Rule(mode="ask", approvers=()), "never"),
        (Rule(mode="ask", approvers=("bob",), remember="session"), "session"),
        (Rule(mode="ask", remember="never"), "never"),
    ],
)
def test_a_rule_bounds_the_scopes_that_an_answer_may_grant(rule: Rule, remembers: str) -> None:
    assert rule.remembers == remembers
    assert terms_of(rule, "alice", Policy(), now=0).scopes == SCOPES_OF[remembers]  # type: ignore[index]
    asked = judge(
        context=ALICE,
        definition=TOOLS["delete"],
        arguments=ARGS,
        binding=msgspec.structs.replace(PLAIN, reach="outside"),
        policy=Policy(rules={Audience.PERSONAL: {"delete": rule}}),
        grants=(),
        in_doubt_twin=False,
        now=0,
    )
    assert isinstance(asked, Deny) or asked.remember == remembers  # type: ignore[union-attr]


def test_a_record_from_before_givers_were_recorded_counts_for_nothing() -> None:
    kept = msgspec.to_builtins(grant())
    for name in ("granted_by", "expires_at", "identities"):
        del kept[name]
    old = decode_home_event("grant_proposed", 1, msgspec.json.encode(kept))
    assert isinstance(old, GrantProposed)
    assert (old.granted_by, old.expires_at) == (None, 0)
    for revived in (
        old,
        msgspec.structs.replace(old, granted_by="alice"),
        msgspec.structs.replace(old, expires_at=10**15),
    ):
        found = judge(
            context=ALICE,
            definition=TOOLS["delete"],
            arguments=ARGS,
            binding=PLAIN,
            policy=Policy(),
            grants=[revived],
            in_doubt_twin=False,
            now=2,
        )
        assert isinstance(found, Ask)


def test_the_program_and_a_second_reading_of_the_documentation_agree_on_every_rule() -> None:
    """A5 as a whole: 2,880 combinations of rule, giver, scope and time."""
    seen = {True: 0, False: 0}
    for mode, approvers, may, remember, giver, scope, now in itertools.product(
        ("ask", "deny"), (None, (), ("bob",), ("alice", "bob")), (None, True, False), (None, "never", "session", "any"),
        ("alice", "bob", "carol", None, ""), ("session", "everywhere"), (2, 999, 1000),
    ):  # fmt: skip
        rule = Rule(mode=mode, approvers=approvers, requester_may_answer=may, remember=remember)  # type: ignore[arg-type]
        given = {
            "granted_by": giver,
            "scope": scope,
            "identities": {name: (f"local:{name}",) for name in ("alice", "bob", "carol")},
        }
        expected = mode == "ask" and stands(grant(**given), rule, now)
        assert (decided(rule, now=now, **given) == Allow("g1")) is expected, (rule, given, now)
        seen[expected] += 1
    assert min(seen.values()) > 50


@pytest.mark.parametrize(
    ("rule", "may_edit"),
    [
        (Rule(mode="ask"), True),
        (Rule(mode="ask", approvers=("bob",)), True),
        (Rule(mode="ask", approvers=("bob",), requester_may_answer=False), False),
    ],
)
def test_nobody_edits_a_call_that_two_people_must_decide_about(rule: Rule, may_edit: bool) -> None:
    """The one approver could otherwise write a call and approve it alone, in another's name."""
    asked = judge(
        context=ALICE,
        definition=TOOLS["delete"],
        arguments=ARGS,
        binding=PLAIN,
        policy=Policy(rules={Audience.PERSONAL: {"delete": rule}}),
        grants=(),
        in_doubt_twin=False,
        now=0,
    )
    assert isinstance(asked, Ask)
    options = [each.option for each in options_for(TOOLS["delete"], PLAIN, asked)]
    assert ("edit" in options) is may_edit


@pytest.mark.parametrize("scope", sorted(SCOPES_OF["any"]))
def test_a_grant_to_write_binds_the_content_even_where_the_tool_calls_it_free(scope: str) -> None:
    """P9: for any other tool, a free field is left out."""
    arguments = '{"path":"a.txt","content":"x"}'
    writes = ToolDefinition(
        name="w", description="W.", parameters="{}", kind="write_file", free_fields=("content",)
    )
    assert granted_arguments(arguments, writes, scope) == arguments
    other = msgspec.structs.replace(writes, kind="python")
    assert granted_arguments(arguments, other, scope) == '{"path":"a.txt"}'
