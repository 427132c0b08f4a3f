"""Find one record of a journal by its number."""

from holdfast.ports.journal_store import Journal, Record


class _Found(Exception):
    def __init__(self, record: Record) -> None:
        self.record = record


async def record_at(journal: Journal, seq: int) -> Record | None:
    """The first record at or after `seq` that verifies."""

    def stop_at_first(record: Record) -> None:
        raise _Found(record)

    try:
        await journal.load(stop_at_first, after=seq - 1)
    except _Found as found:
        return found.record
    return None
