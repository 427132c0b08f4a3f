"""
Tools that only look at files: read one, list a folder, search below one. Bounded in bytes, entries and time to match.

Every file is opened by descriptor along a path without links. The Holdfast home is stepped over even where a searched folder
contains it. Searching is for plain text, so its cost is linear in what is read, whatever the pattern.
"""

import os
import stat
from collections.abc import Iterator

from holdfast import limits
from holdfast.adapters.tools.arguments import REQUIRED, ArgumentTypes
from holdfast.adapters.tools.builtin import Builtin, Look, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.home_guard import Guarded
from holdfast.adapters.tools.paths import HARD_DENY, Place, check_path, locate, open_file, open_folder
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.plan import Binding
from holdfast.session.rendering import framed, render, render_argument

_ENTRIES_MAX = 2000  # of one folder; a model can't use more, and the rest is counted
_SEARCH_FILES_MAX = 20_000
_SEARCH_BYTES_MAX = 256 * limits.MIB
_SEARCH_FILE_BYTES_MAX = 8 * limits.MIB  # larger files are data, not text somebody wrote
_SEARCH_HITS_MAX = 200
_SEARCH_DEPTH_MAX = 64
_LINE_CHARS_MAX = 300
_PATTERN_CHARS_MAX = 1000
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_SKIPPED_FOLDERS = frozenset({".git"})


def read_file() -> Builtin:
    types = ArgumentTypes("read_file", {"path": (str, REQUIRED)})
    definition = definition_of(
        "read_file",
        "Read a text file. The path is relative to the workspace, or absolute.",
        types,
        contract="pure",
        mode="auto",
        kind="read_file",
        audience="team",
    )
    return Builtin(definition, types, check=_check_path, look=_look_at("read", "file"), work=_read)


def list_files() -> Builtin:
    types = ArgumentTypes("list_files", {"path": (str, ".")})
    definition = definition_of(
        "list_files",
        "List the entries of one folder, folders with a trailing slash, files with their size in bytes.",
        types,
        contract="pure",
        mode="auto",
        kind="read_file",
        audience="team",
    )
    return Builtin(definition, types, check=_check_path, look=_look_at("list", "folder"), work=_list)


def search_files() -> Builtin:
    types = ArgumentTypes("search_files", {"pattern": (str, REQUIRED), "path": (str, ".")})
    definition = definition_of(
        "search_files",
        "Find lines that contain a plain text (not a regular expression) in the files below a folder, .git left out.",
        types,
        contract="pure",
        mode="auto",
        kind="read_file",
        audience="team",
    )
    return Builtin(definition, types, check=_check_search, look=_look_at("search", "folder"), work=_search)


def _check_path(values: Values) -> None:
    check_path(values["path"])


def _check_search(values: Values) -> None:
    check_path(values["path"])
    pattern = values["pattern"]
    if not pattern or "\n" in pattern or len(pattern) > _PATTERN_CHARS_MAX:
        raise InvalidArguments(f"pattern must be one line of text, 1 to {_PATTERN_CHARS_MAX} characters")


def _look_at(verb: str, what: str) -> Look:
    def look(values: Values, scene: Scene) -> Binding:
        place = locate(values["path"], scene)
        _try_to_open(place, what)
        shown = render(place.path)
        pattern = values.get("pattern")
        wanted = None if pattern is None else render_argument(pattern)
        display = display_of([f"{verb} the {what}", framed(shown.text), *(() if wanted is None else ("for lines that contain", framed(wanted.text)))])
        warnings = (*shown.warnings, *(() if wanted is None else wanted.warnings))
        return Binding(display=display, reach=place.reach, path=place.path, warnings=warnings)

    return look


def _try_to_open(place: Place, what: str) -> None:
    """
    Opened and closed again: what can't be opened is refused before anyone is asked. Outside the workspace only what is never allowed is:
    whether anything is there, and what, is for the person to say, so the model is told after they were asked.
    """
    try:
        os.close(open_file(place.path, place.guard) if what == "file" else open_folder(place.path, place.guard))
    except CannotBind as exc:
        if place.reach == "workspace" or exc.code == HARD_DENY:
            raise


def _bound_place(values: Values, binding: Binding, scene: Scene) -> Place:
    place = locate(values["path"], scene)
    if place.path != binding.path:
        raise ToolFailed(f"{values['path']} leads elsewhere than it did when this was decided")
    return place


def _read(values: Values, binding: Binding, scene: Scene) -> str:
    place = _bound_place(values, binding, scene)
    fd = open_file(place.path, place.guard)
    with os.fdopen(fd, "rb") as file:
        raw = file.read(limits.TOOL_OUTPUT_KEPT_BYTES + 1)
        size = os.fstat(file.fileno()).st_size
    if b"\0" in raw[: 64 * limits.KIB]:
        return f"{place.path} is a binary file of {size} bytes"
    if len(raw) > limits.TOOL_OUTPUT_KEPT_BYTES:
        raise ToolFailed(f"{place.path} has more than {limits.TOOL_OUTPUT_KEPT_BYTES} bytes; search it, or read it in parts with the shell")
    return raw.decode("utf-8", errors="replace")


