"""
Tools that only read: read a file, list a folder, search below a folder. They are bounded in bytes,
entries and time, and the result says where they stopped.

A path is resolved once, when the call is bound. The work opens that resolved path by descriptors,
from the workspace down and without links. The search looks for plain text, so its cost is linear in
the bytes read, for every pattern.
"""

import os
import stat

from holdfast import limits
from holdfast.adapters.tools.builtin.base import Bind, Builtin, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.files.walk import FileWalk, made_up_kind, names_in, plain_name
from holdfast.adapters.tools.paths import (
    HARD_DENY,
    PathTarget,
    bound_place,
    check_path,
    identity_of,
    locate,
    open_file,
    open_folder,
)
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import framed, render_argument, render_line

_ENTRIES_MAX = 2000  # of one folder; a model cannot use more, and the rest is only counted
_SEARCH_FILE_BYTES_MAX = 8 * limits.MIB  # larger files are data, not text that a person wrote
_SEARCH_HITS_MAX = 200
_LINE_CHARS_MAX = 300
_PATTERN_CHARS_MAX = 1000


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
    return Builtin(definition, types, check=_check_path, bind=_binder("read", "file"), work=_read)


def list_files() -> Builtin:
    types = ArgumentTypes("list_files", {"path": (str, ".")})
    definition = definition_of(
        "list_files",
        "List the entries of one folder, folders with a trailing slash, files with their size in "
        "bytes.",
        types,
        contract="pure",
        mode="auto",
        kind="read_file",
        audience="team",
    )
    return Builtin(definition, types, check=_check_path, bind=_binder("list", "folder"), work=_list)


def search_files() -> Builtin:
    types = ArgumentTypes("search_files", {"pattern": (str, REQUIRED), "path": (str, ".")})
    definition = definition_of(
        "search_files",
        "Find lines that contain a plain text (not a regular expression) in the files below a "
        "folder, .git left out.",
        types,
        contract="pure",
        mode="auto",
        kind="read_file",
        audience="team",
    )
    return Builtin(
        definition, types, check=_check_search, bind=_binder("search", "folder"), work=_search
    )


def _check_path(values: Values) -> None:
    check_path(values["path"])


def _check_search(values: Values) -> None:
    check_path(values["path"])
    pattern = values["pattern"]
    if not pattern or "\n" in pattern or len(pattern) > _PATTERN_CHARS_MAX:
        raise InvalidArguments(
            f"pattern must be one line of text, 1 to {_PATTERN_CHARS_MAX} characters"
        )


def _binder(verb: str, what: str) -> Bind:
    def bind(values: Values, scene: Scene) -> Binding:
        place = locate(values["path"], scene)
        bound = _try_to_open(place, what)
        shown = render_line(place.path)
        pattern = values.get("pattern")
        wanted = None if pattern is None else render_argument(pattern)
        display = display_of(
            [
                f"{verb} the {what}",
                framed(shown.text),
                *(() if wanted is None else ("for lines that contain", framed(wanted.text))),
            ]
        )
        warnings = (*shown.warnings, *(() if wanted is None else wanted.warnings))
        return Binding(
            display=display, reach=place.reach, path=place.path, scripts=bound, warnings=warnings
        )

    return bind


def _try_to_open(place: PathTarget, what: str) -> tuple[str, ...]:
    """
    Open and close the target, so that an impossible call is refused before anybody is asked.

    Outside the workspace, only a hard deny is raised here. The model learns whether something
    exists there only after a person was asked.

    Return the facts that an approval of an outside path is bound to: the folder's device and inode.
    Inside the workspace, the workspace itself is bound.
    """
    try:
        if what == "file":
            os.close(open_file(place))
        else:
            os.close(_open_to_walk(place))
    except CannotBind as exc:
        if place.reach == "workspace" or exc.code == HARD_DENY:
            raise
    return _folder_of(place, what) if place.reach == "outside" else ()


def _folder_of(place: PathTarget, what: str) -> tuple[str, ...]:
    path = os.path.dirname(place.path) if what == "file" else place.path  # noqa: PTH120  text
    try:
        fd = open_folder(path, place.guard)
    except CannotBind:
        return ("no folder",)
    try:
        return (f"folder {identity_of(os.fstat(fd))}",)
    finally:
        os.close(fd)


