"""The sentences of the screens, each where people read it, and those that were given up."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from holdfast.session.effects import SessionEffect
from holdfast.session.view.messages import FailureKind
from holdfast.state_words import state_words

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
PAGE = "gateway/page"
SAID = [
    (f"{PAGE}/views/inbox.js", "Approve runs exactly what you see. If nobody answers in time"),
    (f"{PAGE}/views/inbox.js", "Offline. Trying again."),
    (f"{PAGE}/prompts/plan.js", "If the call changes, your answer no longer counts."),
    (f"{PAGE}/prompts/card.js", "This card has just appeared. Read it, then press again."),
    (f"{PAGE}/prompts/choices.js", "Show me the new call"),
    (f"{PAGE}/prompts/choices.js", "This may have run already. Check first"),
    (f"{PAGE}/views/sign_in.js", "This server does not know that token. Did you copy all of it?"),
    (f"{PAGE}/views/grants.js", "Standing approvals"),
    (f"{PAGE}/views/grants.js", "These run without asking"),
    (f"{PAGE}/talk/side.js", '"Turns"'),
    (f"{PAGE}/talk/side.js", '"Details"'),
    (f"{PAGE}/talk/call_view.js", '"Result"'),
    (f"{PAGE}/talk/log.js", "Your message is saved before the agent acts on it."),
    (f"{PAGE}/talk/log.js", "No messages you can see."),
    (f"{PAGE}/talk/log.js", "The history is damaged after record"),
    (f"{PAGE}/talk/log.js", "Not run: ${requester} sent another message instead."),
    (f"{PAGE}/talk/log.js", "Stopped by ${item.by}."),
    (f"{PAGE}/talk/log.js", "You can read it, and nothing can be sent."),
    (f"{PAGE}/talk/composer.js", "Nothing more runs. Everything said and done stays."),
    (f"{PAGE}/talk/composer.js", "can no longer answer"),
    (f"{PAGE}/talk/call_view.js", "Output so far"),
    ("adapters/tools/shell/risks/placed.py", "expect writes outside the workspace to fail"),
    ("adapters/tools/shell/scripts/files.py", "hooks of git, and programs that its settings name"),
    (f"{PAGE}/prompts/choices.js", "Offline: no answer can be saved now."),
    (f"{PAGE}/prompts/choices.js", "Read all of the text first."),
    (f"{PAGE}/story/timeline.js", "Time runs down."),
    ("state_words.json", "{requester} asked; the agent {agent} wrote this call"),
    ("session/authority/policy.py", "asks before it runs."),
    (f"{PAGE}/index.html", "This page needs JavaScript."),
    (f"{PAGE}/core/api.js", "We don't know if this arrived."),
    ("session/authority/approvals.py", "Nothing runs."),
    ("session/authority/approvals.py", "Change the values. You see the new call before it runs."),
    ("session/authority/policy.py", "Your settings ask before"),
    ("cli/commands/chat/prompts.py", "Nothing was decided. Type"),
    ("runtime/verbs/accept.py", "does not approve anything"),
    ("adapters/tools/builtin/memory.py", "Tools or other people have spoken in this turn"),
    ("adapters/tools/shell/confinement/levels.py", "HOLDFAST_HOME=~/.holdfast"),
    ("cli/commands/approvals/answer.py", "Your answer is saved. It runs when"),
    ("settings/settings.py", "add --app MODULE:AGENT"),
    ("cli/shared/options.py", "Where Holdfast keeps its data."),
    ("cli/commands/send.py", "Send a message; wait for the reply or for an approval."),
    ("cli/commands/send.py", "Return at once; the server or `holdfast resume` runs the turn."),
]
GIVEN_UP = [
    "No setting lets",
    "until its owner decides",
    "sealed: ${",
    "Found in ${",
    "under the authority it was asked with",
    "an answer counts for exactly this",
    "remembers nothing",
    "in any session of yours",
    "other arguments instead",
    "could do more than it shows",
    "Ask anew with these",
    "This has only just come here",
    "Who are you?",
    "What you remembered",
    "Ask again from now on",
    "What came of it",
    "looking every few seconds",
    "its own and nobody else's",
    "is none of the options",
    "a plain word is no answer",
    "can't be judged from its text alone",
    "content that nobody vouches for",
    "The folder of everything.",
    "is no session id",
    "is no scope",
    "is no audience",
    "when the cause is gone",
]


@pytest.mark.parametrize(("place", "words"), SAID, ids=[words[:40] for _, words in SAID])
def test_a_screen_says_it_in_plain_words(place: str, words: str) -> None:
    assert words in (SOURCE / place).read_text()


def test_no_screen_says_what_people_did_not_understand() -> None:
    found = [
        (path.name, words)
        for suffix in ("*.py", "*.js", "*.html", "*.json")
        for path in SOURCE.rglob(suffix)
        for words in GIVEN_UP
        if words in path.read_text()
    ]
    assert found == []


def test_every_owed_step_and_every_failure_of_a_model_has_words() -> None:
    assert set(state_words().owes) == {each.__name__ for each in get_args(SessionEffect)}
    scripted = {"script_expectation"}  # of test models; its message says all
    assert set(state_words().failures) == set(get_args(FailureKind)) - scripted


def test_every_error_of_a_command_or_a_route_names_the_next_step() -> None:
    """A person who reads it must not have to guess."""
    kinds = {"Refused", "Unusable", "Busy", "NotSaved", "CannotDrive", "InDoubt"}
    calls = [
        (f"{file.relative_to(SOURCE)}:{node.lineno}", {each.arg for each in node.keywords})
        for place in ("cli", "gateway", "home", "assembly")
        for file in (SOURCE / place).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds
    ]
    assert len(calls) > 100
    assert [where for where, given in calls if not given & {"hint", None}] == []
