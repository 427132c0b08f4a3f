"""`holdfast config show | check`: the present settings, and the errors in the file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.commands.config import explain
from holdfast.cli.output.result import encoded
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from holdfast.ports.model import ModelEndpoint
    from holdfast.ports.tool_servers import ToolServer
    from holdfast.runtime.context import AgentSpec
    from holdfast.settings import Settings

SERVER_KEYS_ON_PIPES = ("command", "env", "network", "read", "write")


def register(app: typer.Typer) -> None:
    config = group(
        "config",
        "The settings in holdfast.toml.",
        example="holdfast config check\nholdfast config explain ops/api shell",
    )
    app.add_typer(config)

    @command(config, "show", example="holdfast config show")
    def show(ctx: typer.Context) -> None:
        """
        Show the settings in force: those of the file, and defaults for the rest. Values of secrets
        are never shown.
        """
        _show(options_of(ctx))

    @command(config, "check", example="holdfast config check")
    def check(ctx: typer.Context) -> None:
        """
        Read the settings as every command does, and look at what they name.

        Exits 0 when they can be used, 2 when the file can't (line, key and the nearest valid key
        are named), 1 when it names tools or models that are not here.
        """
        _check(options_of(ctx))

    explain.register(config)


def _show(options: Options) -> None:
    path, settings = _settings(options)
    sections = _without_secrets(settings, sections_of(settings))
    if options.out.json:
        options.out.object(
            {
                "home": str(path.parent),
                "file": str(path),
                "exists": path.exists(),
                "settings": sections,
            }
        )
        return
    lines = [f"# {path}" + ("" if path.exists() else " is not there: these are the defaults")]
    for section, keys in sections.items():
        lines += [
            "",
            f"[{section}]",
            *(f"{key} = {encoded(value)}" for key, value in keys.items() if value is not None),
        ]
    options.out.verbatim("\n".join(lines))


def _settings(options: Options) -> Any:
    from holdfast.settings import FILE_NAME, SettingsSource

    home = home_of(options)
    return home / FILE_NAME, SettingsSource(home).now()


def sections_of(settings: "Settings") -> dict[str, dict[str, Any]]:
    """Return the settings in the form of the file."""
    import msgspec

    from holdfast.settings.keys import ANY, SECTIONS

    agents = settings.agents()
    return {
        **{f"agents.{name}": _agent(spec) for name, spec in agents.items()},
        **{f"models.{name}": _endpoint(each) for name, each in settings.models.items()},
        **{f"mcp.{name}": _server(each) for name, each in settings.servers.items()},
        **{f"people.{name}": dict(identities) for name, identities in settings.people.items()},
        **{
            f"policy.{audience.value}": {
                tool: _rule(msgspec.to_builtins(rule)) for tool, rule in rules.items()
            }
            for audience, rules in settings.rules.items()
        },
        **{
            ".".join(path): {
                name: key.said(getattr(settings, key.field)) for name, key in keys.items()
            }
            for path, keys in SECTIONS.items()
            if ANY not in (*path, *keys)
        },
    }


def _without_secrets(
    settings: "Settings", sections: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Hide a value that contains a known secret, such as a webhook's address."""
    import msgspec

    from holdfast.secrecy import secrecy_of

    written = msgspec.json.encode(sections)
    shown: dict[str, dict[str, Any]] = msgspec.json.decode(
        secrecy_of(
            tuple(os.environ.get(name, "") for name in settings.secret_variables)
        ).hidden_json(written)
    )
    return shown


def _agent(spec: "AgentSpec") -> dict[str, Any]:
    return {
        "model": spec.model,
        "instructions": spec.instructions,
        "tools": list(spec.tools),
        "delegates": list(spec.delegates),
    }


def _endpoint(endpoint: "ModelEndpoint") -> dict[str, Any]:
    import msgspec

    return {**msgspec.structs.asdict(endpoint), "headers": dict(endpoint.headers) or None}


def _server(server: "ToolServer") -> dict[str, Any]:
    """Return the keys that hold for this kind of server."""
    import msgspec

    kept = ("url", "token_env") if server.url is not None else SERVER_KEYS_ON_PIPES
    fields: dict[str, Any] = msgspec.to_builtins(server)
    return {key: fields[key] for key in (*kept, "trust_hints", "relay")}


def _rule(rule: dict[str, Any]) -> Any:
    rest = {key: value for key, value in rule.items() if key != "mode" and value is not None}
    return {"mode": rule["mode"], **rest} if rest else rule["mode"]


def _check(options: Options) -> None:
    path, settings = _settings(options)
    problems = problems_of(settings, path.parent, app=options.app)
    if options.out.json:
        options.out.object({"file": str(path), "exists": path.exists(), "problems": problems})
    else:
        for each in problems:
            options.out.text(each)
        if not problems:
            options.out.text(
                f"{path} is fine" if path.exists() else f"{path} is not there; the defaults hold"
            )
    raise typer.Exit(1 if problems else 0)


def problems_of(settings: "Settings", home: Path, *, app: str | None = None) -> list[str]:
    """Return the names in the settings that this install does not have."""
    from holdfast.adapters.models.endpoints import EndpointModels
    from holdfast.assembly.lazy_adapters import LazyModels, LazyTools
    from holdfast.cli.shared.app_option import agents_of
    from holdfast.ids import delegate_tool_name
    from holdfast.settings import no_such_tool

    problems = []
    try:
        given = agents_of(app, home)
        own, program = given.tools, given.program
    except Unusable as exc:
        problems.append(f"{exc.message} ({exc.hint})")
        own, program = [], None
    models = EndpointModels(LazyModels(), lambda: settings.models)
    tools = LazyTools(own, settings, program=program)
    if set(settings.consent) == {"channels"}:
        problems.append(
            "approvals.consent names channels alone, and no channel can answer: every prompt would "
            "stand until it expires"
        )
    known = list(tools.names())
    for name, spec in settings.agents().items():
        for tool in spec.tools:
            if settings.is_of_a_server(tool):
                continue  # only the server knows its tools: `holdfast mcp check`
            try:
                found = tools.get(tool)
            except Unusable as exc:
                problems.append(f"agent {name}: {exc.message} ({exc.hint})")
                continue
            if found is None:
                problems.append(no_such_tool(name, tool, known))
            else:
                known.append(found.definition.name)
        known += [delegate_tool_name(each) for each in spec.delegates]
        try:
            models.resolve(spec.model)
        except Unusable as exc:
            problems.append(f"agent {name}: {exc.message} ({exc.hint})")
    used = {spec.model for spec in settings.agents().values()}
    for name in settings.models:
        try:
            if name not in used:
                models.resolve(name)
        except Unusable as exc:
            problems.append(f"[models.{name}]: {exc.message} ({exc.hint})")
    return [*problems, *settings.unknown_tools(known), *settings.short_secrets(os.environ)]