def _list(values: Values, binding: Binding, scene: Scene) -> str:
    place = _bound_place(values, binding, scene)
    fd = _readable(open_folder(place.path, place.guard))
    try:
        names = sorted(os.listdir(fd))  # noqa: PTH208  by descriptor
        lines = [_entry(name, fd) for name in names[:_ENTRIES_MAX]]
    finally:
        os.close(fd)
    if len(names) > _ENTRIES_MAX:
        lines.append(f"[and {len(names) - _ENTRIES_MAX} more]")
    return "\n".join(lines) or "[empty]"


def _entry(name: str, folder_fd: int) -> str:
    shown = _plain_name(name)
    try:
        facts = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return shown
    if stat.S_ISDIR(facts.st_mode):
        return f"{shown}/"
    if stat.S_ISLNK(facts.st_mode):
        return f"{shown} -> {_plain_name(os.readlink(name, dir_fd=folder_fd))}"
    return f"{shown} ({facts.st_size})" if stat.S_ISREG(facts.st_mode) else f"{shown} (special)"


def _search(values: Values, binding: Binding, scene: Scene) -> str:
    place = _bound_place(values, binding, scene)
    needle = values["pattern"].encode()
    hits: list[str] = []
    files = read_bytes = 0
    for name, fd in _files_below(_readable(open_folder(place.path, place.guard)), place.guard):
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = b"" if size > _SEARCH_FILE_BYTES_MAX else file.read(_SEARCH_FILE_BYTES_MAX)
        files += 1
        read_bytes += len(raw)
        if needle in raw and b"\0" not in raw[: 64 * limits.KIB]:
            hits += _hits(name, raw, needle, limit=_SEARCH_HITS_MAX + 1 - len(hits))
        if len(hits) > _SEARCH_HITS_MAX:
            return "\n".join([*hits[:_SEARCH_HITS_MAX], f"[stopped after {_SEARCH_HITS_MAX} lines]"])
        if files >= _SEARCH_FILES_MAX or read_bytes >= _SEARCH_BYTES_MAX:
            return "\n".join([*hits, f"[stopped after {files} files, {read_bytes} bytes]"])
    return "\n".join(hits) or f"[nothing found in {files} files]"


def _hits(name: str, raw: bytes, needle: bytes, *, limit: int) -> list[str]:
    found: list[str] = []
    number, start = 1, 0
    while len(found) < limit:
        at = raw.find(needle, start)
        if at < 0:
            break
        begin = raw.rfind(b"\n", 0, at) + 1
        end = raw.find(b"\n", at)
        end = len(raw) if end < 0 else end
        number += raw.count(b"\n", start, begin)
        line = raw[begin:end].decode("utf-8", errors="replace").rstrip("\r")
        found.append(f"{name}:{number}: {line[:_LINE_CHARS_MAX]}")
        start = end  # on the newline itself: counted with the next hit
    return found


def _files_below(root_fd: int, guard: Guarded | None) -> Iterator[tuple[str, int]]:
    """(name below the root, descriptor that the caller closes), in order of names. Links are not followed, the home not entered."""
    stack: list[tuple[str, int, list[str]]] = [("", root_fd, [])]
    try:
        stack[0][2].extend(_last_first(root_fd))
        while stack:
            prefix, folder_fd, names = stack[-1]
            if not names:
                os.close(folder_fd)
                stack.pop()
                continue
            name = names.pop()
            try:
                facts = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    if name in _SKIPPED_FOLDERS or len(stack) >= _SEARCH_DEPTH_MAX:
                        continue
                    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
                    stack.append((f"{prefix}{_plain_name(name)}/", fd, []))  # whatever happens now, it is closed
                    if guard is None or not guard.holds(fd):
                        stack[-1][2].extend(_last_first(fd))
                elif stat.S_ISREG(facts.st_mode):
                    yield f"{prefix}{_plain_name(name)}", os.open(name, _READ_FLAGS, dir_fd=folder_fd)
            except OSError:
                continue  # gone, or not ours to read
    finally:
        for _, fd, _ in stack:
            os.close(fd)


def _last_first(folder_fd: int) -> list[str]:
    """Names to be taken from the end."""
    return sorted(os.listdir(folder_fd), reverse=True)


def _readable(path_fd: int) -> int:
    """The same folder, opened for listing."""
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_fd)
    except OSError as exc:
        raise CannotBind((exc.strerror or str(exc)).lower()) from exc
    finally:
        os.close(path_fd)


def _plain_name(name: str) -> str:
    """A file's name may be any bytes; what we say is text."""
    return render(os.fsencode(name).decode("utf-8", errors="backslashreplace")).text
