"""
Finds all names of a folder: a bind mount gives the same folder a second name.

/proc/self/mountinfo is read each time, because mounts come and go. Without it (macOS), a folder has
one name.
"""

from pathlib import Path
from typing import NamedTuple

_MOUNTINFO = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    device: str  # "major:minor"
    root: str  # the folder of the filesystem that is mounted
    point: str  # where it is mounted
    kind: str


def read_mounts() -> list[Mount]:
    """Return the mounts, oldest first, so that the last one at a point is on top."""
    try:
        text = _MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, device, root, point, *_ = fields.split(" ")
        found.append(Mount(device, _plain(root), _plain(point), rest.split(" ")[0]))
    return found


def names_of(folder: str, mounts: list[Mount]) -> list[str]:
    """
    Every path at which `folder` or a part of it can be reached, itself first.

    >>> places = [("/", "/"), ("/home", "/mnt/h"), ("/home/a/keys", "/k")]
    >>> tree = [Mount("8:1", root, point, "ext4") for root, point in places]
    >>> names_of("/home/a", tree)
    ['/home/a', '/k', '/mnt/h/a']
    """
    holder = _mount_of(folder, mounts)
    if holder is None:
        return [folder]
    inside = _join(holder.root, folder[len(holder.point) :] if holder.point != "/" else folder)
    found = set()
    for mount in mounts:
        if mount.device != holder.device or mount is holder:
            continue
        if within(inside, mount.root):
            found.add(
                _join(mount.point, inside[len(mount.root) :] if mount.root != "/" else inside)
            )
        elif within(mount.root, inside):
            found.add(mount.point)
    return [folder, *sorted(found - {folder})]


def within(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it. Both are canonical."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def _mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    best: Mount | None = None
    for mount in mounts:
        if within(path, mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _join(folder: str, rest: str) -> str:
    joined = f"{folder.rstrip('/')}/{rest.strip('/')}".rstrip("/")
    return joined or "/"


def _plain(field: str) -> str:
    """Decode spaces and similar characters, which are octal in mountinfo."""
    if "\\" not in field:
        return field
    for code in ("040", "011", "012", "134"):
        field = field.replace("\\" + code, chr(int(code, 8)))
    return field
