"""Writes outside the workspace, as far as the text names their paths."""

import posixpath
import re
from collections.abc import Sequence

_HARMLESS = re.compile(r"/dev/(null|zero|full|tty|stdin|stdout|stderr|fd/\d+)|(/var)?/tmp(/.*)?")
_HOME = re.compile(r"(~|\$HOME|\$\{HOME\})(/|$)")
# Which operands a program writes: all of them, or the last one.
_ALL = frozenset({"touch", "mkdir", "rmdir", "rm", "unlink", "tee", "truncate", "shred", "mkfifo"})
_ALL_AFTER_FIRST = frozenset({"chmod", "chown", "chgrp"})
_LAST = frozenset({"cp", "mv", "ln", "install"})
_VALUE_OPTIONS = {
    "tar": ("-C", "--directory"),
    "unzip": ("-d",),
    "curl": ("-o", "--output", "--output-dir"),
    "wget": ("-O", "-P", "--output-document", "--directory-prefix"),
    "cp": ("-t", "--target-directory"),
    "mv": ("-t", "--target-directory"),
    "pip": ("-t", "--target", "--prefix"),
    "pip3": ("-t", "--target", "--prefix"),
    "sort": ("-o", "--output"),
    "openssl": ("-out",),
    "pandoc": ("-o", "--output"),
    **dict.fromkeys(("cc", "gcc", "g++", "clang", "go"), ("-o",)),
}


def is_outside(path: str, *, cwd: str, roots: Sequence[str]) -> bool:
    """
    Judge by the text alone: links are not followed, and a path with other variables stays unjudged.

    >>> is_outside("../x", cwd="/w", roots=["/w"]), is_outside("a/../b", cwd="/w", roots=["/w"])
    (True, False)
    """
    if _HOME.match(path):
        return True
    if "$" in path or "`" in path or not path:
        return False
    full = posixpath.normpath(posixpath.join(cwd, path))
    if _HARMLESS.fullmatch(full):
        return False
    return not any(full == root or full.startswith(root.rstrip("/") + "/") for root in roots)


def written_paths(name: str, words: Sequence[str]) -> list[str]:
    """
    Return the paths that a program writes, by its words.

    >>> written_paths("cp", ("-r", "a", "/etc/b")), written_paths("dd", ("if=a", "of=/b"))
    (['/etc/b'], ['/b'])
    """
    operands = [word for word in words if not word.startswith("-")]
    found = _option_values(words, _VALUE_OPTIONS.get(name, ()))
    if name in _ALL:
        found += operands
    elif name in _ALL_AFTER_FIRST:
        found += operands[1:]
    elif name in _LAST and len(operands) > 1:
        found += operands[-1:]
    elif name == "dd":
        found += [word[3:] for word in words if word.startswith("of=")]
    elif name == "sed" and any(re.match(r"-[a-z]*i|--in-place", word) for word in words):
        found += operands[1:]
    elif name == "ssh-keygen" and not {"-l", "-y"}.intersection(words):
        found += _option_values(words, ("-f",))
    elif name == "git" and operands[:1] == ["clone"]:
        found += operands[2:3]
    return found


def _option_values(words: Sequence[str], names: Sequence[str]) -> list[str]:
    found = []
    for at, word in enumerate(words):
        if word in names and at + 1 < len(words):
            found.append(words[at + 1])
        found += [
            word.removeprefix(f"{name}=")
            for name in names
            if name.startswith("--") and word.startswith(f"{name}=")
        ]
    return found
