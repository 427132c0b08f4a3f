"""A path in the settings of a server that becomes a link after a person has looked at it."""

from pathlib import Path

import pytest

from holdfast.adapters.mcp.process import start_server
from holdfast.adapters.mcp.program import find_server_program
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import CannotBind
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import PYTHON, Rig, alice, asked, outcome

pytestmark = pytest.mark.needs_system("bwrap")


@in_loop
async def test_a_folder_that_became_a_link_is_another_server(rig: Rig, tmp_path: Path) -> None:
    async with rig.pinned() as home:
        prompt = await asked(home)
        other = tmp_path / "private"
        rig.work.rename(other)
        rig.work.symlink_to(other)
        await home.answer(prompt, "approve_once", by=alice)
        assert (await outcome(home))[0] != "ok"
    assert rig.got() == []


def test_the_text_that_a_pin_covers_says_where_a_path_leads(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    settings = ToolServer(command=(PYTHON, "-c", "0"), read=(str(link),), write=(str(link),))
    shown = find_server_program(settings).identity(settings)
    assert f"reads {link}, which is {tmp_path}\n" in shown
    assert f"changes {link}, which is {tmp_path}" in shown


@pytest.mark.parametrize(("key", "place"), [("read", "keys"), ("write", ""), ("write", "keys")])
def test_no_server_starts_with_a_path_that_leads_into_the_home(
    tmp_path: Path, key: str, place: str
) -> None:
    home = tmp_path / "home"
    (home / "keys").mkdir(parents=True, mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(home / place)
    named = (str(link),)
    settings = ToolServer(
        command=(PYTHON, "-c", "input()"),
        read=named if key == "read" else (),
        write=named if key == "write" else (),
    )
    with pytest.raises(CannotBind, match="the Holdfast home"):
        start_server(
            "wire", settings, find_server_program(settings), home=str(home), confine="auto"
        )
