"""
Decides whether the words of one simple command are a leaf program with vetted words only.

Every word must be understood: a long option in full and with its value behind `=`, a letter from
the list, a value that cannot be an option of its own, an operand of the right shape. For everything
else this module returns a reason, and the approver is asked each time.
"""

import re

from holdfast.adapters.tools.shell.remembered.table import (
    ANY,
    FIND_ALONE,
    FIND_VALUE,
    FIND_VALUED,
    LEAVES,
    SED_SCRIPT,
    TEST_BINARY,
    TEST_UNARY,
    Leaf,
)

# A value attached to a letter (`-n5`, `-d,`, `-k2,2n`). Read as letters, it would be harmless too.
_ATTACHED = re.compile(
    r"[^A-Za-z]+|[0-9]+[bkKMGT]?|[0-9.,]+[bdfgiMhnRrV]*(?:,[0-9.]+[bdfgiMhnRrV]*)?"
)
_COUNT = re.compile(r"-[0-9]+")
_NUMBER = re.compile(r"[0-9.]+")
_NUMBER_LIKE = re.compile(r"-[0-9]")


def why_not_leaf(words: tuple[str, ...]) -> str | None:
    """
    Return why an equal command could act differently next time, or None if its words decide all.

    >>> why_not_leaf(("sort", "-rn", "a.txt")) is None
    True
    >>> why_not_leaf(("sort", "--compress-program=./x", "a.txt"))
    'sort --compress-program=./x is not an option that can be remembered'
    >>> why_not_leaf(("make",))
    'make is not in the table of programs that can be remembered'
    """
    name, *rest = words
    match name:
        case "find":
            return _why_not_find(rest)
        case "sed":
            return _why_not_sed(rest)
        case "test":
            return _why_not_test(rest)
        case "printf" if rest[:1] and rest[0].startswith("-"):
            return "printf with options can run what stands in a subscript"
    leaf = LEAVES.get(name)
    if leaf is None:
        return f"{name} is not in the table of programs that can be remembered"
    return _why_not(name, rest, leaf)


def _why_not(name: str, rest: list[str], leaf: Leaf) -> str | None:
    operands: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += rest
            break
        if word == "-" or not word.startswith("-") or (name == "seq" and _NUMBER_LIKE.match(word)):
            operands.append(word)
        elif not _is_vetted(word, rest, leaf):
            return f"{name} {word} is not an option that can be remembered"
    if len(operands) > leaf.operands_max:
        return f"{name} may write or set what its operand {operands[leaf.operands_max]!r} names"
    for each in operands:
        if not re.fullmatch(leaf.operand, each):
            return f"{name} {each} is not an operand that can be remembered"
    return None


def _is_vetted(word: str, rest: list[str], leaf: Leaf) -> bool:
    """Check one option. Take its value from `rest` if it stands there."""
    if word.startswith("--"):
        option, equals, _ = word[2:].partition("=")
        return option in leaf.settings if equals else option in leaf.longs
    if leaf.count and _COUNT.fullmatch(word):
        return True
    for at, letter in enumerate(word[1:], 2):
        if letter in leaf.flags:
            continue
        if letter not in leaf.valued:
            return False
        if word[at:]:
            return _ATTACHED.fullmatch(word[at:]) is not None
        return bool(rest) and _is_value(rest.pop(0), leaf)
    return True


def _is_value(word: str, leaf: Leaf) -> bool:
    """
    Return whether the value is harmless even if a program reads it as an option or an operand.
    """
    if leaf.operands_max != ANY:
        return _NUMBER.fullmatch(word) is not None
    return word == "-" or not word.startswith("-")


def _why_not_find(rest: list[str]) -> str | None:
    """
    Check find's expression, which is a language: every primary is listed, with or without a value.
    """
    while rest:
        word = rest.pop(0)
        if word in FIND_VALUED:
            if not rest or not FIND_VALUE.fullmatch(rest.pop(0)):
                return f"find {word} has a value that can't be remembered"
        elif word not in FIND_ALONE and word.startswith(("-", "(", ")", "!", ",")):
            return f"find {word} is not an option that can be remembered"
    return None


def _why_not_sed(rest: list[str]) -> str | None:
    """Accept only `sed -n 5,10p FILE`: other sed commands write files and run programs."""
    if len(rest) < 2 or rest[0] != "-n" or not SED_SCRIPT.fullmatch(rest[1]):  # noqa: PLR2004
        return "sed can run commands; only `sed -n 5,10p FILE` can be remembered"
    if any(word.startswith("-") for word in rest[2:]):
        return "sed has an option that can't be remembered"
    return None


def _why_not_test(rest: list[str]) -> str | None:
    """Accept one question. `test -v` runs the content of a subscript."""
    if rest[:1] == ["!"]:
        rest = rest[1:]
    match rest:
        case [word] if not word.startswith("-"):
            return None
        case [operator, _] if operator in TEST_UNARY:
            return None
        case [_, operator, _] if operator in TEST_BINARY:
            return None
        case _:
            return "test has words that can't be remembered"
