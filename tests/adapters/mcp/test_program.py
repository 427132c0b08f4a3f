"""The bytes of a server's program are read again unless nothing says that they changed."""

import os
from pathlib import Path

import pytest

from holdfast.adapters.mcp.program import see_server_program
from holdfast.ports.tool_servers import ToolServer


def old(*words: str) -> ToolServer:
    """Words that name files of the system, which changed long ago."""
    return ToolServer(command=("/bin/sh", *words))


def test_a_program_whose_files_did_not_change_stands() -> None:
    settings = old("-c", "/etc/passwd")
    seen = see_server_program(settings)
    assert seen.is_settled
    assert seen.stands(settings)
    assert not seen.stands(old("-c", "/etc/group"))
    assert not seen.stands(ToolServer(command=("/bin/ls", "-c", "/etc/passwd")))


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """Another change may leave it the same times."""
    script = tmp_path / "server.py"
    script.write_text("1")
    settings = old(str(script))
    assert not see_server_program(settings).stands(settings)


@pytest.mark.parametrize("change", ["bytes", "another", "link", "gone", "mode"])
def test_each_change_of_a_file_is_seen(tmp_path: Path, change: str) -> None:
    script, other, link = tmp_path / "server.py", tmp_path / "other.py", tmp_path / "link.py"
    script.write_text("one")
    other.write_text("two")
    link.symlink_to(script)
    settings = old(str(link))
    seen = see_server_program(settings)._replace(is_settled=True)
    assert seen.stands(settings)
    times = script.stat()
    match change:
        case "bytes":  # of the same length, with the old times put back
            script.write_text("two")
            os.utime(script, ns=(times.st_atime_ns, times.st_mtime_ns))
        case "another":
            other.replace(script)
        case "link":
            link.unlink()
            link.symlink_to(other)
        case "gone":
            script.unlink()
        case _:
            script.chmod(0o700)
    assert not seen.stands(settings)
    if change != "gone":
        again = see_server_program(settings).program.identity(settings)
        assert (again != seen.program.identity(settings)) == (change != "mode")
