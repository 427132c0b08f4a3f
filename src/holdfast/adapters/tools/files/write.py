"""
Writes a file: whole or not at all, and only the content shown in the prompt.

The prompt shows a complete diff against the current file, or the whole new content. Both are part
of the binding, so a file that changed in between voids the approval. The folder and the file are
bound too, by device and inode. The path is resolved once, for the prompt. The write descends from
the workspace by descriptors and follows no link. The new content is written to a temporary file,
synced and renamed over the old file by descriptor; then the folder is synced. A crash leaves the
old file or the new one.
"""

import contextlib
import difflib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import NamedTuple

from blake3 import blake3

from holdfast import limits
from holdfast.adapters.tools.builtin.base import Builtin, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.files.inert_files import is_inert
from holdfast.adapters.tools.paths import (
    HARD_DENY,
    PathTarget,
    bound_place,
    check_path,
    identity_of,
    lies_below,
    locate,
    open_below,
    open_folder,
)
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.ports.tools import CannotBind, Scene
from holdfast.session.authority.plan import Binding, Risk
from holdfast.session.view.safe_text import framed, render_content, render_line

_DIFF_BYTES_MAX = (
    256 * limits.KIB
)  # a larger diff takes too long to compute and does not fit a prompt


_SMALLER_STEPS = (
    "write the beginning with write_file, then replace its last line by that line and the next "
    "part with edit_file"
)


def write_file() -> Builtin:
    types = ArgumentTypes("write_file", {"path": (str, REQUIRED), "content": (str, REQUIRED)})
    definition = definition_of(
        "write_file",
        "Write a text file, replacing it whole. Its folder must exist. The path is relative to the "
        "workspace, or absolute.",
        types,
        contract="once",
        mode="ask",
        kind="write_file",
        audience="personal",
    )
    return Builtin(definition, types, check=_check, bind=_bind, work=_write)


def _check(values: Values) -> None:
    check_path(values["path"])


def _bind(values: Values, scene: Scene) -> Binding:
    place = locate(values["path"], scene)
    hindered = ""
    try:
        with open_target(place) as target:
            old, bound = target.old, target.facts()
    except CannotBind as exc:
        # Outside the workspace, the person decides whether the model learns what is there.
        if place.reach == "workspace" or exc.code == HARD_DENY:
            raise
        old, bound, hindered = None, (), str(exc)
    name = render_line(place.path)
    said, shown, warnings = _change(old, values["content"])
    hint = (render_line(f"as things are, this will fail: {hindered}").text,) if hindered else ()
    display = display_of(
        [
            said,
            framed(name.text),
            *hint,
            *_large(shown),
            "content:" if old is None else "change:",
            framed(shown),
        ],
        chars_max=limits.FILE_DISPLAY_CHARS_MAX,
        instead=_SMALLER_STEPS,
    )
    return Binding(
        display=display,
        reach=place.reach,
        path=place.path,
        scripts=bound,
        memorable=place.reach == "workspace" and is_inert(place.path, values["content"]),
        warnings=(*name.warnings, *warnings),
        risks=_risks(place, display, name.text),
    )


def _large(shown: str) -> list[str]:
    """Sum up a text that is longer than other prompts may be. The whole text follows it."""
    if len(shown) <= limits.DISPLAY_CHARS_MAX:
        return []
    lines = shown.split("\n")
    longest = max(map(len, lines))
    return [
        f"large: {len(shown)} characters in {len(lines)} lines, the longest of {longest}",
        "the whole text follows; scroll to its end before you approve",
    ]


def _risks(place: PathTarget, display: str, name: str) -> tuple[Risk, ...]:
    if place.reach == "workspace":
        return ()
    start = display.index(name)
    text = "This file lies outside the workspace."
    return (Risk(kind="outside", text=text, start=start, end=start + len(name)),)


def _change(old: bytes | None, content: str) -> tuple[str, str, tuple[str, ...]]:
    """Return (a description of the change, its full text, warnings)."""
    new = render_content(content)
    size = f"{len(content.encode())} bytes, {new.lines} line{'' if new.lines == 1 else 's'}"
    if old is None:
        return f"write a new file of {size}", new.text, new.warnings
    try:
        before = old.decode()
    except UnicodeDecodeError:
        before = "\0"
    if "\0" in before or len(old) > _DIFF_BYTES_MAX or len(content) > _DIFF_BYTES_MAX:
        return (
            f"replace a file of {len(old)} bytes that can't be compared; new content: {size}",
            new.text,
            new.warnings,
        )
    # Render first, then compare: a line with an invisible difference then differs visibly.
    lines = difflib.unified_diff(
        render_content(before).text.split("\n"),
        new.text.split("\n"),
        "now",
        "then",
        lineterm="",
        n=3,
    )
    return (
        f"change a file of {len(old)} bytes to {size}{ending_words(before, content)}",
        "\n".join(lines) or "(no change)",
        new.warnings,
    )


