"""
The reach of a command at each level, tried by real processes, beside another program of the same
user.

Isolated, nothing that it was not given. Limited, exactly what its prompt lists: the table is
written by hand, the list comes from the prompt. Unconfined, nearly everything: that is what the two
others rest on.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from tests.adapters.tools.adversary import (
    HERE,
    LAYOUTS,
    NOBODY,
    OPEN_IF_LIMITED,
    needs,
    open_folder,
    world_in,
)

__all__ = ["open_folder"]
OWNERS = {"nobody": NOBODY, "root": 0}
OPEN_WITH_NETWORK = {"try_loopback": "listens on loopback"}
# Not open to an ordinary user in any case, or not on every kernel.
SHUT_ANYWAY = {
    *(
        "try_unmount",
        "try_mount",
        "try_new_mount",
        "try_change_root",
        "try_handle",
        "try_disk",
        "try_kernel",
        "try_system_write",
    ),
    *(
        "try_namespace_of_process",
        "try_terminal_of_its_own",
        "try_terminal_type",
        "try_stream_of_a_pair",
        "try_inherited_descriptors",
    ),
    *(
        "try_other_abi",
        "try_namespaces",
        "try_vsock",
        "try_queue",
        "try_keyring",
        "try_ring",
        "try_key_attribute",
    ),
    *(
        "try_key_chmod_by_descriptor",
        "try_home_rename_above",
        "try_trace",
        "try_memory",
        "try_memory_by_call",
        "try_descriptor_by_call",
    ),
}


def listed(display: str) -> list[str]:
    return [line.removeprefix("- ") for line in display.splitlines() if line.startswith("- ")]


def ways() -> set[str]:
    return {
        line[4:].partition("(")[0]
        for line in (HERE / "break_out.py").read_text().splitlines()
        if line.startswith("def try_")
    }


def test_there_are_many_ways() -> None:
    assert len(ways()) >= 70
    assert ways() >= SHUT_ANYWAY | OPEN_WITH_NETWORK.keys() | (
        OPEN_IF_LIMITED.keys() - {"survivor"}
    )


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_isolated_no_way_is_open(open_folder: Path, layout: str, owner: str) -> None:
    needs("bubblewrap")
    with world_in(open_folder, layout, owner=OWNERS[owner]) as world:
        tried = world.try_all("isolated")
    assert (tried.level, tried.open) == ("isolated", set())
    assert tried.display.splitlines()[0].startswith("isolated: ")


def test_isolated_with_network_only_loopback_is_open(open_folder: Path) -> None:
    needs("bubblewrap")
    with world_in(open_folder) as world:
        tried = world.try_all("isolated", network=True)
    assert (tried.level, tried.open) == ("isolated", {"try_loopback", "try_socket_list"})
    assert (
        "reaches every service on this machine that listens there, and sees which sockets are open"
        in tried.display
    )


@pytest.mark.parametrize(
    ("owner", "network"), [("nobody", False), ("nobody", True), ("root", False)]
)
def test_limited_the_open_ways_are_those_that_the_prompt_lists(
    open_folder: Path, owner: str, network: bool
) -> None:
    needs("landlock")
    told = OPEN_IF_LIMITED | (OPEN_WITH_NETWORK if network else {})
    with world_in(open_folder, owner=OWNERS[owner]) as world:
        tried = world.try_all("limited", network=network)
    assert (tried.level, tried.open) == ("limited", set(told))
    lines = listed(tried.display)
    assert [way for way, words in told.items() if not any(words in line for line in lines)] == []
    assert [line for line in lines if not any(words in line for words in told.values())] == []


def test_unconfined_nearly_everything_is_open(open_folder: Path) -> None:
    """
    The tests above prove something only if the same attempts get through where nothing confines
    them.
    """
    with world_in(open_folder) as world:
        tried = world.try_all("unconfined")
    assert tried.level == "unconfined"
    assert ways() - {"try_survive"} - SHUT_ANYWAY - tried.open == set()
    assert "survivor" in tried.open


def test_a_home_in_the_system_does_not_exist_in_the_view() -> None:
    """The system is in the view; the home is not, nor what is beside it hidden."""
    needs("bubblewrap")
    try:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir="/usr/local"))
    except OSError:
        pytest.skip("only root may write there")
    try:
        folder.chmod(0o755)
        for layout in LAYOUTS:
            inside = folder / layout
            inside.mkdir()
            with world_in(inside, layout) as world:
                tried = world.try_all("isolated")
            # The user's folder lies in the system here, where everybody may look: only the home is
            # hidden.
            assert {
                way for way in tried.open if "key" in way or "home" in way or way == "listing"
            } == set()
    finally:
        shutil.rmtree(folder)
