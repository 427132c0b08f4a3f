"""
`holdfast demo`: the story in one minute, with a real kill -9 of a real process. Exits 0 only if
every step showed its claim.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.output.terminal import Styled
from holdfast.cli.shared.options import Options, command, options_of

if TYPE_CHECKING:
    from holdfast.cli.commands.demo.story import StoryStep

_SLOW_SECONDS = 3.0  # time to read a step


def register(app: typer.Typer) -> None:
    @command(app, "demo", example="holdfast demo\nholdfast demo --keep")
    def demo(
        ctx: typer.Context,
        keep: Annotated[
            bool, typer.Option("--keep", help="Leave the home and the journal there to look at.")
        ] = False,
        slow: Annotated[
            bool, typer.Option("--slow", help="Pause after each step, to read along.")
        ] = False,
    ) -> None:
        """
        The story in one minute: ask, pause, kill -9, restart, approve, and a changed byte noticed.

        Runs in a temporary home of its own, needs no key and no network. Every step is checked;
        exits 1 and says which one did not hold.
        """
        raise typer.Exit(
            _demo(options_of(ctx), keep=keep, pause_seconds=_SLOW_SECONDS if slow else 0.0)
        )


def _demo(options: Options, *, keep: bool, pause_seconds: float) -> int:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        return _tell(
            options,
            folder,
            pause_seconds,
            "It is kept, to look at." if keep else "Nothing of it is left behind.",
        )
    finally:
        if keep:
            options.out.note(f"kept: `holdfast --home {folder / 'home'} sessions list` looks at it")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(options: Options, folder: Path, pause_seconds: float, leaving: str) -> int:
    from holdfast.cli.commands.demo.story import NotShown, Story

    started = time.monotonic()
    number = 0
    try:
        for number, step in enumerate(Story(folder).steps(), 1):
            _show(options, number, step)
            if pause_seconds:
                time.sleep(pause_seconds)
    except NotShown as exc:
        options.out.result(
            {"step": number + 1, "ok": False, "says": str(exc)},
            f"Step {number + 1} did not show what it claims: {exc}",
        )
        return 1
    seconds = time.monotonic() - started
    end = (
        f"All {number} steps held, in {seconds:.1f} s. {leaving} Next: `{_command()} chat`, and the"
        " README."
    )
    options.out.result({"step": "end", "ok": True, "says": end, "steps": number}, end)
    return 0


def _command() -> str:
    """Return the command as the reader can type it: `make demo` puts nothing on the PATH."""
    beside = Path(sys.executable).parent / "holdfast"
    return "holdfast" if shutil.which("holdfast") or not beside.exists() else str(beside)


def _show(options: Options, number: int, step: "StoryStep") -> None:
    if options.out.json:
        options.out.object(
            {"step": number, "name": step.name, "ok": True, "says": step.says, "shows": step.shows}
        )
    elif sys.stdout is not None and sys.stdout.isatty():
        _show_in_colour(number, step)
    else:
        options.out.text(
            "\n".join(
                [
                    f"{number:2}. {step.name}: {step.says}",
                    *(f"      {line}" for line in step.shows),
                    "",
                ]
            )
            + "\n"
        )


def _show_in_colour(number: int, step: "StoryStep") -> None:
    styled = Styled()
    styled.print((f"{number:2}. ", "dim"), (step.name, "bold cyan"), ": ", step.says)
    for line in step.shows:
        styled.print("      ", (line, "green"))
    styled.print()
