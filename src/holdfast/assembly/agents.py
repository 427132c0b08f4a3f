"""The agents of settings and of the program, and the delegates among them."""

from collections.abc import Iterable, Iterator, Mapping

from holdfast.errors import Unusable
from holdfast.runtime.context import ALL_SERVED_TOOLS, PROXY_AGENT, AgentSpec
from holdfast.settings import Derived, Settings, SettingsSource
from holdfast.settings.settings import did_you_mean
from holdfast.settings.values import DELEGATE_NAME_HINT, is_delegate_name


class LiveAgents(Mapping[str, AgentSpec]):
    """The agents of settings as they are now, and on top of them those of the program."""

    def __init__(self, source: SettingsSource, given: Iterable[AgentSpec]) -> None:
        of_program = {each.name: each for each in given}
        self._now = Derived[Mapping[str, AgentSpec]](
            source, lambda settings: {**settings.agents(), **of_program}
        )
        self._proxy = Derived[AgentSpec](source, _proxy)

    def __getitem__(self, name: str) -> AgentSpec:
        now = self._now()
        if name == PROXY_AGENT and name not in now:
            return self._proxy()
        return now[name]

    def __contains__(self, name: object) -> bool:
        return name in self._now() or name == PROXY_AGENT

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


def _proxy(settings: Settings) -> AgentSpec:
    """Return the agent of clients that call tools through Holdfast. No list names it."""
    model = settings.agents()[settings.default_agent].model
    return AgentSpec(name=PROXY_AGENT, model=model, tools=(ALL_SERVED_TOOLS,))


def delegates_of(agents: Iterable[AgentSpec]) -> tuple[str, ...]:
    """
    Return every agent that another agent delegates to. Each must exist, and have a name that a
    model can call.
    """
    known = {agent.name: agent for agent in agents}
    named = {(agent.name, name) for agent in known.values() for name in agent.delegates}
    for agent, name in sorted(named):
        if name not in known:
            raise Unusable(
                f"the agent {agent!r} delegates to {name!r}, and there is no such "
                f"agent{did_you_mean(name, known)}",
                code="unknown_agent",
                hint="hand it to agents= too, or name it in [agents]",
            )
        if name == agent:
            raise Unusable(
                f"{name!r} can't be its own delegate", code="malformed", hint="name another agent"
            )
        if not is_delegate_name(name):
            raise Unusable(
                f"{name!r} can't be a delegate: a model could not call it",
                code="malformed",
                hint=DELEGATE_NAME_HINT,
            )
    return tuple(sorted({name for _, name in named}))
