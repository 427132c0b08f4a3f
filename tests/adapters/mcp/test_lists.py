"""A server's list: read strictly, bounded, and refused by name with the reason."""

from typing import Any

import pytest

from holdfast.adapters.mcp.definitions import read_definitions
from holdfast.adapters.mcp.protocol import Listed, NotUsable
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, Rig


def listed(*tools: Any) -> Listed:
    return Listed(tuple(tools), "")


def test_two_tools_of_one_name_refuse_the_whole_list() -> None:
    with pytest.raises(NotUsable, match="two tools named 'echo'"):
        read_definitions("wire", listed(ECHO, {**ECHO, "description": "x"}), "id")


@pytest.mark.parametrize("tool", [{"description": "no name"}, {"name": 7}, "echo", None])
def test_a_tool_without_a_name_refuses_the_whole_list(tool: Any) -> None:
    with pytest.raises(NotUsable, match="without a name"):
        read_definitions("wire", listed(ECHO, tool), "id")


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ({**ECHO, "name": "ec\u200bho"}, "characters that no tool's name may have"),
        ({**ECHO, "name": "есho"}, "characters that no tool's name may have"),
        ({**ECHO, "name": "../echo"}, "characters that no tool's name may have"),
        ({**ECHO, "name": "x" * 128}, "is not a tool name"),
        ({**ECHO, "name": "ECHO"}, "can be mistaken for echo"),
        ({"name": "bare"}, "no schema of its arguments"),
        ({"name": "odd", "inputSchema": {"type": "array"}}, "does not describe an object"),
        ({**ECHO, "name": "long", "description": "x" * 70_000}, "65536 are the most"),
        ({**ECHO, "name": "big", "inputSchema": {"type": "object", "maximum": 2**60}}, "2**53"),
        ({**ECHO, "name": "list", "description": ["x"]}, "description is not text"),
    ],
)
def test_a_tool_that_cannot_be_judged_is_refused_by_name(tool: dict[str, Any], why: str) -> None:
    found, refused = read_definitions("wire", listed(ECHO, tool), "id")
    assert why in dict(refused)[ascii(tool["name"])[1:-1]]
    assert tool["name"] not in [each.tool for each in found]


def test_the_digest_covers_everything_that_a_person_is_shown() -> None:
    def digest(tool: dict[str, Any] = ECHO, *, instructions: str = "", identity: str = "id") -> str:
        ((found,), _) = read_definitions("wire", Listed((tool,), instructions), identity)
        return found.digest

    changed = [
        digest({**ECHO, "description": "Say it twice."}),
        digest({**ECHO, "x": 1}),
        digest(instructions="x"),
        digest(identity="other"),
    ]
    assert len({digest(), *changed}) == 5
    assert digest(dict(reversed(ECHO.items()))) == digest()  # the order of keys means nothing


@pytest.mark.needs_system("bwrap")
@in_loop
async def test_every_page_is_read_and_a_list_without_end_is_refused(rig: Rig) -> None:
    tools = [{**ECHO, "name": f"t{number}"} for number in range(3)]
    rig.plan(pages=[[each] for each in tools])
    async with rig.open() as home:
        (server,) = await home.service.servers.list()
        assert [each.name for each in server.tools] == ["wire.t0", "wire.t1", "wire.t2"]
        many = [{**ECHO, "name": f"t{number}"} for number in range(300)]
        rig.plan(pages=[many])
        (server,) = await home.service.servers.list()
        assert "more than 256 tools" in server.problem
        rig.plan(
            raw={"tools/list": '{"jsonrpc":"2.0","id":$ID,"result":{"tools":[],"nextCursor":"0"}}'}
        )
        (server,) = await home.service.servers.list()
        assert "does not end" in server.problem


@pytest.mark.needs_system("bwrap")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (
            '{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":"safe","name":"danger"}]}}',
            "twice",
        ),
        ('{"jsonrpc":"2.0","id":$ID,"result":{"tools":{}}}', "not a list"),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":-1,"message":"x"}}', "refused tools/list"),
    ],
)
@in_loop
async def test_a_list_that_cannot_be_read_withdraws_nothing_and_offers_nothing_new(
    rig: Rig, raw: str, why: str
) -> None:
    async with rig.pinned() as home:
        rig.plan(raw={"tools/list": raw})
        (server,) = await home.service.servers.list()
        assert (server.state, why in server.problem) == ("unreachable", True)
        assert [each.state for each in server.tools] == ["pinned"]
