"""
Programs that the tables do not know, judged by the verb that they get.

Most programs of services take a verb as one of their first words: `vercel rm`, `virsh undefine`,
`hub release delete`. Programs that only read or print may get the same word as data.
"""

from collections.abc import Sequence
from itertools import islice, takewhile

from holdfast.session.authority.plan import RiskKind

_VERB_AT_MOST = 3  # `nmcli connection delete`
_DELETES = frozenset(
    {"delete", "destroy", "drop", "erase", "nuke", "purge", "remove", "rm", "terminate"}
    | {"undefine", "undeploy", "uninstall", "wipe"}
)
# `yarn remove` changes files of the project, which Git keeps.
_DEPENDENCIES = frozenset({"bun", "composer", "dotnet", "pnpm", "yarn"})
_SENDS = frozenset({"publish", "push", "upload"})
TAKES_DATA = frozenset(
    {"[", "ack", "ag", "alias", "apropos", "bat", "cat", "cd", "cmp", "code", "comm", "command"}
    | {"cut", "declare", "diff", "echo", "egrep", "emacs", "export", "fgrep", "file", "for", "fzf"}
    | {"grep", "head", "help", "info", "join", "jq", "less", "ls", "man", "mkdir", "more", "nano"}
    | {"nl", "paste", "printf", "pushd", "read", "rg", "sed", "set", "sort", "stat", "tail", "tee"}
    | {"test", "tldr", "touch", "tr", "tree", "type", "uniq", "vi", "vim", "wc", "whatis", "where"}
    | {"whereis", "which", "yq", "awk", "expr", "basename", "dirname", "ln", "local", "unset"}
)


def verb_effects(name: str, words: Sequence[str]) -> list[tuple[RiskKind, str]]:
    """
    Return the effect of a verb that stands before all options.

    >>> verb_effects("vercel", ("rm", "shop", "--yes"))
    [('destructive', 'gets the verb `rm`. It may delete something for good.')]
    >>> verb_effects("grep", ("delete", "notes.md")), verb_effects("pytest", ("-k", "delete"))
    ([], [])
    """
    if name in TAKES_DATA:
        return []
    first = takewhile(lambda word: not word.startswith("-"), words)
    for word in islice(first, _VERB_AT_MOST):
        if word in _DELETES and name not in _DEPENDENCIES:
            return [("destructive", f"gets the verb `{word}`. It may delete something for good.")]
        if word in _SENDS:
            return [("upload", f"gets the verb `{word}`. It may send data to another machine.")]
    return []