def _bound(binding: Binding, scene: Scene, what: str) -> PathTarget:
    """
    Return the bound place by the path in the prompt, not by the requested path. Links in the
    requested path may lead elsewhere by now.
    """
    place = bound_place(binding, scene)
    if place.reach == "outside" and _folder_of(place, what) != binding.scripts:
        raise ToolFailed(
            f"{place.path}: another folder took the place of the one that was there when this was "
            "decided"
        )
    return place


def _open_to_walk(place: PathTarget) -> int:
    """Open a folder for listing. A folder on a virtual file system is refused for everybody."""
    fd = _readable(open_folder(place.path, place.guard, place.root))
    kind = made_up_kind(fd)
    if kind is not None:
        os.close(fd)
        raise CannotBind(
            f"{place.path} lies on a {kind} file system, which tools do not walk", code=HARD_DENY
        )
    return fd


def _read(values: Values, binding: Binding, scene: Scene) -> str:
    del values  # only the path in the prompt counts
    place = _bound(binding, scene, "file")
    with os.fdopen(open_file(place), "rb") as file:
        raw = file.read(limits.TOOL_OUTPUT_KEPT_BYTES + 1)
        size = os.fstat(file.fileno()).st_size
    if b"\0" in raw[: 64 * limits.KIB]:
        return f"{place.path} is a binary file of {size} bytes"
    if len(raw) > limits.TOOL_OUTPUT_KEPT_BYTES:
        raise ToolFailed(
            f"{place.path} has more than {limits.TOOL_OUTPUT_KEPT_BYTES} bytes; search it, or read "
            "it in parts with the shell"
        )
    return raw.decode("utf-8", errors="replace")


def _list(values: Values, binding: Binding, scene: Scene) -> str:
    del values
    fd = _open_to_walk(_bound(binding, scene, "folder"))
    try:
        names, is_all = names_in(fd)
        lines = [_entry(name, fd) for name in names[:_ENTRIES_MAX]]
    finally:
        os.close(fd)
    if not is_all:
        lines.append(f"[stopped after {len(names)} names; the folder has more]")
    elif len(names) > _ENTRIES_MAX:
        lines.append(f"[and {len(names) - _ENTRIES_MAX} more]")
    return "\n".join(lines) or "[empty]"


def _entry(name: str, folder_fd: int) -> str:
    shown = plain_name(name)
    try:
        facts = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return shown
    if stat.S_ISDIR(facts.st_mode):
        return f"{shown}/"
    if stat.S_ISLNK(facts.st_mode):
        return f"{shown} -> {plain_name(os.readlink(name, dir_fd=folder_fd))}"
    return f"{shown} ({facts.st_size})" if stat.S_ISREG(facts.st_mode) else f"{shown} (special)"


def _search(values: Values, binding: Binding, scene: Scene) -> str:
    place = _bound(binding, scene, "folder")
    needle = values["pattern"].encode()
    hits: list[str] = []
    walk = FileWalk(_open_to_walk(place), place.guard)
    for name, fd in walk.files():
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = b"" if size > _SEARCH_FILE_BYTES_MAX else file.read(_SEARCH_FILE_BYTES_MAX)
        walk.bytes_read += len(raw)
        if needle in raw and b"\0" not in raw[: 64 * limits.KIB]:
            hits += _hits(name, raw, needle, limit=_SEARCH_HITS_MAX + 1 - len(hits))
        if len(hits) > _SEARCH_HITS_MAX:
            return "\n".join(
                [*hits[:_SEARCH_HITS_MAX], f"[stopped after {_SEARCH_HITS_MAX} lines]"]
            )
    nothing = [] if hits else [f"[nothing found in {walk.count} files]"]
    return "\n".join([*hits, *nothing, *walk.notes()])


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
        start = end  # on the newline itself, which is counted with the next hit
    return found


def _readable(path_fd: int) -> int:
    """Reopen the same folder for listing."""
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_fd)
    except OSError as exc:
        raise CannotBind((exc.strerror or str(exc)).lower()) from exc
    finally:
        os.close(path_fd)
