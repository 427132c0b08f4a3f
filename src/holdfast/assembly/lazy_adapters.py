"""Models and tools that are created at first use."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import Unusable
from holdfast.ids import CallId, delegate_tool_name
from holdfast.ports.memory import Memory
from holdfast.ports.model import Model
from holdfast.ports.tool_servers import ToolServers
from holdfast.ports.tools import CannotBind, ProcessFacts, Tool
from holdfast.runtime.context import CODING_AGENTS
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.adapters.models.catalogue import Catalogue
    from holdfast.adapters.tools.registry import Toolbox
    from holdfast.adapters.tools.shell.shell import ShellSettings
    from holdfast.adapters.tools.user_program import UserProgram


class LazyModels:
    """The model catalogue, created at first use."""

    def __init__(self) -> None:
        self._catalogue: Catalogue | None = None

    def _made(self) -> "Catalogue":
        if self._catalogue is None:
            from holdfast.adapters.models.catalogue import Catalogue

            self._catalogue = Catalogue()
        return self._catalogue

    def resolve(self, name: str) -> Model:
        return (self._catalogue or self._made()).resolve(name)

    def register(self, model: Any) -> str:
        """Register a model object; return the name it is journalled under."""
        return self._made().register(model).name


class LazyTools:
    """
    The toolbox, created at first use. Each built-in tool is loaded when it is first asked for, so
    that a home without a shell tool never imports the shell parser.
    """

    def __init__(
        self,
        given: Sequence[Tool],
        settings: Settings,
        memory: Memory | None = None,
        *,
        delegates: Sequence[str] = (),
        now_ms: Callable[[], int] | None = None,
        servers: ToolServers | None = None,
        program: "UserProgram | None" = None,
        settings_now: Callable[[], Settings] | None = None,
    ) -> None:
        # Tools that settings name as module:attribute are loaded from here; None allows installed
        # modules only.
        self._program = program
        self._given = given
        self._memory = memory
        self._delegates = delegates  # agents that others hand tasks to
        self._now_ms = now_ms
        self._servers = servers
        self._settings_now = settings_now or (lambda: settings)
        self._box: Toolbox | None = None
        # Tools that settings name as module:attribute, by that name.
        self._loaded: dict[str, Tool] = {}

    def _filled(self) -> "Toolbox":
        if self._box is None:
            from holdfast.adapters.tools.registry import Toolbox, builtin_makers

            own = {tool.definition.name for tool in self._given}
            builtins = builtin_makers(
                shell=self._shell_settings, memory=self._memory, now_ms=self._now_ms
            )
            makers = {name: make for name, make in builtins.items() if name not in own}
            for agent in self._delegates:
                makers[delegate_tool_name(agent)] = partial(_delegate_tool, agent)
            self._box = Toolbox(self._given, makers)
        return self._box

    def _shell_settings(self) -> "ShellSettings":
        """The current settings: a tighter rule applies at once, also in a running process."""
        from holdfast.adapters.tools.shell.shell import ShellSettings

        try:
            now = self._settings_now()
        except Unusable as exc:
            raise CannotBind(str(exc), code=exc.code) from exc
        return ShellSettings(now.shell_confine, now.shell_network, now.shell_read)

    def get(self, name: str) -> Tool | None:
        box = self._box or self._filled()
        if name.partition(".")[0] in CODING_AGENTS:
            from holdfast.adapters.tools.schema.handed_over import handed_over_tool

            return handed_over_tool(name)
        if ":" not in name:
            found = box.get(name)
            return self._servers.get(name) if found is None and self._servers else found
        if name not in self._loaded:
            from holdfast.adapters.tools.registry import load_tool
            from holdfast.adapters.tools.user_program import UserProgram

            self._loaded[name] = load_tool(name, self._program or UserProgram())
        return self._loaded[name]

    def names(self) -> Sequence[str]:
        return (*self._filled().names(), *self._loaded)

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        return self._filled().end_survivors(call, facts)


def _delegate_tool(agent: str) -> Tool:
    from holdfast.adapters.tools.builtin.delegates import delegate_tool

    return delegate_tool(agent)