def ending_words(before: str, after: str) -> str:
    """Return words for a last line break that comes or goes: a diff shows it as an empty line."""
    if not before or not after or before.endswith("\n") == after.endswith("\n"):
        return ""
    if after.endswith("\n"):
        return "; with a line break at its end now"
    return "; no line break at its end any more"


class Target(NamedTuple):
    """
    An open folder and the current file under a name in it. `old` and `file` are None if there is no
    file.
    """

    place: PathTarget
    folder: int
    name: str
    old: bytes | None
    file: os.stat_result | None

    def facts(self) -> tuple[str, ...]:
        """
        Return the facts that an approval is bound to: the folder and the file by device and inode,
        and the content.
        """
        replaced = (
            "nothing"
            if self.old is None or self.file is None
            else f"{identity_of(self.file)} {blake3(self.old).hexdigest()}"
        )
        return (f"folder {identity_of(os.fstat(self.folder))}", f"replaces {replaced}")

    def check(self) -> None:
        """
        Check a last time by descriptor: the folder was not moved out of the workspace or into the
        home, and the name still means the same file.
        """
        place = self.place
        is_moved = place.root is not None and not lies_below(self.folder, place.root)
        if (
            is_moved
            or (place.guard is not None and place.guard.holds(self.folder))
            or not self._is_same_file()
        ):
            raise changed_since(place)

    def _is_same_file(self) -> bool:
        try:
            now = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return self.file is None
        return self.file is not None and identity_of(now) == identity_of(self.file)


@contextlib.contextmanager
def open_target(place: PathTarget) -> Iterator[Target]:
    """Open the file to be replaced. Anything but a regular file is refused."""
    path, name = os.path.split(place.path)
    if not name:
        raise CannotBind(f"{place.path} is a folder")
    folder = open_folder(path, place.guard, place.root)
    try:
        yield Target(place, folder, name, *_old_content(folder, name, place))
    finally:
        os.close(folder)


def _old_content(
    folder: int, name: str, place: PathTarget
) -> tuple[bytes | None, os.stat_result | None]:
    try:
        fd = open_below(folder, name, place)
    except FileNotFoundError:
        return None, None
    except OSError as exc:
        raise CannotBind(f"{place.path}: {(exc.strerror or str(exc)).lower()}") from exc
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(file.fileno())
        raw = file.read(limits.TOOL_OUTPUT_KEPT_BYTES + 1)
    if len(raw) > limits.TOOL_OUTPUT_KEPT_BYTES:
        raise CannotBind(f"{place.path} is too large to be replaced by a tool")
    return raw, facts


def _write(values: Values, binding: Binding, scene: Scene) -> str:
    """
    Write into the approved folder over the approved file. Both are opened once, compared, and used
    by descriptor.
    """
    place = bound_place(binding, scene)
    raw = values["content"].encode()
    with open_target(place) as target:
        if target.facts() != binding.scripts:
            raise changed_since(place)
        replace_file(target, raw)
    return f"wrote {len(raw)} bytes to {place.path}"


def changed_since(place: PathTarget) -> ToolFailed:
    return ToolFailed(
        f"{place.path} or its folder changed after this was approved; nothing was written"
    )


def replace_file(target: Target, raw: bytes) -> None:
    folder = target.folder
    temporary = f".{target.name[:100]}.{secrets.token_hex(8)}.tmp"
    # Keep the replaced file's permissions. A new file gets the default ones.
    mode = None if target.file is None else stat.S_IMODE(target.file.st_mode) & 0o777
    fd = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        mode or 0o666,
        dir_fd=folder,
    )
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
            made = identity_of(os.fstat(file.fileno()))
        target.check()
        # Commit point. A crash before this line leaves the old file whole, a crash after it the new
        # one.
        os.rename(temporary, target.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if identity_of(os.stat(target.name, dir_fd=folder, follow_symlinks=False)) != made:
        raise ToolFailed(f"{target.place.path} was replaced by somebody else while it was written")
    _sync(folder)


def _sync(folder: int) -> None:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)
