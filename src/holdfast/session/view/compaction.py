"""
Choose the part of a view to summarise, and the facts that a summary must keep. Pure:
`runtime/drive/compactor.py` calls the model.

Ended turns are taken whole, oldest first, so a call is never cut from its results. The last turns
are kept as they are. Open and parked turns are not part of the shared view and are never touched. A
turn that outgrows the window by itself is split before one of its own model answers.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal

import msgspec

from holdfast.session.state import SessionState, Turn, View
from holdfast.session.view.build import view_of
from holdfast.session.view.messages import (
    AssistantMessage,
    Message,
    NoteMessage,
    ResultMessage,
    UserMessage,
)
from holdfast.session.view.sizes import CHARS_PER_TOKEN, chars, estimated_tokens

KEEP_TURNS = 4  # kept word for word: people speak next of the latest turns
KEEP_BATCHES = 2  # of a turn that is split
FACTS_MAX = 64
FACT_CHARS_MAX = 200
SUMMARY_SHARE = 8  # a summary may take an eighth of the view's limit
SUMMARY_TOKENS_MIN = 400

Part = Literal["shared", "base", "own"]


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """
    The limits above which a view is too large. A view above `at_tokens` is summarised down to about
    half of that.
    """

    at_tokens: int | None = None
    """None: three quarters of the model's window, if that is known."""
    at_chars: int = 400_000
    """
    The limit by size, if neither is known: about 100,000 tokens, more than most models use well.
    """
    keep_turns: int = KEEP_TURNS

    def threshold(self, window_tokens: int | None) -> int:
        if self.at_tokens is not None:
            return self.at_tokens
        return self.at_chars // CHARS_PER_TOKEN if window_tokens is None else window_tokens * 3 // 4


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """
    The part to summarise: the oldest `count` turns of the shared view, the base of one turn's own
    view, or `count` messages after the turn's inputs.
    """

    part: Part
    count: int
    earlier: str | None  # the earlier summary that this one includes
    messages: tuple[Message, ...]
    size_before: int  # tokens of the whole view
    tokens_per_char: float
    compactions: int
    own_length: int = 0

    def size_after(self, summary: str) -> int:
        """
        Return the size of the whole view with this summary, in the same tokens as `size_before`.
        """
        removed = chars(self.messages) + len(self.earlier or "")
        return self.size_before - round((removed - len(summary)) * self.tokens_per_char)


def view_tokens(turn: Turn, extra_chars: int = 0) -> int:
    """
    Return the size of a call made now: the model's own count of the last one, plus the messages
    since.
    """
    if turn.tokens:
        return turn.tokens + estimated_tokens(chars(_since_last_answer(turn)))
    if turn.base.tokens:
        return turn.base.tokens + estimated_tokens(chars(turn.own))
    return estimated_tokens(turn.base.chars + chars(turn.own) + extra_chars)


def shared_tokens(view: View) -> int:
    return view.tokens or estimated_tokens(view.chars)


def _since_last_answer(turn: Turn) -> Iterable[Message]:
    return takewhile(
        lambda message: not isinstance(message, AssistantMessage), turn.own.newest_first()
    )


def plan_for_turn(
    state: SessionState, turn: Turn, *, tokens: int, goal: int, keep_turns: int
) -> Plan | None:
    """
    Plan a compaction for a call of this turn, whose view has `tokens`, so that it has about `goal`.
    Return None if no part can be summarised.
    """
    is_current = turn.base.compactions == state.view.compactions
    ratio = _ratio(tokens, chars(view_of(turn)))
    if (
        is_current
        and (plan := _plan_shared(turn.base, tokens, ratio, goal, keep_turns)) is not None
    ):
        return plan
    own_chars = chars(turn.own)
    if not is_current and len(turn.base.entries) and turn.base.chars > own_chars:
        entries = tuple(message for entry in turn.base.entries for message in entry.messages)
        return _plan(
            turn, "base", len(turn.base.entries), turn.base.summary, entries, tokens, ratio
        )
    return _plan_own(turn, tokens, ratio)


