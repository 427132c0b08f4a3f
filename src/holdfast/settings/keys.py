"""
Every section and key of holdfast.toml: how each is read, and its default.

docs/reference/settings.md documents exactly these; a test compares the two.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast import limits
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import WAYS, Rule
from holdfast.settings import values
from holdfast.settings.settings import DEFAULT_MODEL, Notify, did_you_mean
from holdfast.settings.values import Reader, Wrong


class Key(NamedTuple):
    read: Reader
    default: str  # as written in docs/reference/settings.md
    field: str = ""  # the field of Settings, if one holds it; else its section is read as a whole
    said: Callable[[Any], Any] = lambda value: value  # back to the form in the file


def rule(value: Any) -> Rule:
    """
    >>> rule({"ask": ["bob"], "expires_after": "1d"}).approvers
    ('bob',)
    """
    match value:
        case "auto" | "ask" | "deny":
            return Rule(mode=value)
        case Mapping():
            found = table(value, RULE_KEYS)
        case _:
            raise Wrong(
                f'must be "auto", "ask", "deny" or a table such as {{ ask = ["bob"] }}, not '
                f"{values.shown(value)}"
            )
    if not found.get("requester_may_answer", True) and "ask" not in found:
        raise Wrong('names nobody who may answer: add ask = ["NAME"], or write "deny"')
    return Rule(
        mode="ask",
        approvers=found.get("ask"),
        requester_may_answer=found.get("requester_may_answer"),
        expires_after_seconds=found.get("expires_after"),
        remember=found.get("remember"),
    )


def notify(value: Any) -> Notify:
    if not isinstance(value, Mapping):
        raise Wrong(
            f'must be a table such as {{ webhook = "https://..." }}, not {values.shown(value)}'
        )
    found = table(value, NOTIFY_KEYS)
    if ("webhook" in found) == ("command" in found):
        raise Wrong("must have exactly one of webhook and command")
    if "secret_env" in found and "webhook" not in found:
        raise Wrong("secret_env signs a webhook; a command has none", at=("secret_env",))
    return Notify(**found)


def table(value: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    """Read a table inside a value."""
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key not in keys:
            raise Wrong(
                f"has an unknown key {values.shown(key)}{did_you_mean(key, keys)} (valid: "
                f"{', '.join(keys)})",
                at=(key,),
            )
        try:
            found[key] = keys[key].read(each)
        except Wrong as exc:
            raise Wrong(f"{key}: {exc.text}", at=(key, *exc.at)) from None
    return found


_expiry = values.duration(values.YEAR_SECONDS)
_retention = values.duration(100 * values.YEAR_SECONDS)

RULE_KEYS: Mapping[str, Key] = {
    "ask": Key(values.list_of(values.name), "nobody but the requester"),
    "requester_may_answer": Key(values.yes_or_no, "`true`, but `false` with `ask = []`"),
    "expires_after": Key(_expiry, "`approvals.expires_after`"),
    "remember": Key(
        values.one_of("never", "session", "any"),
        '`"never"` with `ask` or `requester_may_answer = false`, else `"any"`',
    ),
}
NOTIFY_KEYS: Mapping[str, Key] = {
    "webhook": Key(values.webhook, "none"),
    "secret_env": Key(values.variable, "none: it is not signed"),
    "command": Key(values.words, "none"),
}

ANY = "*"
SECTIONS: Mapping[tuple[str, ...], Mapping[str, Key]] = {
    # By path. ANY stands for a name, or for keys, that the file chooses.
    ("agents", ANY): {
        "model": Key(values.some_text, f'`"{DEFAULT_MODEL}"`'),
        "instructions": Key(values.text, "none"),
        "tools": Key(values.list_of(values.agents_tool), "all built-in tools"),
        "delegates": Key(values.list_of(values.delegate), "none"),
    },
    ("models", ANY): {
        "model": Key(values.provider_model, "must be given"),
        "base_url": Key(values.base_url, "the provider's own"),
        "key_env": Key(values.variable, "the provider's own, or none with `base_url`"),
        "temperature": Key(values.temperature, "the model's own"),
        "max_output_tokens": Key(values.whole_number(1, 10**7), "the model's own"),
        "headers": Key(values.headers, "none"),
    },
    ("mcp",): {
        "wait": Key(values.duration(3600), '`"45s"`', "mcp_wait_seconds", values.duration_text),
    },
    ("mcp", ANY): {
        "command": Key(values.words, "none"),
        "env": Key(values.list_of(values.variable), "none"),
        "network": Key(values.yes_or_no, "`false`"),
        "read": Key(values.list_of(values.readable_path), "none"),
        "write": Key(values.list_of(values.readable_path), "none"),
        "url": Key(values.server_url, "none"),
        "token_env": Key(values.variable, "none"),
        "login": Key(values.one_of("client", "person"), '`"person"`'),
        "issuer": Key(values.issuer, "the server's own"),
        "client_id": Key(values.some_text, "as the issuer gives it"),
        "client_secret_env": Key(values.variable, "none"),
        "client_key_env": Key(values.variable, "none"),
        "identity_file": Key(values.readable_path, "none"),
        "identity_issuer": Key(values.issuer, "none"),
        "identity_client_id": Key(values.some_text, "`client_id`"),
        "scopes": Key(values.list_of(values.scope), "as the server asks"),
        "trust_hints": Key(values.yes_or_no, "`false`"),
        "relay": Key(values.list_of(values.one_of("prompts", "resources")), "none"),
    },
    ("people", ANY): {ANY: Key(values.name, "none")},
    ("hooks", ANY): {
        "secret_env": Key(values.variable, "must be given"),
        "person": Key(values.name, "must be given"),
        "session": Key(values.session_name, "hooks, a slash and NAME"),
        "text": Key(values.some_text, "a sentence that names the webhook"),
        "agent": Key(values.some_text, "the default agent"),
        "team": Key(values.name, "none: the person alone"),
    },
    ("channels", ANY): {
        "kind": Key(values.one_of("slack", "telegram", "discord"), "must be given"),
        "bot_token_env": Key(values.variable, "must be given"),
        "app_token_env": Key(values.variable, "none"),
        "signing_secret_env": Key(values.variable, "none"),
        "teams": Key(values.teams, "none: every channel is public"),
        "answers": Key(values.one_of("mentions", "all"), '`"mentions"`'),
        "prompts": Key(values.one_of("own", "all"), '`"own"`'),
        "late_max": Key(_expiry, '`"1d"`'),
        "agent": Key(values.some_text, "the default agent"),
        "page": Key(values.page, "none: the command that shows a prompt"),
        "api": Key(values.webhook, "the platform's own"),
    },
    ("policy", Audience.PERSONAL.value): {ANY: Key(rule, "the tool's own")},
    ("policy", Audience.TEAM.value): {ANY: Key(rule, "the tool's own")},
    ("policy", Audience.PUBLIC.value): {ANY: Key(rule, "the tool's own")},
    ("approvals",): {
        "expires_after": Key(
            _expiry, '`"7d"`', "approvals_expire_after_seconds", values.duration_text
        ),
        "remember_for": Key(_expiry, '`"30d"`', "remember_for_seconds", values.duration_text),
        "prompts_per_turn_max": Key(
            values.whole_number(0, 1000), f"`{limits.PROMPTS_PER_TURN_MAX}`", "prompts_per_turn_max"
        ),
        "on_message": Key(values.one_of("supersede", "wait"), '`"supersede"`', "on_message"),
        "notify": Key(notify, "none", "notify"),
        "consent": Key(
            values.list_of(values.one_of(*WAYS), least=1),
            f"all: `{msgspec.json.encode(WAYS).decode()}`",
            "consent",
            list,
        ),
    },
    ("limits",): {
        "turn_model_calls_max": Key(
            values.whole_number(1, 10_000),
            f"`{limits.MODEL_CALLS_PER_TURN_MAX}`",
            "turn_model_calls_max",
        ),
        "turn_tool_calls_max": Key(
            values.whole_number(1, 10_000),
            f"`{limits.TOOL_CALLS_PER_TURN_MAX}`",
            "turn_tool_calls_max",
        ),
        "turn_tokens_max": Key(values.whole_number(1, 10**12), "none", "turn_tokens_max"),
        "turn_cost_max": Key(values.dollars, "none", "turn_cost_max"),
        "view_tokens_max": Key(
            values.whole_number(1_000, 10**9),
            "three quarters of the model's window",
            "view_tokens_max",
        ),
        "model_retry_for": Key(
            values.duration(24 * 3600), '`"15m"`', "model_retry_for_seconds", values.duration_text
        ),
        "tool_timeout": Key(
            values.duration(24 * 3600), '`"2m"`', "tool_timeout_seconds", values.duration_text
        ),
        "session_jobs_max": Key(
            values.whole_number(0, 1000), f"`{limits.JOBS_PER_SESSION_MAX}`", "session_jobs_max"
        ),
        "home_jobs_max": Key(
            values.whole_number(0, 10_000), f"`{limits.JOBS_PER_HOME_MAX}`", "home_jobs_max"
        ),
        "job_timeout": Key(
            values.duration(24 * 3600), '`"1h"`', "job_seconds", values.duration_text
        ),
    },
    ("memory",): {
        "recall_within_ms": Key(
            values.whole_number(0, 60_000),
            f"`{limits.MEMORY_RECALL_SECONDS * 1000:g}`",
            "recall_within_ms",
        )
    },
    ("tools", "shell"): {
        "confine": Key(values.one_of("auto", "require", "off"), '`"auto"`', "shell_confine"),
        "network": Key(values.one_of("ask", "never", "always"), '`"ask"`', "shell_network"),
        "read": Key(values.list_of(values.readable_path), "none", "shell_read"),
    },
    ("tools", "python"): {
        "folder": Key(
            values.some_text, "the folder that a module was loaded from first", "tools_folder"
        ),
        "app": Key(values.some_text, "none", "tools_app"),
    },
    ("secrets",): {"env": Key(values.list_of(values.variable), "none", "secret_names")},
    ("storage",): {
        "allow_network_filesystem": Key(values.yes_or_no, "`false`", "allow_network_filesystem"),
        "url": Key(values.some_text, "none: files in the home's folder", "storage_url"),
        "schema": Key(values.some_text, '`"holdfast"`', "storage_schema"),
        "listen_url": Key(values.some_text, "the value of `url`", "storage_listen_url"),
        "allow_plaintext": Key(values.yes_or_no, "`false`", "storage_allow_plaintext"),
    },
    ("retention",): {
        "sessions": Key(
            _retention, "kept for good", "retain_sessions_seconds", values.duration_text
        ),
        "outputs": Key(_retention, "kept for good", "retain_outputs_seconds", values.duration_text),
        "quarantine": Key(
            _retention, "kept for good", "retain_quarantine_seconds", values.duration_text
        ),
    },
    ("telemetry",): {
        "otlp": Key(values.collector, "none: nothing is exported", "telemetry_otlp"),
        "key_env": Key(values.variable, "none", "telemetry_key_env"),
        "key_header": Key(
            values.header_name, "none: `Authorization`, with `Bearer`", "telemetry_key_header"
        ),
        "content": Key(values.yes_or_no, "`false`", "telemetry_content"),
    },
    ("serve",): {
        "host": Key(values.host, '`"127.0.0.1"`', "serve_host"),
        "port": Key(values.whole_number(0, 65535), "`8321`", "serve_port"),
        "workers": Key(values.whole_number(1, limits.WORKERS_MAX), "`1`", "serve_workers"),
        "hosts": Key(values.list_of(values.some_text), "none", "serve_hosts"),
        "allow_remote": Key(values.yes_or_no, "`false`", "serve_allow_remote"),
        "workspace": Key(
            values.some_text, "the folder that `serve` was started in", "serve_workspace"
        ),
        "stop_after": Key(
            values.duration(values.YEAR_SECONDS),
            '`"10s"`',
            "serve_stop_seconds",
            values.duration_text,
        ),
    },
}
