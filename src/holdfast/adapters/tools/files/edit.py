"""
Edits a file: replaces one exact text, which must occur once, by another.

The prompt shows the changed lines with the lines around them. The approval is bound to the whole
file by its digest, so a file that changed in between is left alone. The write itself is
`write_file`'s: by descriptor, whole or not at all.
"""

import difflib

from holdfast.adapters.tools.builtin.base import Builtin, ToolFailed, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.files.write import (
    changed_since,
    ending_words,
    open_target,
    replace_file,
)
from holdfast.adapters.tools.paths import bound_place, check_path, locate
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.limits import FILE_DISPLAY_CHARS_MAX
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import framed, render_content, render_line

_AROUND_LINES = 3  # unchanged lines that are shown before and after the change


def edit_file() -> Builtin:
    types = ArgumentTypes(
        "edit_file", {"path": (str, REQUIRED), "old": (str, REQUIRED), "new": (str, REQUIRED)}
    )
    definition = definition_of(
        "edit_file",
        "Replace one text in a file by another. `old` must occur exactly once in the file, "
        "with its spaces and line breaks; give more of its surroundings until it does. The path is "
        "relative to the workspace, or absolute.",
        types,
        contract="once",
        mode="ask",
        kind="write_file",
        audience="personal",
    )
    return Builtin(definition, types, check=_check, bind=_bind, work=_edit)


def _check(values: Values) -> None:
    check_path(values["path"])
    if not values["old"]:
        raise InvalidArguments("old is empty; name the text to replace")
    if values["old"] == values["new"]:
        raise InvalidArguments("old and new are the same; nothing would change")


def _bind(values: Values, scene: Scene) -> Binding:
    place = locate(values["path"], scene)
    if place.reach != "workspace":
        # The refusals below would tell which files exist there, and what they hold.
        raise CannotBind(f"{place.path} is outside the workspace; edit_file works inside it only")
    with open_target(place) as target:
        before, bound = _text(target.old, place.path), target.facts()
    after = _edited(before, values, place.path)
    name = render_line(place.path)
    said, shown = _change(before, after, before.index(values["old"]), values)
    display = display_of(
        [said, framed(name.text), "change:", framed(shown)],
        chars_max=FILE_DISPLAY_CHARS_MAX,
        instead="replace less at once",
    )
    return Binding(
        display=display,
        reach=place.reach,
        path=place.path,
        scripts=bound,
        # The same edit of another content is another change, so each one asks.
        memorable=False,
        warnings=(*name.warnings, *render_content(values["new"]).warnings),
    )


def _text(raw: bytes | None, path: str) -> str:
    if raw is None:
        raise CannotBind(f"there is no file {path}; write_file makes one")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise CannotBind(f"{path} is not UTF-8 text") from None


def _edited(before: str, values: Values, path: str) -> str:
    found = before.count(values["old"])
    first = before.find(values["old"])
    overlaps = found == 1 and before.find(values["old"], first + 1) >= 0
    if found == 0:
        raise CannotBind(f"the text to replace is not in {path}; read the file again")
    if found > 1 or overlaps:
        times = "more than once" if overlaps else f"{found} times"
        raise CannotBind(f"the text to replace occurs {times} in {path}; give more around it")
    return before.replace(values["old"], values["new"], 1)


def _change(before: str, after: str, at: int, values: Values) -> tuple[str, str]:
    """Return (a description of the change, the changed lines with the lines around them)."""
    first = before.count("\n", 0, at)
    last_old = first + values["old"].count("\n")
    last_new = first + values["new"].count("\n")
    start = max(0, first - _AROUND_LINES)
    old_lines = before.split("\n")[start : last_old + 1 + _AROUND_LINES]
    new_lines = after.split("\n")[start : last_new + 1 + _AROUND_LINES]
    # Render first, then compare: a line with an invisible difference then differs visibly.
    old_shown = render_content("\n".join(old_lines)).text.split("\n")
    new_shown = render_content("\n".join(new_lines)).text.split("\n")
    diff = difflib.unified_diff(old_shown, new_shown, "now", "then", lineterm="", n=len(old_shown))
    # All of it is one hunk. Its place counts from the part that was compared, not from the file.
    place = f"@@ -{start + 1},{len(old_shown)} +{start + 1},{len(new_shown)} @@"
    names, changed = (lines := list(diff))[:2], lines[3:]
    where = f"line {first + 1}" if first == last_old else f"lines {first + 1} to {last_old + 1}"
    said = f"edit {where} of a file of {len(before.encode())} bytes{ending_words(before, after)}"
    return said, "\n".join([*names, place, *changed])


def _edit(values: Values, binding: Binding, scene: Scene) -> str:
    """Edit the approved file: it is opened once, compared, and replaced by descriptor."""
    place = bound_place(binding, scene)
    with open_target(place) as target:
        if target.facts() != binding.scripts:
            raise changed_since(place)
        try:
            after = _edited(_text(target.old, place.path), values, place.path)
        except CannotBind as exc:
            raise ToolFailed(str(exc)) from exc
        replace_file(target, after.encode())
    return f"edited {place.path}"
