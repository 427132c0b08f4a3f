"""
The whole output of a call that has ended, kept beside the journal. The outcome counts more: a disk
that has no room for the output does not leave a finished call in doubt.
"""

import logging

from holdfast.errors import NotSaved, Refused
from holdfast.runtime.ledger.ledger import Ledger

_log = logging.getLogger("holdfast.runtime")
_NOT_KEPT = "\n[the whole output could not be kept ({code}); this text is all that is left of it]"


async def keep_if_possible(ledger: Ledger, full: bytes | None, text: str) -> tuple[str | None, str]:
    """Return the output's digest, or None, and the text that the outcome is recorded with."""
    if full is None:
        return None, text
    try:
        return await ledger.journal.keep_output(full), text
    except (NotSaved, Refused) as exc:
        _log.warning("%s: an output was not kept: %s", ledger.session, exc.message)
        return None, text + _NOT_KEPT.format(code=exc.code)
