"""One prepared command: starts once, and returns what it printed and left behind."""

from typing import TYPE_CHECKING

from holdfast.adapters.tools.output import CapturedOutput, left_behind
from holdfast.adapters.tools.shell.confinement.level_text import network_note
from holdfast.adapters.tools.shell.launcher import Launched
from holdfast.adapters.tools.shell.processes import LeftBehind
from holdfast.ports.tools import (
    CannotBind,
    OnOutput,
    ProcessFacts,
    Scene,
    ToolReturned,
)
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import render
from holdfast.threads import BLOCKING

if TYPE_CHECKING:
    from holdfast.adapters.tools.shell.shell import Shell


def left_notes(left: LeftBehind) -> list[str]:
    """
    Return notes for the model and the person: the processes that a command left behind, and the
    hint that a job can keep something running.
    """
    ended = left_behind(len(left.ended), left.ended)
    hint = ["[to keep something running, start it with `background`]"] if ended else []
    running = (
        [f"[still running, left behind by this command: {render(', '.join(left.running)).text}]"]
        if left.running
        else []
    )
    return [*ended, *hint, *running]


class PreparedCommand:
    def __init__(
        self,
        shell: "Shell",
        launched: Launched,
        arguments: bytes,
        binding: Binding,
        scene: Scene,
        *,
        timeout_seconds: float | None,
        network: bool,
    ) -> None:
        self._shell, self._launched, self._network = shell, launched, network
        self._arguments, self._binding, self._scene = arguments, binding, scene
        self._timeout_seconds = timeout_seconds
        self.process: ProcessFacts | None = launched.facts

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        try:
            now = await BLOCKING.call(lambda: self._shell.bind(self._arguments, self._scene))
            changed = now != self._binding
        except CannotBind as exc:
            await self.abandon()
            return ToolReturned(outcome="error", text=f"nothing was run: {exc}")
        except BaseException:
            await self.abandon()
            raise
        if changed:
            await self.abandon()
            return ToolReturned(
                outcome="error",
                text=(
                    "nothing was run: the folder, a program or a script changed after this was "
                    "approved"
                ),
            )
        output = CapturedOutput(secrets=self._scene.secrets, on_output=on_output)
        allowed = self._timeout_seconds or timeout_seconds
        ended, status = await self._launched.run(timeout_seconds=allowed, on_output=output.feed)
        output.close()
        if self._launched.failed_to_exec:
            return ToolReturned(
                outcome="error", text=f"nothing was run: {self._launched.failed_to_exec}"
            )
        if ended == "timed_out":
            text, full = output.view(
                "\n".join([f"[ended after {allowed:g} s]", *left_notes(self._launched.left)])
            )
            return ToolReturned(outcome="timed_out", text=text, full=full)
        how = (
            ""
            if status == 0
            else f"[exit {status}]"
            if status > 0
            else f"[ended by signal {-status}]"
        )
        lacking = "" if status == 0 or self._network else network_note(output.end())
        text, full = output.view(
            "\n".join(filter(None, (how, *left_notes(self._launched.left), lacking)))
        )
        return ToolReturned(outcome="ok" if status == 0 else "error", text=text, full=full)

    async def abandon(self) -> None:
        await self._launched.abandon()
