"""
Programs that usually need the network, for the prompt of a command that has none.

The line is a forecast for the approver and decides nothing: `git push` to a folder of the workspace
works without a network.
"""

from collections.abc import Iterator, Sequence

from holdfast.adapters.tools.shell.parse import Reading, read_command
from holdfast.adapters.tools.shell.risks.simple import inner_commands, name_of

_NESTING_MAX = 3  # wrappers in wrappers
_ALWAYS = frozenset(
    {"aws", "az", "curl", "dig", "ftp", "gcloud", "gh", "glab", "helm", "host", "kubectl"}
    | {"nslookup", "ping", "scp", "sftp", "ssh", "telnet", "wget", "whois"}
)
_INSTALLS = frozenset({"add", "ci", "download", "fetch", "install", "publish", "sync", "update"})
_VERBS = {
    "git": frozenset({"clone", "fetch", "ls-remote", "pull", "push"}),
    **dict.fromkeys(("docker", "podman"), frozenset({"login", "pull", "push", "search"})),
    **dict.fromkeys(("apt", "apt-get", "dnf", "yum", "apk", "brew"), _INSTALLS | {"upgrade"}),
    **dict.fromkeys(("pip", "pip3", "pipx", "uv", "poetry"), _INSTALLS),
    **dict.fromkeys(("npm", "pnpm", "yarn", "cargo", "gem", "bundle", "composer"), _INSTALLS),
    "go": frozenset({"get"}),
    "terraform": frozenset({"apply", "destroy", "init", "plan"}),
}
_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--prefix"})  # before the verb
_ONLY_ASKS = frozenset({"--help", "--version", "-h", "-V"})


def network_line(reading: Reading) -> str:
    """
    Return the line for the prompt of a command without network, or nothing.

    >>> network_line(read_command("make && git push"))
    'expect git push to fail: no network'
    """
    found = next(_needs(reading, 0), None)
    return "" if found is None else f"expect {found} to fail: no network"


def _needs(reading: Reading, depth: int) -> Iterator[str]:
    for each in reading.subcommands:
        words = each.literals()
        if words:
            yield from _of_words(words, depth)


def _of_words(words: Sequence[str], depth: int) -> Iterator[str]:
    """The names come from the tables above, so no text of the call is in the line."""
    name = name_of(words[0])
    if not _ONLY_ASKS.intersection(words[1:]):
        verb = _verb(words[1:])
        if name in _ALWAYS:
            yield name
        elif verb in _VERBS.get(name, ()):
            yield f"{name} {verb}"
    for inner in inner_commands(words) if depth < _NESTING_MAX else ():
        if inner.text is not None:
            yield from _needs(read_command(inner.text), depth + 1)
        elif inner.words:
            yield from _of_words(inner.words, depth + 1)


def _verb(rest: Sequence[str]) -> str | None:
    words = iter(rest)
    for word in words:
        if word in _VALUED:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None
