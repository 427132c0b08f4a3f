"""
Parse holdfast.toml into Settings. The whole file is valid, or every error is reported with its
line.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec

from holdfast.errors import Unusable
from holdfast.ids import ID_PART
from holdfast.limits import JSON_DEPTH_MAX, KIB
from holdfast.ports.model import ModelEndpoint
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import BUILTIN_TOOLS
from holdfast.runtime.context import AgentSpec
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Rule
from holdfast.settings import values
from holdfast.settings.keys import ANY, SECTIONS, Key
from holdfast.settings.problems import Path, Problem, quoted
from holdfast.settings.server_sections import unfit_servers
from holdfast.settings.settings import (
    BUILT_IN_MODELS,
    DEFAULT_MODEL,
    ChannelSettings,
    Hook,
    Settings,
    did_you_mean,
)
from holdfast.settings.values import Wrong

BYTES_MAX = 64 * KIB  # read for every decision, by a person and by the program
NESTING_MAX = JSON_DEPTH_MAX  # the one bound for everything that is parsed
_PROBLEMS_MAX = 20  # reported at once; the rest follows after these are fixed
_AT = re.compile(r" \(at .*\)\Z")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)\Z")


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
            chain(
                _read(tree, (), found),
                _shared_identities(found),
                _unknown_delegates(found),
                _unfit_models(found),
                _unfit_hooks(found),
                unfit_servers(found, tree),
                _unfit_channels(found),
            ),
            _PROBLEMS_MAX + 1,
        )
    )
    if problems:
        raise _unusable(text, name, problems)
    return _settings(found, text)


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
            hint="no setting is: see docs/reference/settings.md",
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
        hint = "it must be TOML: see docs/reference/settings.md"
        raise Unusable(
            f"{name}, line {line}: {_AT.sub('', said)}", code="settings", hint=hint, line=line
        ) from exc


# --- walk


def _read(
    tree: Mapping[str, Any], path: Path, found: dict[Path, dict[str, Any]]
) -> Iterator[Problem]:
    """Walk the tables and put each valid value into `found`, by section."""
    keys, below = _keys(path), _names_below(path)
    if keys is not None:
        found[path] = {}
    for name, value in tree.items():
        here = (*path, name)
        is_section = bool(below) and isinstance(value, Mapping) and name not in (keys or {})
        if keys is not None and not is_section:
            yield from _read_key(here, value, keys, found[path])
        elif ANY not in below and name not in below:
            yield Problem(
                here,
                f"no section [{'.'.join(map(quoted, here))}]{did_you_mean(name, below)}",
                f"valid here: {', '.join(below)}",
            )
        elif not isinstance(value, Mapping):
            yield Problem(
                here,
                f"{'.'.join(map(quoted, here))} must be a section, not {values.shown(value)}",
                "write it in brackets, on a line of its own",
            )
        elif ANY in below and not _is_chosen_name(here):
            yield Problem(
                here,
                f"{values.shown(name)} could be mistaken for another name",
                "use Unicode normal form C, and nothing invisible",
            )
        else:
            yield from _read(value, here, found)


def _read_key(
    path: Path, value: Any, keys: Mapping[str, Key], into: dict[str, Any]
) -> Iterator[Problem]:
    section, name = ".".join(map(quoted, path[:-1])), path[-1]
    key = keys.get(ANY) or keys.get(name)
    if key is None:
        yield Problem(
            path,
            f"no key {values.shown(name)} in [{section}]{did_you_mean(name, keys)}",
            f"valid here: {', '.join(keys)}",
        )
    elif ANY in keys and (wrong := _wrong_chosen_key(path)):
        yield Problem(path, f"{values.shown(name)} in [{section}]: {wrong}")
    else:
        try:
            into[name] = key.read(value)
        except Wrong as exc:
            yield Problem((*path, *exc.at), f"{quoted(name)} in [{section}]: {exc.text}")


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
                    f"delegates in [{'.'.join(map(quoted, path))}]: an agent can't be its own "
                    "delegate",
                )
            elif name not in agents:
                yield Problem(
                    here,
                    f"delegates in [{'.'.join(map(quoted, path))}]: no agent "
                    f"{values.shown(name)}{did_you_mean(name, agents)}",
                )


def _unfit_models(found: Mapping[Path, Mapping[str, Any]]) -> Iterator[Problem]:
    """
    Report each model whose name is a model already, that says too little, or whose key anybody on
    the way could read.
    """
    for path, keys in found.items():
        if path[0] != "models":
            continue
        section = f"[{'.'.join(map(quoted, path))}]"
        if ":" in path[1] or path[1] in BUILT_IN_MODELS:
            yield Problem(
                path,
                f"{section}: {values.shown(path[1])} names another model already",
                "choose a name without ':', other than demo and script",
            )
        if "model" not in keys:
            yield Problem(
                path, f"{section} has no model", 'add model = "PROVIDER:MODEL" to the section'
            )
        if "key_env" in keys and not values.is_private(keys.get("base_url", "https://")):
            yield Problem(
                (*path, "base_url"),
                f"base_url in {section}: must be https, since key_env sends a key there",
            )


def _unfit_hooks(found: Mapping[Path, Mapping[str, Any]]) -> Iterator[Problem]:
    """Report each webhook that lacks a key, or whose name is not a part of a path."""
    for path, keys in found.items():
        if path[0] != "hooks":
            continue
        section = f"[{'.'.join(map(quoted, path))}]"
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", path[1]):
            yield Problem(
                path,
                f"{section}: {values.shown(path[1])} is not a name for a webhook",
                "use a-z, 0-9, - and _, as in [hooks.deploys]",
            )
        for key, example in (("secret_env", "DEPLOY_HOOK_SECRET"), ("person", "alice")):
            if key not in keys:
                yield Problem(path, f"{section} has no {key}", f'add {key} = "{example}"')


_TAKEN = frozenset({"local", "hooks", "delegate", "http", "webhook", "talk", "team", "none"})


def _unfit_channels(found: Mapping[Path, Mapping[str, Any]]) -> Iterator[Problem]:
    """Report each channel that lacks a key, or whose sessions another channel would share."""
    for path, keys in found.items():
        if path[0] != "channels":
            continue
        section = f"[{'.'.join(map(quoted, path))}]"
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", path[1]) or path[1] in _TAKEN:
            yield Problem(
                path,
                f"{section}: {values.shown(path[1])} is not a name for a channel",
                f"use a-z, 0-9, - and _, at most 32 of them; not {', '.join(sorted(_TAKEN))}",
            )
        for key, example in (("kind", "telegram"), ("bot_token_env", "BOT_TOKEN")):
            if key not in keys:
                yield Problem(path, f"{section} has no {key}", f'add {key} = "{example}"')
        slack = {"app_token_env", "signing_secret_env"} & set(keys)
        if keys.get("kind") == "slack" and len(slack) != 1:
            yield Problem(
                path,
                f"{section} must have exactly one of app_token_env and signing_secret_env",
                'add app_token_env = "SLACK_APP_TOKEN"; it needs no address of yours',
            )
        elif keys.get("kind") != "slack" and slack:
            extra = min(slack)
            yield Problem((*path, extra), f"{extra} in {section}: only Slack has it")


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
    hint = placed[0][1].hint or "docs/reference/settings.md has every key with an example"
    return Unusable("\n".join(said), code="settings", hint=hint, line=placed[0][0])


# --- assemble


def _settings(found: Mapping[Path, Mapping[str, Any]], text: str) -> Settings:
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
        models={
            path[1]: ModelEndpoint(**keys) for path, keys in found.items() if path[0] == "models"
        },
        channels={
            path[1]: ChannelSettings(**keys)
            for path, keys in found.items()
            if path[0] == "channels"
        },
        hooks={path[1]: Hook(**keys) for path, keys in found.items() if path[0] == "hooks"},
        servers={
            path[1]: ToolServer(**keys)
            for path, keys in found.items()
            if path[0] == "mcp" and path != ("mcp",)
        },
        people={path[1]: keys for path, keys in found.items() if path[0] == "people"},
        rules={
            Audience(path[1]): _placed_rules(path, keys, text)
            for path, keys in found.items()
            if path[0] == "policy"
        },
        **given,
    )


def _placed_rules(path: Path, rules: Mapping[str, Rule], text: str) -> dict[str, Rule]:
    """Add to each rule the line that it stands on, so that a prompt can name it."""
    from holdfast.settings.lines import line_of, places_of  # most homes have no rules

    places = places_of(text)
    return {
        tool: msgspec.structs.replace(rule, line=line_of(places, (*path, tool)))
        for tool, rule in rules.items()
    }


def _agent(name: str, keys: Mapping[str, Any]) -> AgentSpec:
    return AgentSpec(
        name=name,
        model=keys.get("model", DEFAULT_MODEL),
        instructions=keys.get("instructions", ""),
        tools=keys.get("tools", BUILTIN_TOOLS),
        delegates=keys.get("delegates", ()),
    )
