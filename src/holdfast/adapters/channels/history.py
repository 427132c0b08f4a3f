"""Shared by platforms that are asked for the messages that came, now or while nobody listened."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

OVERLAP_SECONDS = 600.0
"""
A place without a session is read from this long before the newest known message. A server that
died while it took up missed messages has taken some of them, and the journal knows which.
"""
_TRIES, _AGAIN_SECONDS = 10, 2.0
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""From a payload of another shape than the platform documents."""
log = logging.getLogger("holdfast.channels")
T = TypeVar("T")


async def read_patiently(read: Callable[[], Awaitable[T]], what: str) -> T | None:
    """
    Return what a platform lists, after waiting as long as it asks for. After an error that stays,
    return None and write a line to the log: messages may be missing.
    """
    for number in range(1, _TRIES + 1):
        try:
            return await read()
        except (NotDelivered, DeliveryInDoubt) as exc:
            if (isinstance(exc, NotDelivered) and not exc.may_pass) or number == _TRIES:
                log.warning("%s: messages that were missed can't be read: %s", what, exc)
                return None
            await asyncio.sleep(max(_AGAIN_SECONDS, getattr(exc, "wait_seconds", 0.0)))
    raise AssertionError  # the last try returns
