"""A conversation has a title: from its first message, or from a person who spoke there."""

import pytest
from proof.scenarios.teller import Teller

from holdfast.errors import Refused
from holdfast.session.commands import RenameSession
from holdfast.session.events import SessionRenamed
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.view.titles import TITLE_CHARS_MAX, checked_title, title_from_text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("restart the api", "restart the api"),
        ("\n\n  restart\tthe   api \nplease", "restart the api"),
        ("", ""),
        ("\n \t\n", ""),
        ("\u202e\u200bapi\x1b[31m", "api[31m"),
        ("x" * 200, "x" * (TITLE_CHARS_MAX - 1) + "…"),
        ("word " * 40, ("word " * 15).strip() + "…"),
        ("👩\u200d🔧 fix it", "👩\u200d🔧 fix it"),
    ],
)
def test_the_first_line_of_a_message_gives_the_title(text: str, title: str) -> None:
    assert title_from_text(text) == title
    assert len(title) <= TITLE_CHARS_MAX


@pytest.mark.parametrize("title", ["a\x00b", "a\u202eb", "a\u200bb", "x" * 81])
def test_a_title_that_could_mislead_is_refused(title: str) -> None:
    with pytest.raises(Refused, match="title") as refused:
        checked_title(title)
    assert refused.value.hint


def test_the_title_follows_the_first_message_until_a_person_gives_another() -> None:
    teller = Teller()
    teller.tell(['submit "restart the api"', "go", "says done", 'submit "and the db"'])
    pure = teller.pure
    assert pure.state.title == "restart the api"
    pure.do(RenameSession(title="  Friday   restart ", by="alice"))
    assert pure.state.title == "Friday restart"
    assert decode_state(encode_state(pure.state)) == pure.state
    pure.do(RenameSession(title="", by="alice"))
    assert pure.state.title == "restart the api"


def test_the_same_title_again_writes_nothing() -> None:
    teller = Teller()
    teller.tell(["submit x"])
    pure = teller.pure
    pure.do(RenameSession(title="Friday", by="alice"))
    pure.do(RenameSession(title="Friday", by="alice"))
    assert [each for each in pure.events() if isinstance(each, SessionRenamed)] == [
        SessionRenamed(title="Friday", by="alice")
    ]


def test_only_a_person_who_spoke_here_or_the_operator_renames() -> None:
    teller = Teller()
    teller.tell(["submit x"])
    pure = teller.pure
    refusal = pure.do(RenameSession(title="Mine", by="mallory")).refusal
    assert refusal is not None
    assert (refusal.code, bool(refusal.hint)) == ("no_authority", True)
    refusal = pure.do(RenameSession(title="\x1b", by="alice")).refusal
    assert refusal is not None
    assert refusal.code == "malformed"
    assert pure.state.title == "x"
    pure.do(RenameSession(title="Ours", by="root", may_all=True))
    assert pure.state.title == "Ours"
