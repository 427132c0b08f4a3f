"""
Parse holdfast.toml into Settings. The whole file is valid, or every error is reported with its
line.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from holdfast.errors import Unusable
from holdfast.ids import ID_PART
from holdfast.limits import JSON_DEPTH_MAX, KIB
from holdfast.ports.tools import BUILTIN_TOOLS
from holdfast.runtime.context import AgentSpec
from holdfast.session.authority.context import Audience
from holdfast.settings import values
from holdfast.settings.keys import ANY, SECTIONS, Key
from holdfast.settings.settings import DEFAULT_MODEL, Settings, did_you_mean
from holdfast.settings.values import Wrong

BYTES_MAX = 64 * KIB  # read for every decision, by a person and by the program
NESTING_MAX = JSON_DEPTH_MAX  # the one bound for everything that is parsed
_PROBLEMS_MAX = 20  # reported at once; the rest follows after these are fixed
_AT = re.compile(r" \(at .*\)\Z")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)\Z")

Path = tuple[str, ...]


class Problem(NamedTuple):
    path: Path
    text: str
    hint: str = ""


def settings_from_toml(data: bytes, *, name: str = "holdfast.toml") -> Settings:
    """
    Parse the whole file, or raise `Unusable` with each error, its line, and the nearest valid key.

    >>> settings_from_toml(b"[serve]\\nport = 9000").serve_port
    9000
    """
    text = _text(data, name)
    tree = _tree(text, name)
    found: dict[Path, dict[str, Any]] = {}
    problems = list(
        islice(
            chain(_read(tree, (), found), _shared_identities(found), _unknown_delegates(found)),
            _PROBLEMS_MAX + 1,
        )
    )
    if problems:
        raise _unusable(text, name, problems)
    return _settings(found)


def _text(data: bytes, name: str) -> str:
    if len(data) > BYTES_MAX:
        raise Unusable(
            f"{name} is longer than {BYTES_MAX // KIB} KiB", code="settings", hint="shorten it"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise Unusable(
            f"{name}, line {line}: is not UTF-8",
            code="settings",
            hint="save it as UTF-8",
            line=line,
        ) from exc


def _tree(text: str, name: str) -> dict[str, Any]:
    import tomllib  # most homes have no settings

    from holdfast.settings.lines import too_deep

    if (deep := too_deep(text, NESTING_MAX)) is not None:
        raise Unusable(
            f"{name}, line {deep}: is nested deeper than {NESTING_MAX}",
            code="settings",
            hint="no setting is: see docs/settings.md",
            line=deep,
        )
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as exc:  # also errors that tomllib does not translate: numbers too long, lists too deep
        said = str(exc) if isinstance(exc, ValueError) else "is nested too deeply"
        found = _AT_LINE.search(said)
        line = (
            text.rstrip("\n").count("\n") + 1 if found is None else int(found.group(1))
        )  # an error without a line belongs to the last line
        hint = "it must be TOML: see docs/settings.md"
        raise Unusable(
            f"{name}, line {line}: {_AT.sub('', said)}", code="settings", hint=hint, line=line
        ) from exc


# --- walk


def _read(
    tree: Mapping[str, Any], path: Path, found: dict[Path, dict[str, Any]]
) -> Iterator[Problem]:
    """Walk the tables and put each valid value into `found`, by section."""
    keys = _keys(path)
    if keys is not None:
        found[path] = {}
        for key, value in tree.items():
            yield from _read_key((*path, key), value, keys, found[path])
        return
    below = _names_below(path)
    for name, value in tree.items():
        here = (*path, name)
        if ANY not in below and name not in below:
            yield Problem(
                here,
                f"there is no section [{'.'.join(map(_quoted, here))}]{did_you_mean(name, below)}",
                f"valid here: {', '.join(below)}",
            )
        elif not isinstance(value, Mapping):
            yield Problem(
                here,
                f"{'.'.join(map(_quoted, here))} must be a section, not {values.shown(value)}",
                "write it in brackets, on a line of its own",
            )
        elif ANY in below and not _is_chosen_name(here):
            yield Problem(
                here,
                f"{values.shown(name)} is no name that can be told from others",
                "use Unicode normal form C, and nothing invisible",
            )
        else:
            yield from _read(value, here, found)


def _read_key(
    path: Path, value: Any, keys: Mapping[str, Key], into: dict[str, Any]
) -> Iterator[Problem]:
    section, name = ".".join(map(_quoted, path[:-1])), path[-1]
    key = keys.get(ANY) or keys.get(name)
    if key is None:
        yield Problem(
            path,
            f"there is no key {values.shown(name)} in [{section}]{did_you_mean(name, keys)}",
            f"valid here: {', '.join(keys)}",
        )
    elif ANY in keys and (wrong := _wrong_chosen_key(path)):
        yield Problem(path, f"{values.shown(name)} in [{section}]: {wrong}")
    else:
        try:
            into[name] = key.read(value)
        except Wrong as exc:
            yield Problem((*path, *exc.at), f"{_quoted(name)} in [{section}]: {exc.text}")


def _keys(path: Path) -> Mapping[str, Key] | None:
    return SECTIONS.get(path) or SECTIONS.get((*path[:-1], ANY))


def _names_below(path: Path) -> list[str]:
    depth = len(path)
    return sorted(
        {section[depth] for section in SECTIONS if section[:depth] == path and len(section) > depth}
    )


def _is_chosen_name(path: Path) -> bool:
    """
    Names of agents appear on command lines and in journals, names of people come from channels.
    """
    return values.is_name(path[-1])


def _wrong_chosen_key(path: Path) -> str | None:
    match path:
        case ("people", _, channel) if not ID_PART.match(channel):
            return "no channel: use a-z, 0-9, '.', '_', '-'"
        case ("policy", _, tool) if not values.is_tool_name(tool):
            return 'no tool: use its own name (no MODULE: before it), or "*"'
        case _:
            return None


def _shared_identities(found: Mapping[Path, Mapping[str, Any]]) -> Iterator[Problem]:
    """Report each identity of two people, because it would identify neither."""
    owners: dict[tuple[str, str], str] = {}
    for path, identities in found.items():
        if path[0] == "people":
            for channel, identity in identities.items():
                owner = owners.setdefault((channel, identity), path[1])
                if owner != path[1]:
                    yield Problem(
                        (*path, channel),
                        f"{values.shown(identity)} on {channel} is {owner} already, and can't be "
                        f"{path[1]} too",
                    )


def _unknown_delegates(found: Mapping[Path, Mapping[str, Any]]) -> Iterator[Problem]:
    """
    Report each unknown delegate. Otherwise the error would appear only when a task is delegated.
    """
    agents = [path[1] for path in found if path[0] == "agents"]
    for path, keys in found.items():
        for name in keys.get("delegates", ()) if path[0] == "agents" else ():
            here = (*path, "delegates")
            if name == path[1]:
                yield Problem(
                    here,
                    f"delegates in [{'.'.join(map(_quoted, path))}]: an agent can't be its own "
                    "delegate",
                )
            elif name not in agents:
                yield Problem(
                    here,
                    f"delegates in [{'.'.join(map(_quoted, path))}]: there is no agent "
                    f"{values.shown(name)}{did_you_mean(name, agents)}",
                )


def _quoted(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{values.shown(part)[1:-1]}"'


# --- report


def _unusable(text: str, name: str, problems: list[Problem]) -> Unusable:
    from holdfast.settings.lines import line_of, places_of  # most homes have no errors

    places = places_of(text)
    placed = sorted(
        ((line_of(places, problem.path) or 1, problem) for problem in problems),
        key=lambda each: each[0],
    )
    said = [f"{name}, line {line}: {problem.text}" for line, problem in placed[:_PROBLEMS_MAX]]
    if len(placed) > _PROBLEMS_MAX:
        said.append("and more")
    hint = placed[0][1].hint or "docs/settings.md has every key with an example"
    return Unusable("\n".join(said), code="settings", hint=hint, line=placed[0][0])


# --- assemble


def _settings(found: Mapping[Path, Mapping[str, Any]]) -> Settings:
    given = {
        keys[name].field: value
        for path, keys in SECTIONS.items()
        for name, value in found.get(path, {}).items()
        if ANY not in keys
    }
    return Settings(
        configured={
            path[1]: _agent(path[1], keys) for path, keys in found.items() if path[0] == "agents"
        },
        people={path[1]: keys for path, keys in found.items() if path[0] == "people"},
        rules={Audience(path[1]): keys for path, keys in found.items() if path[0] == "policy"},
        **given,
    )


def _agent(name: str, keys: Mapping[str, Any]) -> AgentSpec:
    return AgentSpec(
        name=name,
        model=keys.get("model", DEFAULT_MODEL),
        instructions=keys.get("instructions", ""),
        tools=keys.get("tools", BUILTIN_TOOLS),
        delegates=keys.get("delegates", ()),
    )
