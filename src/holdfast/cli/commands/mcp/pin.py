"""`holdfast mcp pin | unpin`: a person's decision about a definition that they have read."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.mcp.look import TOOLS, asking_service, no_servers, tool_text
from holdfast.cli.shared.arguments import acting_as
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.shared.identity import Who
    from holdfast.runtime.tool_servers.reports import ToolReport

AS = Annotated[str | None, acting_as("Decide as this person")]


def register(app: typer.Typer) -> None:
    @command(app, "pin", example="holdfast mcp pin files.read_file")
    def pin(
        ctx: typer.Context,
        tools: TOOLS,
        digest: Annotated[
            list[str] | None,
            typer.Option(
                "--digest",
                metavar="D",
                help="The digest of what you have read; one for each tool. Without it, a terminal "
                "shows each tool and asks.",
            ),
        ] = None,
        as_: AS = None,
    ) -> None:
        """Let models use these tools, exactly as they are defined now."""
        options = options_of(ctx)
        run(lambda: _pin(options, tools, digest or [], as_))

    @command(app, "unpin", example="holdfast mcp unpin files.read_file")
    def unpin(ctx: typer.Context, tools: TOOLS, as_: AS = None) -> None:
        """Withdraw these tools: open prompts of them are voided, and standing approvals end."""
        options = options_of(ctx)
        run(lambda: _unpin(options, tools, as_))


def _person(options: Options, what: str, asserted: str | None) -> "Who":
    """Return who decides. A tool may not, nor a way that does not count as consent here."""
    from holdfast.cli.shared.consent import require_person, way_of_answer
    from holdfast.cli.shared.identity import who
    from holdfast.session.authority.policy import counts
    from holdfast.settings import SettingsSource

    home = home_of(options)
    require_person(what, home)
    consent = SettingsSource(home).now().consent
    if not counts(way_of_answer(), consent):
        raise Refused(
            f"{what} carries a person's consent, and approvals.consent is {', '.join(consent)}",
            code="no_authority",
            hint="use the page, or another way that counts",
        )
    return who(home, asserted)


async def _pin(
    options: Options, names: "Sequence[str]", digests: "Sequence[str]", asserted: str | None
) -> int:
    me = _person(options, "pinning a tool", asserted)
    async with asking_service(options) as service:
        if service is None:
            raise no_servers(options)
        shown = await service.servers.show(names)
        if digests:
            _refuse_other_digests(shown, digests)
            chosen: Sequence[ToolReport] = shown
        else:
            chosen = _agreed(options, shown)
        pinned = await service.servers.pin(
            [(each.name, each.digest) for each in chosen], by=me.person
        )
    options.out.result(
        {"pinned": [{"name": each.name, "digest": each.digest} for each in pinned]},
        "\n".join(f"{each.name} is pinned" for each in pinned) or "nothing was pinned",
    )
    return 0


def _refuse_other_digests(shown: "Sequence[ToolReport]", digests: "Sequence[str]") -> None:
    for tool in shown:
        if tool.digest not in digests:
            raise Refused(
                f"{tool.name} has the digest {tool.digest}, and none of those given; nothing was "
                "pinned",
                code="plan_changed",
                hint=f"read it first: `holdfast mcp show {tool.name}`",
            )


def _agreed(options: Options, shown: "Sequence[ToolReport]") -> "Sequence[ToolReport]":
    """Show each tool whole, and take only its typed name as consent."""
    from holdfast.cli.shared.consent import at_a_terminal

    if options.out.json or not at_a_terminal():
        raise Unusable(
            "pinning shows each tool and asks, and there is no terminal here; nothing was pinned",
            code="no_terminal",
            hint="read it with `holdfast mcp show`, then add --digest D",
        )
    chosen = []
    for tool in shown:
        if tool.state == "pinned":
            continue
        options.out.text(tool_text(tool))
        options.out.note(f"Type {tool.name} to let models use it exactly so:")
        if sys.stdin.readline().strip() == tool.name:
            chosen.append(tool)
        else:
            options.out.note(f"{tool.name} was not pinned")
    return chosen


async def _unpin(options: Options, names: "Sequence[str]", asserted: str | None) -> int:
    me = _person(options, "withdrawing a tool", asserted)
    async with looking_service(options) as service:
        if service is None:
            raise Refused(f"{names[0]} has no pin", code="unknown", hint="`holdfast mcp list`")
        gone = await service.servers.unpin(names, by=me.person)
    options.out.result({"unpinned": list(gone)}, "\n".join(f"{each} is withdrawn" for each in gone))
    return 0
