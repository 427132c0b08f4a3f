"""
Writing a file: whole or not at all, and only what was shown.

What is shown is a complete diff against the file as it is, or the whole new content; both are part of the binding, so a file that
changed in between voids the approval. The new content is written beside the old, synced, renamed over it, and the folder synced:
a crash leaves the old file or the new one.
"""

import difflib
import os
import secrets
import stat

from blake3 import blake3

from holdfast import limits
from holdfast.adapters.tools.arguments import REQUIRED, ArgumentTypes
from holdfast.adapters.tools.builtin import Builtin, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.home_guard import Guarded
from holdfast.adapters.tools.inert_files import is_inert
from holdfast.adapters.tools.paths import HARD_DENY, check_path, locate, open_folder
from holdfast.ports.tools import CannotBind, Scene
from holdfast.session.plan import Binding
from holdfast.session.rendering import framed, render, render_content

_DIFF_BYTES_MAX = 256 * limits.KIB  # beyond, a diff takes longer than anyone would wait, and would not fit a prompt


def write_file() -> Builtin:
    types = ArgumentTypes("write_file", {"path": (str, REQUIRED), "content": (str, REQUIRED)})
    definition = definition_of(
        "write_file",
        "Write a text file, replacing it whole. Its folder must exist. The path is relative to the workspace, or absolute.",
        types,
        contract="once",
        mode="ask",
        kind="write_file",
        audience="personal",
    )
    return Builtin(definition, types, check=_check, look=_look, work=_write)


def _check(values: Values) -> None:
    check_path(values["path"])


def _look(values: Values, scene: Scene) -> Binding:
    place = locate(values["path"], scene)
    hindered = ""
    try:
        old = _old_content(place.path, place.guard)
    except CannotBind as exc:
        # Outside the workspace it is for the person to say whether the model learns what is there.
        if place.reach == "workspace" or exc.code == HARD_DENY:
            raise
        old, hindered = None, str(exc)
    name = render(place.path)
    said, shown, warnings = _change(old, values["content"])
    hint = (framed(render(f"as things are, this will fail: {hindered}").text),) if hindered else ()
    display = display_of([said, framed(name.text), *hint, "content:" if old is None else "change:", framed(shown)])
    digest = "none" if old is None else blake3(old).hexdigest()
    return Binding(
        display=display,
        reach=place.reach,
        path=place.path,
        scripts=(f"replaces {digest}",),
        memorable=place.reach == "workspace" and is_inert(place.path, values["content"]),
        warnings=(*name.warnings, *warnings),
    )


def _change(old: bytes | None, content: str) -> tuple[str, str, tuple[str, ...]]:
    """(what it does, all of it, warnings)."""
    new = render_content(content)
    size = f"{len(content.encode())} bytes, {new.lines} lines"
    if old is None:
        return f"write a new file of {size}", new.text, new.warnings
    try:
        before = old.decode()
    except UnicodeDecodeError:
        before = "\0"
    if "\0" in before or len(old) > _DIFF_BYTES_MAX or len(content) > _DIFF_BYTES_MAX:
        return f"replace a file of {len(old)} bytes that can't be compared; new content: {size}", new.text, new.warnings
    # Rendered first, then compared: a line that differs by something invisible differs visibly.
    lines = difflib.unified_diff(render_content(before).text.split("\n"), new.text.split("\n"), "now", "then", lineterm="", n=3)
    return f"change a file of {len(old)} bytes to {size}", "\n".join(lines) or "(no change)", new.warnings


def _old_content(path: str, guard: Guarded | None) -> bytes | None:
    """What would be replaced; None if nothing is there. Anything but a regular file is refused."""
    folder, name = os.path.split(path)
    if not name:
        raise CannotBind(f"{path} is a folder")
    folder_fd = open_folder(folder, guard)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise CannotBind(f"{path}: {(exc.strerror or str(exc)).lower()}") from exc
    finally:
        os.close(folder_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CannotBind(f"{path} is not a regular file")
    with os.fdopen(fd, "rb") as file:
        raw = file.read(limits.TOOL_OUTPUT_KEPT_BYTES + 1)
    if len(raw) > limits.TOOL_OUTPUT_KEPT_BYTES:
        raise CannotBind(f"{path} is too large to be replaced by a tool")
    return raw


def _write(values: Values, binding: Binding, scene: Scene) -> str:
    if _look(values, scene) != binding:
        raise ToolFailed(f"{values['path']} changed after this was approved; nothing was written")
    place = locate(values["path"], scene)
    raw = values["content"].encode()
    folder, name = os.path.split(place.path)
    folder_fd = open_folder(folder, place.guard)
    try:
        _replace(folder_fd, name, raw)
    finally:
        os.close(folder_fd)
    return f"wrote {len(raw)} bytes to {place.path}"


def _replace(folder_fd: int, name: str, raw: bytes) -> None:
    temporary = f".{name[:100]}.{secrets.token_hex(8)}.tmp"
    mode = _mode_of(name, folder_fd)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode or 0o666, dir_fd=folder_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        # Commit point: before it the old file is whole, after it the new one is.
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        os.unlink(temporary, dir_fd=folder_fd)
        raise
    sync_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        os.fsync(sync_fd)
    finally:
        os.close(sync_fd)


def _mode_of(name: str, folder_fd: int) -> int | None:
    """The replaced file's permissions; None for a new file, which gets the usual ones."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return None