def plan_shared(state: SessionState, *, goal: int, keep_turns: int) -> Plan | None:
    """Plan a compaction that a person asks for: everything but the last turns."""
    view = state.view
    tokens = shared_tokens(view)
    return _plan_shared(view, tokens, _ratio(tokens, view.chars), goal, keep_turns)


def _ratio(tokens: int, characters: int) -> float:
    return tokens / characters if characters and tokens else 1 / CHARS_PER_TOKEN


def _plan_shared(view: View, tokens: int, ratio: float, goal: int, keep_turns: int) -> Plan | None:
    """
    Take the fewest of the oldest turns that bring the view down to the goal, and never the last
    `keep_turns`.
    """
    entries = list(view.entries)
    most = len(entries) - keep_turns
    if most < 1:
        return None
    left, count = tokens + SUMMARY_TOKENS_MIN, 0
    while count < most and (left > goal or count == 0):
        left -= round(chars(entries[count].messages) * ratio)
        count += 1
    messages = tuple(message for entry in entries[:count] for message in entry.messages)
    return Plan(
        part="shared",
        count=count,
        earlier=view.summary,
        messages=messages,
        size_before=tokens,
        tokens_per_char=ratio,
        compactions=view.compactions,
    )


def _plan_own(turn: Turn, tokens: int, ratio: float) -> Plan | None:
    own, asked = list(turn.own), len(turn.inputs)
    answers = [
        index
        for index, message in enumerate(own)
        if index > asked and isinstance(message, AssistantMessage)
    ]
    if len(answers) < KEEP_BATCHES:
        return None
    cut = answers[-KEEP_BATCHES]
    return _plan(turn, "own", cut - asked, None, tuple(own[asked:cut]), tokens, ratio)


def _plan(
    turn: Turn,
    part: Part,
    count: int,
    earlier: str | None,
    messages: tuple[Message, ...],
    tokens: int,
    ratio: float,
) -> Plan:
    return Plan(
        part=part,
        count=count,
        earlier=earlier,
        messages=messages,
        size_before=tokens,
        tokens_per_char=ratio,
        compactions=turn.base.compactions,
        own_length=len(turn.own),
    )


# --- the facts that a summary must hold

# Every repetition is bounded, and a path is searched only where one can begin: a long run of
# letters must not cost quadratic time.
_NAMES = re.compile(
    r"""
    https?://[^\s<>"'`)\]]+                            # addresses
    | (?<![\w.@~/-])(?:[\w.@~-]{0,100}/){1,50}[\w.@-]{0,100}\w  # paths
    | (?<![\w-])[\w-]{1,100}\.(?:[a-z][a-z0-9]{0,4})\b(?!\()         # file names
    | \b[A-Z][A-Z0-9]+-\d+\b                           # tickets
    | \#\d+\b
    | \b[a-z]-[a-z2-7]{16,}\b                          # our own ids
    | (?<![\w-])(?=[0-9a-f-]{0,200}\d)[0-9a-f]{7,}(?:-[0-9a-f]{4,}){0,4}\b
    """,
    re.VERBOSE,
)
_KEPT = "Kept word for word:\n"


def required_facts(plan: Plan) -> tuple[str, ...]:
    """
    Return the facts that the summary must hold. The newest are kept first: requests that failed,
    calls that were denied or whose outcome is unknown, and names.

    >>> names_in("see src/app.py and https://example.org/a, ticket OPS-12, e.g. this")
    ('src/app.py', 'https://example.org/a', 'OPS-12')
    """
    facts: dict[str, None] = {}
    earlier = plan.earlier or ""
    if _KEPT in earlier:
        facts.update(
            dict.fromkeys(
                line.removeprefix("- ")
                for line in earlier.split(_KEPT, 1)[1].splitlines()
                if line.startswith("- ")
            )
        )
    asked = ""
    for message in plan.messages:
        match message:
            case UserMessage(text=text):
                asked = text
            case NoteMessage(text=text) if text.startswith("This request "):
                _again(facts, f"{_short(asked)} ({text.removeprefix('This request ')})")
            case ResultMessage(outcome=outcome, tool=tool, call=call) if outcome in _SAID_IN_FULL:
                _again(facts, f"{tool} {call}: {outcome}")
            case _:
                pass
        for name in names_in(_said(message)):
            _again(facts, name)
    return tuple(list(facts)[-FACTS_MAX:])


