"""
A private copy of a script, or of its folder: the approved bytes.

The files are read through descriptors that follow no link, and the digest is computed from the
bytes that were read. Bubblewrap writes the same bytes into a read-only folder of the command's own
view. So renaming or rewriting files in the workspace does not change the code that runs.
"""

import os
import posixpath
import stat
from collections.abc import Callable, Iterator

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.adapters.tools.home_guard import GuardedHome
from holdfast.adapters.tools.paths import PathTarget, open_file, open_folder

FOLDER = "/run/holdfast/bound"  # in the view of an isolated command
FILES_MAX = 128  # each is a descriptor for a moment
BYTES_MAX = 4 * limits.MIB
_DEPTH_MAX = 8
_ROUNDS_MAX = 20
_SKIPPED = frozenset({".git", ".hg", ".svn", "__pycache__"})  # no interpreter looks there for text
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class TooMuch(Exception):
    """The folder cannot be copied. The message is for the approver."""


class Copied(msgspec.Struct, frozen=True):
    """One file by its path in the folder. A link has a target and no bytes."""

    name: str
    data: bytes = b""
    is_executable: bool = False
    target: str | None = None


class ScriptCopy(msgspec.Struct, frozen=True, kw_only=True):
    folder: str  # canonical, on the host
    files: tuple[Copied, ...]
    digest: str

    def __str__(self) -> str:
        return f"copy of {self.folder} {self.digest}"

    def data_of(self, name: str) -> bytes | None:
        return next(
            (each.data for each in self.files if each.name == name and not each.target), None
        )


Needed = Callable[[str, bytes], frozenset[str]]
"""Which modules of its own folder a file loads, by its name and text."""


def copy_with_modules(path: str, guard: GuardedHome | None, needed: Needed) -> ScriptCopy:
    """
    Read a script with the modules that it loads from its folder, and the modules that those load.
    """
    wanted = frozenset({os.path.basename(path)})  # noqa: PTH119  text
    for _ in range(_ROUNDS_MAX):
        copy = copy_script(path, guard, only=wanted)
        more = wanted.union(*(needed(each.name, each.data) for each in copy.files))
        if more == wanted:
            return copy
        wanted = more
    raise TooMuch(f"its modules load one another more than {_ROUNDS_MAX} deep")


def copy_script(
    path: str, guard: GuardedHome | None, *, alone: bool = False, only: frozenset[str] | None = None
) -> ScriptCopy:
    """
    Read a script `alone`, with its whole folder, or with `only` some entries of its folder.

    `path` is canonical. An entry is named with or without `.py`. Raise TooMuch if the folder is too
    large or leads outside, and CannotBind for the home.
    """
    folder, name = os.path.split(path)
    if alone:
        fd = open_file(PathTarget(path=path, reach="outside", guard=guard))
        try:
            files: tuple[Copied, ...] = (_read(fd, name, BYTES_MAX),)
        finally:
            os.close(fd)
    else:
        top = open_folder(folder, guard)
        try:
            files = tuple(sorted(_files(top, only), key=lambda each: each.name))
        except OSError as exc:
            raise TooMuch(f"{folder} can't be read: {exc.strerror}") from exc
        finally:
            os.close(top)
    hasher = blake3()
    for each in files:
        hasher.update(msgspec.msgpack.encode(each))
    return ScriptCopy(folder=folder, files=files, digest=hasher.hexdigest())


def copy_words(copies: tuple[ScriptCopy, ...]) -> tuple[list[str], list[bytes]]:
    """
    Return bubblewrap's arguments, with `{file:N}` for descriptor N, and the content of each
    descriptor.
    """
    if not copies:
        return [], []
    words = ["--perms", "0755", "--tmpfs", FOLDER]
    data: list[bytes] = []
    for number, copy in enumerate(copies):
        for each in copy.files:
            place = f"{FOLDER}/{number}/{each.name}"
            if each.target is not None:
                words += ["--symlink", each.target, place]
                continue
            mode = "0555" if each.is_executable else "0444"
            words += ["--perms", mode, "--file", file_word(len(data)), place]
            data.append(each.data)
    return [*words, "--remount-ro", FOLDER], data


def file_word(number: int) -> str:
    return f"{{file:{number}}}"


def _files(top: int, only: frozenset[str] | None) -> Iterator[Copied]:
    """Yield all or some files below an open folder. Raise TooMuch beyond the limits."""
    stack = [(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top), "", 0)]
    count, left = 0, BYTES_MAX
    try:
        while stack:
            fd, prefix, depth = stack.pop()
            try:
                for name in sorted(os.listdir(fd)):  # noqa: PTH208  of a descriptor
                    if only is not None and not prefix and not {name, name.split(".")[0]} & only:
                        continue
                    facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    count += 1
                    if count > FILES_MAX:
                        raise TooMuch(f"its folder has more than {FILES_MAX} entries")
                    if stat.S_ISDIR(facts.st_mode):
                        if name not in _SKIPPED:
                            stack.append(
                                (_open_below(name, fd, depth), f"{prefix}{name}/", depth + 1)
                            )
                    elif stat.S_ISLNK(facts.st_mode):
                        yield _link(os.readlink(name, dir_fd=fd), prefix + name)
                    else:
                        file = os.open(name, _READ_FLAGS, dir_fd=fd)
                        try:
                            copied = _read(file, prefix + name, left)
                        finally:
                            os.close(file)
                        left -= len(copied.data)
                        yield copied
            finally:
                os.close(fd)
    finally:
        for fd, _, _ in stack:
            os.close(fd)


def _open_below(name: str, fd: int, depth: int) -> int:
    if depth >= _DEPTH_MAX:
        raise TooMuch(f"its folder is nested deeper than {_DEPTH_MAX}")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=fd)


def _link(target: str, name: str) -> Copied:
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if target.startswith("/") or leads == ".." or leads.startswith("../"):
        raise TooMuch(f"its folder has a link that leads outside: {name}")
    return Copied(name, target=target)


def _read(fd: int, name: str, bytes_max: int) -> Copied:
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        raise TooMuch(f"its folder has {name}, which is not a regular file")
    data = b""
    while chunk := os.read(fd, min(limits.MIB, bytes_max + 1 - len(data))):
        data += chunk
        if len(data) > bytes_max:
            raise TooMuch(f"its folder has more than {BYTES_MAX} bytes")
    return Copied(name, data, bool(facts.st_mode & 0o111))
