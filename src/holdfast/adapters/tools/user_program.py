"""
Loads the user's own modules by file from the folders that the user named, never through `sys.path`.

A folder on `sys.path` answers every import of this process, including imports by Holdfast and by
any library, even an optional import that is tried hours later. So no user folder is put there.
`UserProgram` loads the named module. A finder at the end of `sys.meta_path` then answers only the
imports that this module's own code makes. The standard library and installed packages come first. A
module that takes the name of one of them is refused.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import FrameType, ModuleType

from holdfast.errors import Unusable

_MACHINERY = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class _Finder:
    """
    Finds named modules, and modules that their code imports. It stands last on `sys.meta_path`.
    """

    def __init__(self) -> None:
        # By top-level name: the folder that the module was loaded from or will be loaded from.
        self.folders: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None:
            return None  # a submodule: Python searches the package's own folder
        folder = self.folders.get(name) or self.folders.get(_importer())
        spec = PathFinder.find_spec(name, [folder]) if folder is not None else None
        if spec is not None and folder is not None:
            self.folders[name] = folder
        return spec


def _importer() -> str:
    """Return the top-level name of the module whose code runs the import statement."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the import system does not say who asks
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and name.partition(".")[0] not in _MACHINERY:
            return name.partition(".")[0]
        frame = frame.f_back
    return ""


_finder = _Finder()
_installing = Lock()


class UserProgram:
    """
    Loads modules by name from the first of `folders` that has them.

    `remembered` returns the folder of a module that no listed folder has. It is called once for
    each.
    """

    def __init__(
        self,
        folders: Sequence[str] = (),
        *,
        remembered: Callable[[str], str | None] = lambda _name: None,
    ) -> None:
        self._folders = tuple(folders)
        self._remembered = remembered
        self._used: list[str] = []

    @property
    def used(self) -> tuple[str, ...]:
        """The folders that code was loaded from, without installed packages."""
        return tuple(self._used)

    def load(self, name: str) -> ModuleType:
        """
        Import the module. Raise ImportError as Python does, and `Unusable` if another module has
        the name.
        """
        top = name.partition(".")[0]
        if top not in _finder.folders:
            self._place(top)
        if (folder := _finder.folders.get(top)) is not None and folder not in self._used:
            self._used.append(folder)
        return importlib.import_module(name)

    def _place(self, top: str) -> None:
        """Choose the folder of a module. An installed module needs none."""
        installed = _installed(top)
        found = next((each for each in self._folders if _in_folder(top, each)), None)
        if found is None and installed is None:
            found = self._remembered(top)
        spec = _in_folder(top, found) if found is not None else None
        if found is None or spec is None:
            return
        if installed is not None:
            if spec.origin is None or spec.origin == installed.origin:
                # There are two cases without a conflict: a plain folder beside an installed module
                # is not a module, and the same file is the same module.
                return
            raise Unusable(
                f"{spec.origin} has the name of another module, {installed.origin or top}",
                code="bad_app",
                hint="give the file a name of its own: every import of that name would get the "
                "wrong one",
            )
        with _installing:
            if _finder not in sys.meta_path:
                sys.meta_path.append(_finder)
            _finder.folders[top] = found


def _installed(top: str) -> ModuleSpec | None:
    """
    Return the module that has this name without the finder: loaded, built in, in the standard
    library or in an installed package.
    """
    if top in sys.builtin_module_names:
        return ModuleSpec(top, None, origin="built in")
    try:
        return find_spec(top)
    except ValueError:  # a loaded module without a spec
        return ModuleSpec(top, None, origin=str(getattr(sys.modules.get(top), "__file__", top)))


def _in_folder(top: str, folder: str) -> ModuleSpec | None:
    return PathFinder.find_spec(top, [folder])


def is_within(folder: str, workspace: str) -> bool:
    """
    Whether a folder is the workspace or below it, links followed.

    >>> is_within("/srv/work/bots", "/srv/work"), is_within("/srv/workshop", "/srv/work")
    (True, False)
    """
    return Path(folder).resolve().is_relative_to(Path(workspace).resolve())
