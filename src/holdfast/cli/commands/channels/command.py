"""`holdfast channels list | check | pair`: the commands."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.shared.options import Options, command, group, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, run
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from holdfast.settings import Settings

_REFUSED = 6


def register(app: typer.Typer) -> None:
    channels = group(
        "channels",
        "Chats with people: Slack, Telegram, Discord.",
        example="holdfast channels list\nholdfast channels check",
    )
    app.add_typer(channels)

    @command(channels, "list", example="holdfast channels list")
    def list_(ctx: typer.Context) -> None:
        """
        List every channel of holdfast.toml, with its teams and the people who are known there. It
        connects to no platform.
        """
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(channels, "check", example="holdfast channels check")
    def check(ctx: typer.Context) -> None:
        """
        Check the tokens of this environment with every platform. Exits 0 if all answer, else 6.
        """
        options = options_of(ctx)
        run(lambda: _check(options))

    @command(channels, "pair", example="holdfast channels pair slack alice T024BE7LD/U024BE7LH")
    def pair_(
        ctx: typer.Context,
        channel: Annotated[
            str, typer.Argument(metavar="CHANNEL", help="A channel of holdfast.toml.")
        ],
        person: Annotated[str, typer.Argument(metavar="PERSON", help="The person whose id it is.")],
        identity: Annotated[
            str, typer.Argument(metavar="ID", help="As the server's log prints it.")
        ],
    ) -> None:
        """
        Let a person speak in a chat: write their id on its platform into holdfast.toml.

        An unknown sender gets no answer. The log of `holdfast serve` prints their id. Ask
        the person, by phone for example, whether the id is theirs: a name proves nothing.
        """
        options = options_of(ctx)
        refuse_blank(channel=channel, person=person, identity=identity)
        run(lambda: _pair(options, channel, person, identity))


async def _pair(options: Options, channel: str, person: str, identity: str) -> int:
    from holdfast.cli.commands.channels.pair import pair
    from holdfast.cli.shared.consent import require_person

    home = home_of(options)
    require_person("pairing a person", home)
    line = pair(home, channel, person, identity)
    options.out.result(
        {"channel": channel, "person": person, "id": identity},
        f"{person} may speak in {channel} now: [people.{person}] has {line}. A running server "
        "needs no restart.",
    )
    return 0


def _facts(settings: "Settings") -> list[dict[str, Any]]:
    return [
        {
            "channel": name,
            "kind": each.kind,
            "teams": dict(each.teams),
            "people": sorted(
                person for person, known in settings.people.items() if each.kind in known
            ),
        }
        for name, each in settings.channels.items()
    ]


def _settings(options: Options) -> "Settings":
    from holdfast.settings import SettingsSource

    return SettingsSource(home_of(options)).now()


async def _list(options: Options) -> int:
    found = _facts(_settings(options))
    lines = [
        f"{each['channel']} ({each['kind']}): {', '.join(each['people']) or 'nobody is known'}"
        + "".join(f"\n  {place} is team {team}" for place, team in each["teams"].items())
        for each in found
    ]
    options.out.result(
        {"channels": found},
        "\n".join(lines) or "No channels: add [channels.NAME] to holdfast.toml.",
    )
    return 0


async def _check(options: Options) -> int:
    from holdfast.assembly.channels import platform_of
    from holdfast.ports.delivery import NotDelivered

    found: list[dict[str, Any]] = []
    for name, each in _settings(options).channels.items():
        try:
            said, problem = await platform_of(name, each).check(), None
        except Unusable as exc:
            said, problem = None, exc.message
        except NotDelivered as exc:
            said, problem = None, exc.message
        found.append({"channel": name, "ok": problem is None, "as": said, "problem": problem})
    lines = [f"{each['channel']}: {each['as'] or each['problem']}" for each in found]
    ok = all(each["ok"] for each in found)
    options.out.result(
        {"ok": ok, "channels": found},
        "\n".join(lines) or "No channels: add [channels.NAME] to holdfast.toml.",
    )
    return 0 if ok else _REFUSED
