"""A home as files in one folder: the store that needs no server. `FileStore.open` is the way in."""

from holdfast.adapters.files.store import FileStore

__all__ = ["FileStore"]
