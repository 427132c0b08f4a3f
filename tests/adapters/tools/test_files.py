"""File tools: inside the workspace by identity, never in the home, whole or not at all."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import limits
from holdfast.adapters.tools.files import write as writing
from holdfast.adapters.tools.files.read import list_files, read_file, search_files
from holdfast.adapters.tools.files.write import write_file
from holdfast.ports.tools import CannotBind, InvalidArguments


def bound(tool: Any, encode: Any, scene: Any, **arguments: Any) -> Any:
    return tool.bind(tool.validate(encode(**arguments)), scene)


def refusal(tool: Any, encode: Any, scene: Any, **arguments: Any) -> str:
    with pytest.raises(CannotBind) as refused:
        bound(tool, encode, scene, **arguments)
    return refused.value.code


def test_a_file_of_the_workspace_is_read(place: Any, run: Any, encode: Any) -> None:
    (place.workspace / "a.txt").write_text("héllo\n")
    assert run(read_file(), place.scene(), path="a.txt").text == "héllo\n"
    binding = bound(read_file(), encode, place.scene(), path="a.txt")
    assert (binding.reach, binding.path) == ("workspace", str(place.workspace / "a.txt"))


def test_reads_are_pure_and_run_by_themselves() -> None:
    for tool in (read_file(), list_files(), search_files()):
        definition = tool.definition
        assert (definition.contract, definition.default_mode, definition.kind) == (
            "pure",
            "auto",
            "read_file",
        )
    assert (write_file().definition.contract, write_file().definition.default_mode) == (
        "once",
        "ask",
    )


@pytest.mark.parametrize("way", ["../out.txt", "{root}/out.txt", "link", "folder/out.txt"])
def test_a_path_that_leads_outside_is_bound_as_outside(place: Any, encode: Any, way: str) -> None:
    (place.root / "out.txt").write_text("outside")
    (place.workspace / "link").symlink_to(place.root / "out.txt")
    (place.workspace / "folder").symlink_to(place.root)
    binding = bound(read_file(), encode, place.scene(), path=way.format(root=place.root))
    assert (binding.reach, binding.path) == ("outside", str(place.root / "out.txt"))
    assert str(place.root / "out.txt") in binding.display


@pytest.mark.parametrize(
    "way",
    [
        "{home}/keys/1.key",
        "../home/keys/1.key",
        "link",
        "folder/1.key",
        "{home}/../home/keys/1.key",
        "/proc/self/root{home}/keys/1.key",
        "fd",
    ],
)
def test_the_home_is_hard_denied_by_every_name(place: Any, encode: Any, way: str) -> None:
    (place.workspace / "link").symlink_to(place.key)
    (place.workspace / "folder").symlink_to(place.home / "keys")
    descriptor = os.open(place.key, os.O_RDONLY)
    path = f"/proc/self/fd/{descriptor}" if way == "fd" else way.format(home=place.home)
    try:
        assert refusal(read_file(), encode, place.scene(), path=path) == "hard_deny"
        assert refusal(write_file(), encode, place.scene(), path=path, content="x") == "hard_deny"
    finally:
        os.close(descriptor)
    assert place.key.read_text().startswith("key-material")


def test_the_home_itself_and_new_files_in_it_are_denied(place: Any, encode: Any) -> None:
    for tool, arguments in [
        (list_files(), {"path": str(place.home)}),
        (search_files(), {"path": str(place.home), "pattern": "key"}),
        (write_file(), {"path": f"{place.home}/new", "content": "x"}),
        (write_file(), {"path": f"{place.home}/no/such/folder/new", "content": "x"}),
        (read_file(), {"path": f"{place.home}/missing"}),
    ]:
        assert refusal(tool, encode, place.scene(), **arguments) == "hard_deny"


@pytest.mark.needs_system("mount", "unshare")
def test_a_second_name_of_the_home_is_denied_too(
    tmp_path: Path, make_place: Any, needs: Any
) -> None:
    """A bind mount gives the home another path; it is the same folder."""
    place = make_place(tmp_path)
    (place.workspace / "alias").mkdir()
    (place.workspace / "keys").mkdir()
    script = f"""
import os, sys
sys.path[:0] = {[p for p in __import__("sys").path if p]!r}
from holdfast.adapters.tools.files.read import read_file
from holdfast.adapters.tools.shell.confinement.levels import confinement_report
from holdfast.ports.tools import CannotBind, Scene
scene = Scene(session="local/x", instance="i", turn="t1", call="c", workspace={str(place.workspace)!r}, requester="a", audience="personal",
              boundary="b", home={str(place.home)!r})
