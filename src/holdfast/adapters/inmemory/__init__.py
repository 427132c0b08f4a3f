"""Everything in memory: the reference for the contract of stores, and the simulator's world."""

from holdfast.adapters.inmemory.disk import HOME, Crashed, Fault, InMemoryDisk
from holdfast.adapters.inmemory.index import InMemoryIndex
from holdfast.adapters.inmemory.journal import InMemoryClaim, InMemoryJournal
from holdfast.adapters.inmemory.memory import InMemoryMemory
from holdfast.adapters.inmemory.notifier import InMemoryNotifier
from holdfast.adapters.inmemory.store import InMemoryStore

__all__ = [
    "HOME",
    "Crashed",
    "Fault",
    "InMemoryClaim",
    "InMemoryDisk",
    "InMemoryIndex",
    "InMemoryJournal",
    "InMemoryMemory",
    "InMemoryNotifier",
    "InMemoryStore",
]
