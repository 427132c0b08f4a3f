"""
The folder for `module:function` tools of holdfast.toml if no folder is named: the one that they
were first loaded from.

The current folder may be untrusted: a clone, a download, a workspace. So it counts only once. The
folder that a module was first loaded from is written to HOME/programs.json, and no other folder can
replace it. `tools.python.folder` names a folder instead.
"""

import logging
import os
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path

import msgspec

from holdfast.errors import Unusable

FILE_NAME = "programs.json"
_BYTES_MAX = 64 * 1024
_log = logging.getLogger("holdfast.cli.shared.program_folders")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Without the key nobody makes us load another folder's code."""

    folders: dict[str, str]
    mac: str


def first_folder(home: Path, here: str | None) -> Callable[[str], str | None]:
    """
    For `Program`: return the remembered folder of a module, or remember `here`. If `here` is None,
    nothing is remembered.
    """

    def folder_of(module: str) -> str | None:
        known = _read(home)
        if (folder := known.get(module)) is not None:
            if not _has(folder, module):
                raise Unusable(
                    f"{module} was loaded from {folder} before, and is not there any more",
                    code="bad_app",
                    hint="put it back, or name its folder: tools.python.folder in holdfast.toml; "
                    f"{home / FILE_NAME} may be removed",
                )
            return folder
        if here is None or not _has(here, module) or not home.is_dir():
            return None
        _write(home, {**known, module: here})
        _log.warning(
            "tools of %s are loaded from %s from now on; tools.python.folder in holdfast.toml "
            "names another folder",
            module,
            here,
        )
        return here

    return folder_of


def _has(folder: str, module: str) -> bool:
    place = Path(folder)
    return (place / f"{module}.py").is_file() or (place / module).is_dir()


def _read(home: Path) -> dict[str, str]:
    from holdfast.adapters.files.paths import read_file

    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        kept = msgspec.json.decode(read_file(folder, FILE_NAME, bytes_max=_BYTES_MAX), type=_Kept)
        said = kept.mac.encode()
        vouched = any(compare_digest(_mac(key, kept.folders), said) for key in _keys(folder))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as exc:
        raise Unusable(
            f"{home / FILE_NAME} can't be read: {exc}",
            code="bad_app",
            hint="remove it; it is made again",
        ) from exc
    finally:
        os.close(folder)
    if not vouched:
        raise Unusable(
            f"{home / FILE_NAME} was changed by another program: no key of this home vouches for "
            "it",
            code="bad_app",
            hint="look at the folders that it names, then remove it; it is made again",
        )
    return kept.folders


def _write(home: Path, known: dict[str, str]) -> None:
    """Nothing is kept before the home has a key: who could vouch for it?"""
    from holdfast.adapters.files.paths import create_whole

    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        keys = _keys(folder)
        if not keys:
            return
        create_whole(
            folder,
            FILE_NAME,
            msgspec.json.encode(_Kept(known, _mac(keys[0], known).decode())) + b"\n",
            temporary=f".{FILE_NAME}.{os.getpid()}.tmp",
        )
    finally:
        os.close(folder)


def _keys(home: int) -> list[bytes]:
    """Those that count, the newest first."""
    from holdfast.adapters.files.home.keys import KnownKeys, load_keys

    known = KnownKeys(home, load_keys(home).by_generation)
    return [key for _, key in sorted(known.items(), reverse=True)]


def _mac(key: bytes, known: dict[str, str]) -> bytes:
    from holdfast.journal.chain import subkey

    text = msgspec.json.encode(known, order="sorted").decode()
    return subkey(key, "programs", text, "").hex().encode()
