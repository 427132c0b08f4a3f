"""The generated page says what the tables say."""

from pathlib import Path

from proof.generated_docs.state_machine import document

from holdfast.session.state import Phase
from holdfast.session.transitions import PHASE_SENTENCES, TRANSITIONS

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "state-machine.md"


def test_the_committed_page_is_what_the_tables_give() -> None:
    """Regenerate with `python -m proof.generated_docs.state_machine > docs/internals/state-machine.md`."""
    assert PAGE.read_text() == document()


def test_every_phase_has_a_sentence_and_a_way_in_and_on() -> None:
    """No phase is unexplained, unreachable or without a way on."""
    assert set(PHASE_SENTENCES) == set(Phase)
    assert {Phase.READY, *(after for all_ in TRANSITIONS.values() for after in all_)} == set(Phase)
    assert {before for before, _ in TRANSITIONS} == set(Phase) - {Phase.ENDED}