_SAID_IN_FULL = frozenset({"in_doubt", "denied", "voided", "timed_out", "unattended"})


def _again(facts: dict[str, None], fact: str) -> None:
    """Move a repeated fact to the end: the fact mentioned last is dropped last."""
    facts.pop(fact, None)
    facts[fact] = None


def names_in(text: str) -> tuple[str, ...]:
    found = (match.group().rstrip(".,;:") for match in _NAMES.finditer(text))
    return tuple(
        dict.fromkeys(
            name
            for name in found
            if 3 <= len(name) <= FACT_CHARS_MAX and not _is_prose(name)  # noqa: PLR2004
        )
    )


def _is_prose(name: str) -> bool:
    """`and/or`, `e.g`: shaped like a name, but not one."""
    return name.lower() in {
        "and/or",
        "e.g",
        "i.e",
        "he/she",
        "n/a",
        "w/o",
        "either/or",
        "yes/no",
        "his/her",
        "s/he",
    }


def _said(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return " ".join((message.text, *(call.arguments for call in message.calls)))
    return message.text


def with_facts(summary: str, facts: Sequence[str]) -> str:
    """Add the facts that the summary leaves out, as a list."""
    missing = [fact for fact in facts if fact not in summary]
    if not missing:
        return summary
    return f"{summary.rstrip()}\n\n{_KEPT}" + "\n".join(f"- {each}" for each in missing)


# --- as text


def transcript(messages: Iterable[Message]) -> Iterable[str]:
    """
    Yield one text per message, for a model that summarises them. Calls and results become plain
    text.
    """
    for message in messages:
        match message:
            case UserMessage(text=text, speaker=speaker, quotes=quotes):
                quoted = "".join(f"\n  (quotes {each.speaker}: {each.text})" for each in quotes)
                yield f"{speaker or 'somebody'}: {text}{quoted}"
            case AssistantMessage(text=text, calls=calls):
                called = "".join(f"\n  (calls {each.tool} {each.arguments})" for each in calls)
                yield f"assistant: {text}{called}"
            case ResultMessage(tool=tool, outcome=outcome, text=text):
                yield f"result of {tool} ({outcome}): {text}"
            case NoteMessage(text=text):
                yield f"note: {text}"


def extract(plan: Plan, *, chars_max: int) -> str:
    """
    Make a summary without a model: the first words of each request and of each answer. The newest
    are kept if there is no room for all.
    """
    lines = []
    for message in plan.messages:
        match message:
            case UserMessage(text=text, speaker=speaker):
                lines.append(f"{speaker or 'somebody'} asked: {_short(text)}")
            case AssistantMessage(text=text, calls=calls):
                called = f" [called {', '.join(each.tool for each in calls)}]" if calls else ""
                if text or called:
                    lines.append(f"answered: {_short(text)}{called}")
            case NoteMessage(text=text):
                lines.append(_short(text))
            case ResultMessage():
                pass
    earlier = (plan.earlier or "").split(_KEPT, 1)[0].strip()
    older = [line for line in earlier.splitlines() if line and not line.startswith("(")]
    kept: list[str] = []
    room = chars_max
    for line in reversed([*older, *lines]):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left_out = len(older) + len(lines) - len(kept)
    return "\n".join(
        [*([f"({left_out} earlier lines are left out)"] if left_out else []), *reversed(kept)]
    )


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= FACT_CHARS_MAX else one_line[: FACT_CHARS_MAX - 3] + "..."
