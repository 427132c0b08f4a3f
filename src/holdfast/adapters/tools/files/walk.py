"""
Walks the files below an open folder: by descriptors, without links, and bounded.

The bounds are on files, names, bytes, depth and time. The walk skips the Holdfast home, also where
a searched folder contains it. It skips virtual file systems (/proc, /sys, /dev and similar): the
kernel generates their entries without end, and reading one may act. The notes of a walk name the
skipped folders.
"""

import itertools
import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from holdfast import limits
from holdfast.adapters.filesystems import filesystem_magic
from holdfast.adapters.tools.files.home_links import is_linked_into
from holdfast.adapters.tools.home_guard import GuardedHome
from holdfast.session.view.safe_text import render_line

FILES_MAX = 20_000
ENTRIES_MAX = 200_000  # of all folders of a walk
NAMES_MAX = 100_000  # of one folder
BYTES_MAX = 256 * limits.MIB
SECONDS_MAX = 30.0
_DEPTH_MAX = 64
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SKIPPED_FOLDERS = frozenset({".git"})
_LEFT_OUT_SHOWN = 5

# From linux/magic.h: file systems whose files the kernel generates.
_MADE_UP = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x1CD1: "devpts",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x73636673: "securityfs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
    0xCAFE4A11: "bpf",
    0x6165676C: "pstore",
    0xDE5E81E4: "efivarfs",
    0x62656570: "configfs",
    0xF97CFF8C: "selinuxfs",
    0x43415D53: "smackfs",
    0x958458F6: "hugetlbfs",
    0x42494E4D: "binfmt_misc",
    0x19800202: "mqueue",
    0x65735543: "fusectl",
    0x6E736673: "nsfs",
    0x67596969: "rpc_pipefs",
    0x0187: "autofs",
    0x7655821: "resctrl",
    0x6C6F6F70: "binderfs",
}


def made_up_kind(folder_fd: int) -> str | None:
    """Return the kind of a virtual file system, or None for a file system of real files."""
    kind = _MADE_UP.get(filesystem_magic(folder_fd) or 0)
    return kind or ("device" if _is_devices(os.fstat(folder_fd).st_dev) else None)


def _is_devices(device: int) -> bool:
    """Return whether it is the file system of /dev, whose magic number equals that of any tmpfs."""
    try:
        return device == os.stat("/dev").st_dev != os.stat("/").st_dev  # noqa: PTH116
    except OSError:
        return False


def names_in(folder_fd: int) -> tuple[list[str], bool]:
    """Return the sorted names in a folder, and whether they are complete."""
    with os.scandir(folder_fd) as entries:
        found = [entry.name for entry in itertools.islice(entries, NAMES_MAX + 1)]
    return sorted(found[:NAMES_MAX]), len(found) <= NAMES_MAX


def plain_name(name: str) -> str:
    """Return printable text: a file's name may be any bytes."""
    return render_line(os.fsencode(name).decode("utf-8", errors="backslashreplace")).text


class _Folder(NamedTuple):
    prefix: str
    fd: int
    device: int
    names: list[str]  # taken from the end


class FileWalk:
    """One walk. It owns and closes the descriptor of its root."""

    def __init__(self, root_fd: int, guard: GuardedHome | None) -> None:
        self._guard = guard
        self._stack = [_Folder("", root_fd, os.fstat(root_fd).st_dev, [])]
        self._deadline = time.monotonic() + SECONDS_MAX
        self._entries = 0
        self._left_out: list[str] = []
        self._stopped = ""
        self.count = 0
        self.bytes_read = 0  # updated by the caller, who reads the files

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield (name below the root, descriptor that the caller closes), in order of names."""
        try:
            self._list(self._stack[0])
            while self._stack and not self._is_enough():
                folder = self._stack[-1]
                if not folder.names:
                    os.close(folder.fd)
                    self._stack.pop()
                    continue
                name = folder.names.pop()
                try:
                    fd = self._opened(folder, name)
                except OSError:
                    continue  # gone, or not readable
                if fd is not None:
                    self.count += 1
                    yield folder.prefix + plain_name(name), fd
        finally:
            for folder in self._stack:
                os.close(folder.fd)
            self._stack.clear()

    def notes(self) -> list[str]:
        """Return where the walk stopped, and the skipped folders."""
        shown = ", ".join(self._left_out[:_LEFT_OUT_SHOWN])
        hidden = len(self._left_out) - _LEFT_OUT_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        return [*filter(None, [self._stopped]), *([f"[left out: {shown}{more}]"] if shown else [])]

    def _is_enough(self) -> bool:
        if self.count >= FILES_MAX or self.bytes_read >= BYTES_MAX or self._entries >= ENTRIES_MAX:
            said = f"{self.count} files, {self.bytes_read} bytes, {self._entries} names"
            self._stopped = f"[stopped after {said}]"
        elif time.monotonic() >= self._deadline:
            said = f"{self.count} files, {self.bytes_read} bytes"
            self._stopped = f"[stopped after {SECONDS_MAX:g} s: {said}]"
        return bool(self._stopped)

    def _opened(self, folder: _Folder, name: str) -> int | None:
        """Return a file's descriptor. Put a folder on the stack instead."""
        mode = os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            self._enter(folder, name)
            return None
        if not stat.S_ISREG(mode):
            return None
        fd = os.open(name, _READ_FLAGS, dir_fd=folder.fd)
        facts = os.fstat(fd)
        in_home = self._guard is not None and is_linked_into(self._guard, facts)
        if stat.S_ISREG(facts.st_mode) and not in_home:
            return fd
        os.close(fd)
        return None

    def _enter(self, above: _Folder, name: str) -> None:
        if name in _SKIPPED_FOLDERS:
            return
        path = f"{above.prefix}{plain_name(name)}/"
        if len(self._stack) >= _DEPTH_MAX:
            self._left_out.append(f"{path} (deeper than {_DEPTH_MAX} folders)")
            return
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=above.fd)
        folder = _Folder(path, fd, os.fstat(fd).st_dev, [])
        self._stack.append(folder)  # from here on `files` closes it, even after an error
        kind = made_up_kind(fd) if folder.device != above.device else None
        if kind is not None:
            self._left_out.append(f"{path} ({kind} file system)")
        elif self._guard is None or not self._guard.holds(fd):
            self._list(folder)

    def _list(self, folder: _Folder) -> None:
        names, is_all = names_in(folder.fd)
        self._entries += len(names)
        folder.names.extend(reversed(names))
        if not is_all:
            where = folder.prefix or "./"
            self._left_out.append(f"{where} (all names after the first {NAMES_MAX})")
