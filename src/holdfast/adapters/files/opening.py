"""
`open` has two meanings: on the class it opens a home (`await FileStore.open(path)`), on a store it
opens a session (`await store.open(session)`).

The port names the second, and every caller expects the first.
"""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, overload

from holdfast.adapters.filesystems import MagicOf
from holdfast.ids import SessionId
from holdfast.ports.clock import Clock

if TYPE_CHECKING:
    from holdfast.adapters.files.session.journal import FileJournal
    from holdfast.adapters.files.store import FileStore


class HomeOptions(TypedDict, total=False):
    """Options for opening a home; `FileStore` has the defaults."""

    clock: Clock | None
    segment_bytes: int
    lock_wait_seconds: float
    allow_network_filesystem: bool
    magic_of: MagicOf


class OpenHome(Protocol):
    def __call__(
        self, path: Path, **options: Unpack[HomeOptions]
    ) -> "Coroutine[Any, Any, FileStore]": ...


class OpenSession(Protocol):
    def __call__(self, session: SessionId) -> "Coroutine[Any, Any, FileJournal]": ...


class HomeOrSession:
    """The descriptor behind `FileStore.open`."""

    @overload
    def __get__(self, store: None, owner: "type[FileStore]") -> OpenHome: ...
    @overload
    def __get__(self, store: "FileStore", owner: "type[FileStore]") -> OpenSession: ...
    def __get__(
        self, store: "FileStore | None", owner: "type[FileStore]"
    ) -> OpenHome | OpenSession:
        return owner.open_home if store is None else store.open_journal
