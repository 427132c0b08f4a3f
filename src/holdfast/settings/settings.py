"""The settings at one moment, as wiring, policy and channels read them."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.ids import delegate_tool_name
from holdfast.ports.tools import BUILTIN_TOOLS
from holdfast.runtime.context import AgentSpec
from holdfast.secrecy import SECRET_CHARS_MIN
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import WAYS, Policy, Rule, Way
from holdfast.session.view.compaction import CompactionRules
from holdfast.settings.values import is_name

DEFAULT_AGENT = "assistant"
DEFAULT_MODEL = "demo"
LOCAL = "local"

_MICRO = 1_000_000


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Where the notice of a waiting prompt goes: exactly one of the two."""

    webhook: str | None = None
    command: tuple[str, ...] | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    The values of holdfast.toml, or the defaults.

    >>> Settings().agents()["assistant"].model
    'demo'
    """

    configured: Mapping[str, AgentSpec] = {}
    people: Mapping[str, Mapping[str, str]] = {}  # by name: identity by channel
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
    shell_network: Literal["ask", "never", "always"] = "ask"
    shell_read: tuple[
        str, ...
    ] = ()  # paths that confined commands may read, beside the system and the workspace
    secret_names: tuple[str, ...] = ()
    allow_network_filesystem: bool = False
    retain_sessions_seconds: int | None = None
    retain_outputs_seconds: int | None = None
    retain_quarantine_seconds: int | None = None
    serve_host: str = "127.0.0.1"
    serve_port: int = 8321
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
        names = dict.fromkeys((*self.secret_names, *beside))
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
        ("[policy.team] has a rule for 'shel', and there is no such tool; did you mean 'shell'?",)
        """
        names = sorted(set(known))
        return tuple(
            f"[policy.{audience.value}] has a rule for {tool!r}, and there is no such tool"
            + did_you_mean(tool, names)
            for audience, rules in self.rules.items()
            for tool in rules
            if tool != "*" and tool not in names
        )

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
            if ":" not in tool and tool not in names
        ]
        return (
            *missing,
            *(() if any(":" in tool for _, tool in wanted) else self.unknown_tools(names)),
        )


def no_such_tool(agent: str, tool: str, known: Iterable[str]) -> str:
    return f"agent {agent}: there is no tool {tool!r}{did_you_mean(tool, known)}"


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    from difflib import get_close_matches  # only needed for an error

    near = get_close_matches(word, list(valid), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
