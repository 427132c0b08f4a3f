"""
The simple commands of a text with their wrappers removed: `sudo`, `env`, `xargs`, `sh -c` and the
like.

A wrapper starts another program, so the effect is the inner program's. A wrapper that runs a text
(`bash -c TEXT`, `ssh HOST TEXT`) gives that text, which is read like a command of its own.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "ash"})
INTERPRETERS = frozenset(
    {"python", "python2", "python3", "perl", "ruby", "node", "nodejs", "php", "lua", "deno", "bun"}
    | {"osascript", "pwsh", "Rscript", "tclsh"}
)
AWKS = frozenset({"awk", "gawk", "mawk", "nawk"})
_CODE_OPTIONS = {"python": "-c", "python2": "-c", "python3": "-c", "php": "-r", "pwsh": "-c"}
# Options of wrappers that take the next word as their value.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "--user", "--group"}),
    "doas": frozenset({"-u", "-C"}),
    "pkexec": frozenset({"--user"}),
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "time": frozenset({"-f", "-o"}),
    "command": frozenset(),
    "builtin": frozenset(),
    "exec": frozenset({"-a"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "strace": frozenset({"-e", "-o", "-p", "-s"}),
    "xargs": frozenset(
        {"-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E", "--max-args", "--max-procs"}
    ),
    "parallel": frozenset({"-j", "--jobs", "-a"}),
    "busybox": frozenset(),
    "npx": frozenset({"-p", "--package"}),
    "bunx": frozenset(),
    "pnpx": frozenset(),
    "unbuffer": frozenset(),
    "caffeinate": frozenset(),
    "sshpass": frozenset({"-p", "-f"}),
    "watch": frozenset({"-n", "--interval"}),
    "systemd-run": frozenset({"-p", "--unit", "-u"}),
}
_AFTER_ONE_OPERAND = {
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
    "chroot": frozenset({"--userspec"}),
    "flock": frozenset({"-w", "--timeout", "-E"}),
    "runuser": frozenset({"-u", "-g"}),
    "taskset": frozenset({"-c"}),
    "chrt": frozenset(),
    "proot": frozenset({"-r", "-b"}),
}
_SUBCOMMANDS = {
    ("poetry", "run"),
    ("uv", "run"),
    ("pipenv", "run"),
    ("bundle", "exec"),
    ("npm", "exec"),
    ("pnpm", "exec"),
    ("yarn", "exec"),
    ("mise", "exec"),
    ("php", "artisan"),
    ("python", "manage.py"),
    ("python3", "manage.py"),
}
_SSH_VALUED = frozenset("BbcDEeFIiJLlmOopQRSWw")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Inner(NamedTuple):
    """A command inside a command: its words, or a text that a shell reads."""

    words: tuple[str, ...] = ()
    text: str | None = None


def name_of(word: str) -> str:
    """
    >>> name_of("/usr/bin/rm"), name_of("\\\\rm")
    ('rm', 'rm')
    """
    return word.replace("\\", "").rsplit("/", 1)[-1]


def inner_commands(words: Sequence[str]) -> tuple[Inner, ...]:
    """
    Return the commands that this one starts: none if it is not a wrapper, several for `find`.

    >>> [inner.words for inner in inner_commands(("sudo", "-u", "root", "rm", "-rf", "x"))]
    [('rm', '-rf', 'x')]
    >>> [inner.text for inner in inner_commands(("bash", "-lc", "rm x"))]
    ['rm x']
    """
    if name_of(words[0]) == "find":
        return _find(words[1:])
    if name_of(words[0]) in ("fd", "fdfind"):
        return _fd(words[1:])
    inner = _inner(words)
    return () if inner is None else (inner,)


def _inner(words: Sequence[str]) -> Inner | None:
    name, rest = name_of(words[0]), list(words[1:])
    if name in SHELLS or (name == "su" and "-c" in rest):
        text = _after_flag(rest, "c")
        return None if text is None else Inner(text=text)
    if name == "ssh":
        return _ssh(rest)
    if name in ("docker", "podman", "nerdctl", "docker-compose", "kubectl"):
        return _container(rest)
    text = _given_text(name, rest)
    if text is not None:
        return Inner(text=text)
    if name in ("python", "python3") and rest[:1] == ["-m"]:
        return _words(rest[1:], frozenset())
    if rest and (name, name_of(rest[0])) in _SUBCOMMANDS:
        at = 0 if "." in rest[0] or rest[0] == "artisan" else 1
        return _words(rest[at:], frozenset())
    if name == "command" and rest[:1] in (["-v"], ["-V"]):
        return None  # it says where the program is, and starts nothing
    if name in _WRAPPERS:
        return _words(rest, _WRAPPERS[name])
    if name in _AFTER_ONE_OPERAND:
        found = _words(rest, _AFTER_ONE_OPERAND[name])
        return Inner(words=found.words[1:]) if found and len(found.words) > 1 else None
    return None


def is_interpreter(name: str) -> bool:
    return name in INTERPRETERS or re.sub(r"[\d.]+$", "", name) in INTERPRETERS


def code_of(words: Sequence[str]) -> str | None:
    """
    Return the code that an interpreter gets as a word.

    >>> code_of(("python3", "-c", "print(1)"))
    'print(1)'
    """
    name = name_of(words[0])
    if name in AWKS:
        return next((word for word in words[1:] if not word.startswith("-")), None)
    base = re.sub(r"[\d.]+$", "", name)
    if base not in INTERPRETERS and name not in INTERPRETERS:
        return None
    letter = _CODE_OPTIONS.get(base, "-e")[1:]
    return _after_flag(list(words[1:]), letter)


def _words(rest: list[str], valued: frozenset[str]) -> Inner | None:
    at = 0
    while at < len(rest):
        word = rest[at]
        if word == "--":
            at += 1
            break
        if word in valued:
            at += 2
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return Inner(words=tuple(rest[at:])) if at < len(rest) else None


def _after_flag(rest: list[str], letter: str) -> str | None:
    """Return the word after a cluster of letters that ends with the letter: `-c`, `-lc`."""
    for at, word in enumerate(rest[:-1]):
        if re.fullmatch(rf"-[A-Za-z]*{letter}", word):
            return rest[at + 1]
        if not word.startswith("-"):
            return None
    return None


def _given_text(name: str, rest: Sequence[str]) -> str | None:
    """Return the text that a program gives to a shell later, or on other machines."""
    if name == "trap" and len(rest) > 1 and not rest[0].startswith("-"):
        return rest[0]
    if name == "ansible":
        return next((after for word, after in pairwise(rest) if word == "-a"), None)
    if name == "git" and rest[:2] == ["submodule", "foreach"]:
        return " ".join(rest[2:])
    return None


def _find(rest: Sequence[str]) -> tuple[Inner, ...]:
    """`find . -exec A {} + -o -exec B {} ;` starts A and B."""
    found: list[Inner] = []
    for at, word in enumerate(rest[:-1]):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            after = list(rest[at + 1 :])
            ends = [each for each in (";", "\\;", "+") if each in after]
            found.append(Inner(words=tuple(after[: min(map(after.index, ends), default=None)])))
    return tuple(inner for inner in found if inner.words)


def _fd(rest: Sequence[str]) -> tuple[Inner, ...]:
    """`fd -e tmp -X rm` starts `rm` with all that it finds."""
    starts = [at for at, word in enumerate(rest) if word in ("-x", "-X", "--exec", "--exec-batch")]
    words = tuple(rest[starts[0] + 1 :]) if starts else ()
    return (Inner(words=words),) if words else ()


def _ssh(rest: list[str]) -> Inner | None:
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        at += 2 if len(rest[at]) == 2 and rest[at][1] in _SSH_VALUED else 1  # noqa: PLR2004  one letter
    text = " ".join(rest[at + 1 :])
    return Inner(text=text) if text else None


def _container(rest: list[str]) -> Inner | None:
    """`docker exec C COMMAND`, `kubectl exec P -- COMMAND`, `docker run --rm IMAGE COMMAND`."""
    verbs = [word for word in rest[:6] if word in ("exec", "run")]
    if not verbs:
        return None
    if "--" in rest:
        return Inner(words=tuple(rest[rest.index("--") + 1 :])) if rest[-1] != "--" else None
    after = rest[rest.index(verbs[0]) + 1 :]
    valued = frozenset({"-e", "--env", "-u", "--user", "-w", "--workdir", "-v", "--volume", "-p"})
    found = _words(after, valued | {"--name", "--network", "--entrypoint", "--mount", "-n"})
    return Inner(words=found.words[1:]) if found and len(found.words) > 1 else None
