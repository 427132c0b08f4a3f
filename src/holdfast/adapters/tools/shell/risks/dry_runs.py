"""
Commands that only ask or show: help, versions, dry runs.

A wrong answer here would hide an effect. So an option counts as a dry run only if no option before
it can take it as a value: `git push -o --dry-run` pushes.
"""

import re
from collections.abc import Sequence

_DRY = re.compile(r"--dry-run(=(true|client|server))?")
_RSYNC_DRY = re.compile(r"--dry-run|-[avzrhutnP]*n[avzrhutnP]*")
# Options that take no value, in every program below.
_FLAGS = re.compile(r"--(force|delete|all|verbose|archive|recursive|force-with-lease)|--[a-z-]+=.*")
_RSYNC_FLAGS = re.compile(r"-[avzrhutnP]+")
# Programs that show their steps, if the very first word asks for that.
_FIRST_OPTION = {
    "make": ("-n", "--dry-run", "--just-print", "--recon"),
    **dict.fromkeys(("apt", "apt-get"), ("-s", "--simulate", "--dry-run", "--just-print")),
}
_PROGRAMS = frozenset({"git", "rsync", "kubectl", "oc", "helm", "aws", "npm", "cargo", "uv"})


def changes_nothing(name: str, rest: Sequence[str]) -> bool:
    """
    >>> changes_nothing("rm", ("--help",)), changes_nothing("kill", ("-0", "17"))
    (True, True)
    >>> changes_nothing("rsync", ("-an", "--delete", "a/", "b/"))
    True
    >>> changes_nothing("make", ("-n", "install")), changes_nothing("make", ("-C", "-n", "install"))
    (True, False)
    >>> changes_nothing("kubectl", ("delete", "ns", "a", "--dry-run=none"))
    False
    """
    if list(rest) in (["--version"], ["-l"], ["-V"], ["-h"]):
        return True
    if rest[-1:] == ("--help",) and not any(each.startswith("-") for each in rest[:-1]):
        return True
    if name == "kill" and rest[:1] == ("-0",):
        return True  # it asks whether the process exists
    if name in _FIRST_OPTION:
        return rest[:1] != () and rest[0] in _FIRST_OPTION[name]
    return name in _PROGRAMS and _is_dry_run(name, rest)


def _is_dry_run(name: str, rest: Sequence[str]) -> bool:
    dry = _RSYNC_DRY if name == "rsync" else _DRY
    before = ""
    for word in rest:
        if word == "--":
            return False
        takes_none = not before.startswith("-") or _FLAGS.fullmatch(before)
        if dry.fullmatch(word) and (takes_none or _is_rsync_flag(name, before)):
            return True
        before = word
    return False


def _is_rsync_flag(name: str, word: str) -> bool:
    return name == "rsync" and _RSYNC_FLAGS.fullmatch(word) is not None