tool = read_file()
for path in ("alias/keys/1.key", "keys/1.key"):
    try:
        tool.bind(tool.validate(('{{"path":"%s"}}' % path).encode()), scene)
        print("bound")
    except CannotBind as exc:
        print(exc.code)
print(confinement_report({str(place.home)!r}, {str(place.workspace)!r}).level)
"""
    import subprocess
    import sys

    mounts = f"mount --bind '{place.home}' '{place.workspace}/alias' && mount --bind '{place.home}/keys' '{place.workspace}/keys'"
    done = subprocess.run(
        [
            needs("unshare"),
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            f'{mounts} && exec "$0" -c "$1"',
            sys.executable,
            script,
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if "mount" in done.stderr and done.returncode:
        pytest.skip("no mounts may be made here")
    assert (done.stdout.split()[:2], done.stderr) == (["hard_deny", "hard_deny"], "")
    assert done.stdout.split()[2] in (
        "isolated",
        "unconfined",
    )  # an alias lies in the workspace: Landlock would not do


def test_a_decoy_in_the_homes_place_is_refused(place: Any, encode: Any) -> None:
    (place.workspace / "a").write_text("a")
    bound(read_file(), encode, place.scene(), path="a")
    place.home.rename(place.root / "moved")
    place.home.mkdir()
    assert refusal(read_file(), encode, place.scene(), path="a") == "hard_deny"


def test_a_home_that_is_not_there_denies_everything(place: Any, encode: Any) -> None:
    assert (
        refusal(read_file(), encode, place.scene(home=str(place.root / "none")), path="a")
        == "hard_deny"
    )


@pytest.mark.parametrize("name", ["environ", "mem", "maps", "task/1/environ"])
def test_the_memory_of_processes_is_denied(place: Any, encode: Any, name: str) -> None:
    name = name.replace("/1/", f"/{os.getpid()}/")
    assert refusal(read_file(), encode, place.scene(), path=f"/proc/self/{name}") == "hard_deny"
    assert (
        refusal(read_file(), encode, place.scene(), path=f"/proc/{os.getpid()}/{name}")
        == "hard_deny"
    )


def test_a_file_that_is_not_regular_is_refused_without_waiting(
    place: Any, run: Any, encode: Any
) -> None:
    os.mkfifo(place.workspace / "fifo")
    for path in ("fifo", ".", "missing"):
        assert refusal(read_file(), encode, place.scene(), path=path) == "cannot_bind"
    for path in ("fifo", "."):
        assert refusal(write_file(), encode, place.scene(), path=path, content="x") == "cannot_bind"
    returned = run(
        read_file(), place.scene(), path="/dev/zero"
    )  # outside: a person was asked first
    assert (returned.outcome, returned.text) == ("error", "/dev/zero is not a regular file")


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000])
def test_text_that_is_not_a_path_is_invalid(encode: Any, path: str) -> None:
    with pytest.raises(InvalidArguments):
        read_file().validate(encode(path=path))


def test_binary_and_large_files_are_said_to_be_so(place: Any, run: Any) -> None:
    (place.workspace / "b").write_bytes(b"\x7fELF\0\0")
    assert run(read_file(), place.scene(), path="b").text.endswith("is a binary file of 6 bytes")
    (place.workspace / "long").write_text("line\n" * 100_000)
    returned = run(read_file(), place.scene(), path="long")
    assert len(returned.text.encode()) <= limits.TOOL_OUTPUT_VIEW_BYTES
    assert returned.full == b"line\n" * 100_000


def test_a_link_flipped_after_binding_reads_nothing_else(place: Any, encode: Any) -> None:
    """
    The path leads elsewhere at the start than it did when it was decided: refused, and never
    followed into the home.
    """
    (place.workspace / "d").mkdir()
    (place.workspace / "d" / "1.key").write_text("harmless")
    tool, scene = read_file(), place.scene()
    arguments = tool.validate(encode(path="d/1.key"))

    async def flip() -> Any:
        binding = tool.bind(arguments, scene)
        prepared = await tool.prepare(arguments, binding, scene, idempotency_key="k")
        (place.workspace / "d").rename(place.workspace / "old")
        (place.workspace / "d").symlink_to(place.home / "keys")
        return await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    returned = asyncio.run(flip())
    assert (returned.outcome, "key-material" in returned.text) == ("error", False)


def test_a_folder_is_listed(place: Any, run: Any) -> None:
    (place.workspace / "d").mkdir()
    (place.workspace / "a.txt").write_text("abc")
    (place.workspace / "l").symlink_to("a.txt")
    (place.workspace / "x\u202ey").write_text("")
    assert run(list_files(), place.scene()).text == "a.txt (3)\nd/\nl -> a.txt\nx\\u202ey (0)"


def test_names_that_are_not_text_are_listed(place: Any, run: Any) -> None:
    Path(os.fsdecode(os.fsencode(place.workspace) + b"/\xff\xfe")).write_text("")
    assert run(list_files(), place.scene()).text == "\\xff\\xfe (0)"


def test_text_is_found_with_its_line(place: Any, run: Any) -> None:
    (place.workspace / "d").mkdir()
    (place.workspace / "d" / "a.py").write_text("one\ntwo needle\nthree\nneedle four needle\n")
    (place.workspace / "b.bin").write_bytes(b"\0needle")
    assert (
        run(search_files(), place.scene(), pattern="needle").text
        == "d/a.py:2: two needle\nd/a.py:4: needle four needle"
    )
    assert run(search_files(), place.scene(), pattern="(a+)+$").text == "[nothing found in 2 files]"


def test_searching_steps_over_the_home_and_follows_no_link(
    make_place: Any, tmp_path: Path, run: Any
) -> None:
    place = make_place(tmp_path, home="ws/.state", workspace="ws")
    (place.workspace / "note").write_text("key-material is elsewhere")
    (place.workspace / "link").symlink_to(place.home)
    assert (
        run(search_files(), place.scene(), pattern="key-material").text
        == "note:1: key-material is elsewhere"
    )


def test_searching_is_bounded(place: Any, run: Any) -> None:
    (place.workspace / "many").write_text("hit\n" * 10_000)
    assert run(search_files(), place.scene(), pattern="hit").text.endswith(
        "[stopped after 200 lines]"
    )


def test_a_file_is_written_whole_and_keeps_its_permissions(place: Any, run: Any) -> None:
    target = place.workspace / "run.sh"
    target.write_text("old")
    target.chmod(0o750)
    assert run(write_file(), place.scene(), path="run.sh", content="new\n").outcome == "ok"
    assert (
        target.read_text(),
        target.stat().st_mode & 0o777,
        sorted(p.name for p in place.workspace.iterdir()),
    ) == ("new\n", 0o750, ["run.sh"])


def test_the_display_is_a_complete_diff(place: Any, encode: Any) -> None:
    (place.workspace / "a").write_text("one\ntwo\nthree\n")
    binding = bound(write_file(), encode, place.scene(), path="a", content="one\n2\u200b\nthree\n")
    assert binding.display == (
        f"change a file of 14 bytes to 15 bytes, 4 lines\n| {place.workspace}/a\nchange:\n"
        "| --- now\n| +++ then\n| @@ -1,4 +1,4 @@\n|  one\n| -two\n| +2\\u200b\n|  three\n|  "
    )


@pytest.mark.parametrize(
    ("before", "content", "words"),
    [
        ("one\n", "1", "; no line break at its end any more"),
        ("one", "1\n", "; with a line break at its end now"),
        ("one\n", "1\n", ""),
        ("one", "1", ""),
        ("one\n", "", ""),
    ],
)
def test_a_prompt_says_that_the_last_line_break_comes_or_goes(
    place: Any, encode: Any, before: str, content: str, words: str
) -> None:
    """In the diff alone it looks like an empty line that was added or removed."""
    (place.workspace / "a").write_text(before)
    display = bound(write_file(), encode, place.scene(), path="a", content=content).display
    lines = content.count("\n") + 1
    size = f"{len(content)} bytes, {lines} line{'' if lines == 1 else 's'}"
    assert display.split("\n")[0] == f"change a file of {len(before)} bytes to {size}{words}"


def test_a_new_file_is_shown_whole_or_not_asked_about(place: Any, encode: Any) -> None:
    display = bound(write_file(), encode, place.scene(), path="n", content="a\nb").display
    assert (
        display
        == f"write a new file of 3 bytes, 2 lines\n| {place.workspace}/n\ncontent:\n| a\n| b"
    )
    assert (
        refusal(write_file(), encode, place.scene(), path="n", content="x\n" * 60_000) == "too_long"
    )


@pytest.mark.parametrize("change", ["content", "removed", "link"])
def test_a_file_that_changed_after_approval_is_not_overwritten(
    place: Any, encode: Any, change: str
) -> None:
    target = place.workspace / "a"
    target.write_text("approved against this")
    tool, scene = write_file(), place.scene()
    arguments = tool.validate(encode(path="a", content="new"))

    async def late() -> Any:
        binding = tool.bind(arguments, scene)
        prepared = await tool.prepare(arguments, binding, scene, idempotency_key="k")
        target.unlink()
        if change == "content":
            target.write_text("somebody else's work")
        elif change == "link":
            target.symlink_to(place.key)
        assert (change == "link") or tool.bind(arguments, scene) != binding
        return await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    assert asyncio.run(late()).outcome == "error"
    assert place.key.read_text().startswith("key-material")
    if change == "content":
        assert target.read_text() == "somebody else's work"


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    place: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.workspace / "a").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    assert run(write_file(), place.scene(), path="a", content="new").outcome == "error"
    assert [(p.name, p.read_text()) for p in place.workspace.iterdir()] == [("a", "old")]


@pytest.mark.parametrize(
    "tool",
    [read_file(), list_files(), search_files(), write_file()],
    ids=lambda tool: tool.definition.name,
)
@pytest.mark.parametrize(
    "what", ["missing.txt", "missing/deeper.txt", "fifo", "folder", "file.txt"]
)
def test_file_tools_bind_outside_paths_without_revealing_whether_they_exist(
    place: Any, encode: Any, tool: Any, what: str
) -> None:
    """
    Whether a path exists is an answer too, and outside the workspace it is a person who gives it.
    """
    (place.root / "folder").mkdir()
    (place.root / "file.txt").write_text("here")
    os.mkfifo(place.root / "fifo")
    arguments = {"path": str(place.root / what)} | (
        {"pattern": "x"} if tool.definition.name == "search_files" else {}
    )
    arguments |= {"content": "new"} if tool.definition.name == "write_file" else {}
    binding = tool.bind(tool.validate(encode(**arguments)), place.scene())
    assert (binding.reach, binding.path) == ("outside", str(place.root / what))


def test_an_approved_call_reports_a_missing_file_outside_the_workspace(
    place: Any, run: Any
) -> None:
    returned = run(read_file(), place.scene(), path=str(place.root / "missing.txt"))
    assert (returned.outcome, "no such file" in returned.text) == ("error", True)
    returned = run(
        write_file(), place.scene(), path=str(place.root / "missing" / "new.txt"), content="x"
    )
    assert (returned.outcome, "no such file" in returned.text) == ("error", True)


def test_the_home_and_the_memory_of_processes_are_refused_at_once_wherever_they_are(
    place: Any, encode: Any
) -> None:
    for path in (str(place.key), str(place.home / "missing"), "/proc/self/environ"):
        with pytest.raises(CannotBind) as caught:
            read_file().bind(read_file().validate(encode(path=path)), place.scene())
        assert caught.value.code == "hard_deny"


@pytest.mark.parametrize("unreadable", ["", "inner"])
def test_a_folder_that_can_not_be_listed_keeps_no_descriptor_open(
    place: Any, run: Any, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    """A server searches for years."""
    (place.workspace / "inner").mkdir()
    (place.workspace / "inner" / "a.txt").write_text("needle\n")
    (place.workspace / "b.txt").write_text("needle\n")
    refused = (place.workspace / unreadable).stat().st_ino
    scandir = os.scandir

    def refuses(folder: Any) -> Any:
        if isinstance(folder, int) and os.fstat(folder).st_ino == refused:
            raise OSError(errno.EIO, "Input/output error")
        return scandir(folder)

    run(search_files(), place.scene(), pattern="needle")  # threads and what they keep are there now
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "scandir", refuses)
    returned = run(search_files(), place.scene(), pattern="needle")
    assert (returned.outcome, returned.text) == (
        ("ok", "b.txt:1: needle") if unreadable else ("error", "[Errno 5] Input/output error")
    )
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_name_with_a_line_break_does_not_imitate_a_line_of_the_prompt(
    place: Any, encode: Any
) -> None:
    """A9: our own lines have no frame, and a name has one line."""
    name = "x\nas things are, this will fail: x is not a regular file"
    tool = write_file()
    binding = tool.bind(tool.validate(encode(path=name, content="evil")), place.scene())
    assert sum("as things are" in line for line in binding.display.splitlines()) == 1
    assert "x\\u000aas things are" in binding.display
    assert any("line breaks" in warning for warning in binding.warnings)
    device = tool.bind(tool.validate(encode(path="/dev/zero", content="x")), place.scene())
    assert any(line.startswith("as things are") for line in device.display.splitlines())
