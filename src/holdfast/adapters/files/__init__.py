"""A home as files in one folder: the store that needs no server. Open it with `FileStore.open`."""

from holdfast.adapters.files.store import FileStore

__all__ = ["FileStore"]
