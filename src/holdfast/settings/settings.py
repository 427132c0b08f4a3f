"""The settings at one moment, as the assembly, policy and channels read them."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.ids import delegate_tool_name
from holdfast.ports.chat.messages import ChatKind
from holdfast.ports.model import ModelEndpoint
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import BUILTIN_TOOLS
from holdfast.runtime.context import CODING_AGENTS, AgentSpec
from holdfast.secrecy import SECRET_CHARS_MIN
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import WAYS, Policy, Rule, Way, place_of
from holdfast.session.view.compaction import CompactionRules
from holdfast.settings.values import is_name

DEFAULT_AGENT = "assistant"
DEFAULT_MODEL = "demo"
BUILT_IN_MODELS = frozenset({"demo", "script"})
LOCAL = "local"

_MICRO = 1_000_000


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Where the notice of a waiting prompt goes: a webhook or a command."""

    webhook: str | None = None
    secret_env: str | None = None  # signs the webhook
    command: tuple[str, ...] | None = None


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that starts turns, as the person that it names."""

    secret_env: str
    person: str
    session: str | None = None  # None: hooks/NAME
    text: str | None = None
    agent: str | None = None
    team: str | None = None


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A chat with people, as `[channels.NAME]` describes it."""

    kind: ChatKind
    bot_token_env: str
    app_token_env: str | None = None  # of Slack, over a socket
    signing_secret_env: str | None = None  # of Slack, over HTTP
    teams: Mapping[str, str] = {}  # by the platform's id of a channel
    answers: Literal["mentions", "all"] = "mentions"
    prompts: Literal["own", "all"] = "own"
    late_max: int = 24 * 3600
    agent: str | None = None
    page: str | None = None
    api: str | None = None  # None: the vendor's own

    @property
    def secret_variables(self) -> tuple[str, ...]:
        found = (self.bot_token_env, self.app_token_env, self.signing_secret_env)
        return tuple(each for each in found if each is not None)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    The values of holdfast.toml, or the defaults.

    >>> Settings().agents()["assistant"].model
    'demo'
    """

    configured: Mapping[str, AgentSpec] = {}
    models: Mapping[str, ModelEndpoint] = {}  # models at addresses of their own, by name
    servers: Mapping[str, ToolServer] = {}  # of tools, by name
    people: Mapping[str, Mapping[str, str]] = {}  # by name: identity by channel
    hooks: Mapping[str, Hook] = {}  # by name
    channels: Mapping[str, ChannelSettings] = {}  # by name
    rules: Mapping[Audience, Mapping[str, Rule]] = {}
    approvals_expire_after_seconds: int = limits.APPROVAL_EXPIRES_AFTER_SECONDS
    remember_for_seconds: int = limits.GRANT_EXPIRES_AFTER_SECONDS
    prompts_per_turn_max: int = limits.PROMPTS_PER_TURN_MAX
    on_message: Literal["supersede", "wait"] = "supersede"
    notify: Notify | None = None
    consent: tuple[Way, ...] = WAYS  # the ways in which an answer counts
    turn_model_calls_max: int = limits.MODEL_CALLS_PER_TURN_MAX
    turn_tool_calls_max: int = limits.TOOL_CALLS_PER_TURN_MAX
    turn_tokens_max: int | None = None
    turn_cost_max: float | None = None  # US dollars
    model_retry_for_seconds: float = limits.MODEL_RETRY_FOR_SECONDS
    view_tokens_max: int | None = None  # above this, older turns are summarised
    tool_timeout_seconds: float = limits.TOOL_TIMEOUT_SECONDS
    recall_within_ms: int = round(
        limits.MEMORY_RECALL_SECONDS * 1000
    )  # 0: nothing is recalled automatically
    session_jobs_max: int = limits.JOBS_PER_SESSION_MAX
    home_jobs_max: int = limits.JOBS_PER_HOME_MAX
    job_seconds: float = limits.JOB_SECONDS
    shell_confine: Literal["auto", "require", "off"] = "auto"
    tools_folder: str | None = (
        None  # the folder for module:function tools, beside installed packages
    )
    tools_app: str | None = None  # MODULE:AGENT, the default of `--app`; a path is below the home
    shell_network: Literal["ask", "never", "always"] = "ask"
    shell_read: tuple[
        str, ...
    ] = ()  # paths that confined commands may read, beside the system and the workspace
    secret_names: tuple[str, ...] = ()
    allow_network_filesystem: bool = False
    storage_url: str | None = None  # of a PostgreSQL database; None: files in the home's folder
    storage_schema: str = "holdfast"
    storage_listen_url: str | None = None  # the server itself, where storage_url is a pooler
    storage_allow_plaintext: bool = False
    retain_sessions_seconds: int | None = None
    retain_outputs_seconds: int | None = None
    retain_quarantine_seconds: int | None = None
    mcp_wait_seconds: float = limits.MCP_WAIT_SECONDS  # of a client, for a person's answer
    telemetry_otlp: str | None = None  # the collector's address; None: nothing is exported
    telemetry_key_env: str | None = None
    telemetry_key_header: str | None = None  # None: Authorization, with Bearer
    telemetry_content: bool = False
    serve_host: str = "127.0.0.1"
    serve_port: int = 8321
    serve_workers: int = 1  # processes that answer at the port
    serve_hosts: tuple[str, ...] = ()  # further values that a request's Host may have
    serve_allow_remote: bool = False
    serve_stop_seconds: int = (
        10  # how long a running tool may continue after the server was asked to stop
    )
    serve_workspace: str | None = (
        None  # the workspace for messages over HTTP; by default the folder where the server started
    )

    def agents(self) -> dict[str, AgentSpec]:
        """Return the agents of the settings; without any, return the demo agent."""
        return dict(self.configured) or {
            DEFAULT_AGENT: AgentSpec(name=DEFAULT_AGENT, model=DEFAULT_MODEL, tools=BUILTIN_TOOLS)
        }

    @property
    def default_agent(self) -> str:
        """Return `assistant` if it exists, else the first agent in the file."""
        agents = self.agents()
        return DEFAULT_AGENT if DEFAULT_AGENT in agents else next(iter(agents))

    def policy(self) -> Policy:
        return Policy(
            rules=self.rules,
            on_message=self.on_message,
            expires_after_seconds=self.approvals_expire_after_seconds,
            prompts_per_turn_max=self.prompts_per_turn_max,
            turn_model_calls_max=self.turn_model_calls_max,
            turn_tool_calls_max=self.turn_tool_calls_max,
            turn_tokens_max=self.turn_tokens_max,
            turn_cost_microusd_max=None
            if self.turn_cost_max is None
            else round(self.turn_cost_max * _MICRO),
            model_retry_for_seconds=self.model_retry_for_seconds,
            session_jobs_max=self.session_jobs_max,
            home_jobs_max=self.home_jobs_max,
            job_seconds=self.job_seconds,
            consent=self.consent,
            remember_for_seconds=self.remember_for_seconds,
            people=self.people,
        )

    def compaction(self) -> CompactionRules:
        return CompactionRules(at_tokens=self.view_tokens_max)

    def person_for(self, channel: str, identity: str) -> str | None:
        """
        Return the person with this authenticated identity, or None if it is unknown.

        Identities are compared exactly: a different case or normal form is a different identity. On
        the local channel an unlisted user keeps their login name. A listed person is recognised
        only by the listed identities, so nobody becomes them by having the same login name.
        """
        if not is_name(identity):
            return None
        for name, identities in self.people.items():
            if identities.get(channel) == identity:
                return name
        return identity if channel == LOCAL and identity not in self.people else None

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Return the variables whose values are known secrets by this file."""
        keys = [each.key_env for each in self.models.values() if each.key_env is not None]
        keys += [self.telemetry_key_env] if self.telemetry_key_env is not None else []
        keys += [hook.secret_env for hook in self.hooks.values()]
        keys += [name for each in self.channels.values() for name in each.secret_variables]
        keys += [self.notify.secret_env] if self.notify and self.notify.secret_env else []
        keys += [name for each in self.servers.values() for name in each.secret_variables]
        return tuple(dict.fromkeys((*self.secret_names, *keys)))

    def secret_values(
        self, environment: Mapping[str, str], *, beside: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """
        Return the values that must appear nowhere: those of the variables that settings name, and
        those of `beside`.
        """
        if short := self.short_secrets(environment):
            raise Unusable(
                f"holdfast.toml: {short[0]}",
                code="settings",
                hint="`holdfast config check` lists all; give it a longer value, or name it no "
                "more",
            )
        names = dict.fromkeys((*self.secret_variables, *beside))
        return tuple(environment[name] for name in names if environment.get(name))

    def short_secrets(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """
        Return a sentence, without the value, for each variable of `secrets.env` whose value is too
        short to be found in a text.

        >>> Settings(secret_names=("PIN",)).short_secrets({"PIN": "1234"})
        ('[secrets] env names PIN, whose value has 4 characters; a secret has at least 8',)
        """
        return tuple(
            f"[secrets] env names {name}, whose value has {len(value)} characters; a secret has at "
            f"least {SECRET_CHARS_MIN}"
            for name in self.secret_names
            if 0 < len(value := environment.get(name, "")) < SECRET_CHARS_MIN
        )

    def unknown_tools(self, known: Iterable[str]) -> tuple[str, ...]:
        """
        Return a sentence for each rule with an unknown tool: a misspelt "deny" denies nothing.

        >>> Settings(rules={Audience.TEAM: {"shel": Rule(mode="deny")}}).unknown_tools(["shell"])
        ("[policy.team]: no tool 'shel'; did you mean 'shell'?",)
        """
        names = sorted(set(known))
        return tuple(
            f"{place_of(audience, rule)}: no tool {tool!r}"
            + (did_you_mean(tool, names) or ". If it is in your program, add --app MODULE:AGENT")
            for audience, rules in self.rules.items()
            for tool, rule in rules.items()
            if tool != "*" and tool not in names and not self.is_of_a_server(tool)
        )

    def is_of_a_server(self, tool: str) -> bool:
        """
        Whether a server of these settings, or a coding agent, could have this tool. Only it knows
        its tools.
        """
        server, dot, _ = tool.partition(".")
        return bool(dot) and (server in self.servers or server in CODING_AGENTS)

    def unknown_at_hand(
        self, known: Iterable[str], beside: Iterable[AgentSpec] = ()
    ) -> tuple[str, ...]:
        """
        Return a sentence for each unknown tool of an agent or a rule, as far as this is known
        without importing a user's program.

        `beside` are agents that the file does not have.

        A module:function tool is not checked. While there is one, its name is unknown, so rules are
        not checked either.
        """
        agents = [*self.agents().values(), *beside]
        wanted = [(spec.name, tool) for spec in agents for tool in spec.tools]
        names = [*known, *(delegate_tool_name(each) for spec in agents for each in spec.delegates)]
        missing = [
            no_such_tool(name, tool, names)
            for name, tool in wanted
            if ":" not in tool and tool not in names and not self.is_of_a_server(tool)
        ]
        return (
            *missing,
            *(() if any(":" in tool for _, tool in wanted) else self.unknown_tools(names)),
        )


def no_such_tool(agent: str, tool: str, known: Iterable[str]) -> str:
    return f"agent {agent}: no tool {tool!r}{did_you_mean(tool, known)}"


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    from difflib import get_close_matches  # only needed for an error

    near = get_close_matches(word, list(valid), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
