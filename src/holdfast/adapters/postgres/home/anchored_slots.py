"""
The list of journals that this node has an anchor of, as one bit for each slot, under the node's
key.

A cell of zeros means that the node never saw the journal, or that somebody wiped the cell. The list
tells the two apart. A bit is set after its cell is durable, and before the first record there is
acknowledged: a crash between the two leaves a cell without a bit, which counts as an anchor too.

The caller holds the lock of the node's anchors.
"""

import os
import uuid
from collections.abc import Iterable, Mapping

from blake3 import blake3

from holdfast.adapters.files.home.anchor_tables import ANCHORS
from holdfast.adapters.files.paths import create_whole, make_folder, open_folder, read_file
from holdfast.journal.chain import subkey

_LIST = "_seen"
_MAC_BYTES = 32
_LIST_BYTES_MAX = 1 << 24  # 134 million sessions


class AnchoredSlots:
    """The home's own journal has the slot -1."""

    def __init__(self, home: int, keys: Mapping[int, bytes]) -> None:
        self._home, self._keys = home, keys
        self._bits = bytearray()
        self._looked_at: tuple[int, int, int] | None = None  # the file that the bits are from

    def create(self) -> None:
        """Begin an empty list, for a folder that becomes a new node."""
        self._bits = bytearray()
        self._write()

    def is_whole(self) -> bool:
        """Read the list if it changed. False: it is missing, or is not what this node wrote."""
        name = f"{ANCHORS}/{_LIST}"
        try:
            status = os.stat(name, dir_fd=self._home, follow_symlinks=False)
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if stamp == self._looked_at:
                return True
            data = read_file(self._home, name, bytes_max=_LIST_BYTES_MAX)
        except (FileNotFoundError, ValueError):
            return False
        mac, bits = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if mac != self._mac(bits):
            return False
        self._bits, self._looked_at = bytearray(bits), stamp
        return True

    def has(self, slot: int) -> bool:
        """Whether the node has an anchor in this slot. Without a whole list, it has every one."""
        return not self.is_whole() or self._is_set(slot)

    def add(self, slots: Iterable[int]) -> None:
        """Add slots whose cells are durable. A list that was damaged meanwhile is written anew."""
        missing = [slot for slot in slots if not self._is_set(slot)]
        if not missing:
            return
        self.is_whole()
        for slot in missing:
            byte, bit = divmod(slot + 1, 8)
            if byte >= len(self._bits):
                self._bits.extend(bytes(byte + 1 - len(self._bits)))
            self._bits[byte] |= 1 << bit
        self._write()

    def _is_set(self, slot: int) -> bool:
        byte, bit = divmod(slot + 1, 8)
        return byte < len(self._bits) and bool(self._bits[byte] >> bit & 1)

    def _write(self) -> None:
        make_folder(self._home, ANCHORS)
        folder = open_folder(self._home, ANCHORS)
        try:
            temporary = f".{_LIST}.{uuid.uuid4().hex}.tmp"
            data = self._mac(self._bits) + self._bits
            create_whole(folder, _LIST, data, temporary=temporary)
        finally:
            os.close(folder)

    def _mac(self, bits: bytes | bytearray) -> bytes:
        return blake3(bytes(bits), key=subkey(self._keys[1], "anchored slots", "", "")).digest()
