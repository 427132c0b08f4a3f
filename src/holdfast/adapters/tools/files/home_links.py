"""
Finds hard links to the home's own files.

A hard link makes a key or a journal readable under a path far away from the home. Only a file with
more than one name on the home's file system is checked. Its inode number is compared with the
entries of the home's folders. No file of the home is opened.
"""

import os

from holdfast.adapters.tools.home_guard import GuardedHome

_ENTRIES_MAX = 1_000_000  # in one home; with more entries, every file with two names is refused


def is_linked_into(guard: GuardedHome, facts: os.stat_result) -> bool:
    """Return whether the home also has a name for this file."""
    if facts.st_nlink < 2 or facts.st_dev != guard.identity[0]:  # noqa: PLR2004  one name, or two
        return False
    left = _ENTRIES_MAX
    folders = [guard.path]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue  # the folder is gone
        left -= len(entries)
        if left < 0 or any(entry.inode() == facts.st_ino for entry in entries):
            return True
        below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        folders += [path for path in below if path != guard.workspace_inside]
    return False
