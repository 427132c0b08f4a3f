"""
Subkeys of the home's keys, by purpose: the macs of caches, memory and job reports use them.

A long-running process follows a key rotation by any other process. Data without a valid mac is
never trusted, even if this process wrote it.
"""

import secrets
from collections.abc import Callable, Mapping

from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.journal.chain import KEY_BYTES, subkey


class DerivedKeys:
    def __init__(self, keys: Mapping[int, bytes], generation: Callable[[], int]) -> None:
        self._keys, self._generation = keys, generation
        # The index keys, derived once per newest generation. That generation never falls.
        self._known: tuple[int, tuple[bytes, ...]] | None = None

    def of_index(self) -> tuple[bytes, ...]:
        """
        Return the index keys, the newest first. Rows under an older key were ours and no longer
        count.
        """
        newest = self._generation()
        known = self._known
        if known is None or known[0] != newest or newest not in self._keys:
            older = [self._keys[each] for each in range(newest - 1, 0, -1) if each in self._keys]
            made = tuple(
                _derived(key, "index")
                for key in (self._keys.get(newest), *older)
                if key is not None
            )
            known = self._known = (
                newest,
                made if newest in self._keys else (secrets.token_bytes(KEY_BYTES), *made),
            )
        return known[1]

    def of_memory(self, generation: int | None = None) -> tuple[int, bytes] | None:
        """
        Return the generation and its key; the newest by default. Return None if the key is missing.
        """
        named = self._generation() if generation is None else generation
        try:
            return named, _derived(self._keys[named], "memory")
        except KeyError:
            return None

    def of_job(
        self, instance: str, job: str, generation: int | None = None
    ) -> tuple[int, bytes] | None:
        """
        Return the generation and the key that authenticates the report of one job of one instance.
        Return None if the key is missing.
        """
        named = self._generation() if generation is None else generation
        try:
            return named, subkey(self._keys[named], "job report", job, instance)
        except KeyError:
            return None


def _derived(key: bytes, purpose: str) -> bytes:
    return subkey(key, purpose, HOME_SESSION, HOME_INSTANCE)
