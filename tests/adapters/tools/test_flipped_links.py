"""
File tools while another process flips what a path leads to, the whole time: what was shown and
decided is what is read or written, or nothing is.

P4. The tests take the part of policy where nobody is asked: whatever binds inside the workspace
runs at once, as under a grant.
"""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.adapters.tools.conftest import Place, encode

from holdfast.adapters.tools.files import walk as file_walk
from holdfast.adapters.tools.files.read import list_files, read_file, search_files
from holdfast.adapters.tools.files.write import write_file
from holdfast.ports.tools import CannotBind, Tool, ToolReturned

TRIES = 500
SECRET = "outside-7f3a"
Flip = Callable[[Path, str, str], None]


@pytest.fixture
def flip() -> Iterator[Flip]:
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, name: str, other: str) -> None:
        words = [
            sys.executable,
            str(Path(__file__).parent / "link_flipper.py"),
            str(folder),
            name,
            other,
        ]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert started[-1].stdout is not None
        if started[-1].stdout.readline() != b"flipping\n":
            pytest.skip("two names can't be exchanged on this filesystem")

    yield start
    for each in started:
        each.communicate()


def attempt(tool: Tool, scene: Any, **arguments: Any) -> tuple[str, str]:
    """
    As the runtime does where nobody is asked: (`bound outside`, `not bound`, or the outcome; the
    text).
    """

    async def whole() -> ToolReturned | None:
        checked = tool.validate(encode(**arguments))
        binding = tool.bind(checked, scene)
        if binding.reach != "workspace":
            return None  # a person is asked, and says no
        prepared = await tool.prepare(checked, binding, scene, idempotency_key="k")
        return await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    try:
        returned = asyncio.run(whole())
    except CannotBind as exc:
        return "not bound", str(exc)
    return ("bound outside", "") if returned is None else (returned.outcome, returned.text)


class Stage:
    """
    A workspace with a folder that is now a real one and now a link to a folder outside, or into the
    home.
    """

    def __init__(self, place: Place, target: Path) -> None:
        self.place, self.target = place, target
        (place.workspace / "d").mkdir()
        (place.workspace / "d" / "f.txt").write_text("inside\n")
        target.mkdir(parents=True, exist_ok=True)
        (target / "f.txt").write_text(f"{SECRET}\n")
        (place.workspace / "d.other").symlink_to(target)
        self.before = self.seen()

    def seen(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.target.iterdir() if path.is_file()}


TARGETS = ["outside", "home/keys", pytest.param("home/elsewhere", marks=pytest.mark.long)]


def exchange(folder: Path, name: str, other: str) -> None:
    """Exchange two names in one system call, as `link_flipper.py` does."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _LIBC.renameat2(fd, name.encode(), fd, other.encode(), _RENAME_EXCHANGE) != 0:
            pytest.skip("two names can't be exchanged on this filesystem")
    finally:
        os.close(fd)


_LIBC = ctypes.CDLL(None, use_errno=True)
_RENAME_EXCHANGE = 2
# Every call by which the tools look at the file system or change it.
_STEPS = (
    *("open", "stat", "lstat", "fstat", "readlink", "listdir", "scandir", "access", "read"),
    *("write", "fsync", "rename", "replace", "link", "unlink", "mkdir", "chmod", "fchmod"),
)
_STEPS_MAX = 400  # a call of a tool makes far fewer steps


class Between:
    """
    Count the steps of a tool and act right before chosen ones, so that a change falls between two
    known steps instead of racing with them.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.acts: dict[int, Callable[[], None]] = {}
        self.count = 0
        self._is_acting = True  # nothing counts yet
        for name in _STEPS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*words: Any, **named: Any) -> Any:
            if not self._is_acting:
                act = self.acts.pop(self.count, None)
                self.count += 1
                if act is not None:
                    self._act(act)
            return real(*words, **named)

        return step

    def _act(self, act: Callable[[], None]) -> None:
        self._is_acting = True
        try:
            act()
        finally:
            self._is_acting = False

    def __enter__(self) -> Self:
        self.count, self._is_acting = 0, False
        return self

    def __exit__(self, *_: object) -> None:
        self._is_acting = True
        for act in self.acts.values():
            act()  # a change that was to be undone later than the last step
        self.acts.clear()


def walked(
    monkeypatch: pytest.MonkeyPatch, stage: "Stage", once: Callable[[int], tuple[str, str]]
) -> Counter[str]:
    """
    Run a call again and again. Exchange the folder and the link before its first step, then before
    its second one, and so on to the last; once for good, and once for the length of one step.
    """
    came: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        between = Between(patch)

        def flip() -> None:
            exchange(stage.place.workspace, "d", "d.other")

        for for_good in (True, False):
            for step in range(_STEPS_MAX):
                between.acts = {step: flip} | ({} if for_good else {step + 1: flip})
                with between:
                    outcome, text = once(step)
                is_flipped = (stage.place.workspace / "d").is_symlink()
                came[outcome] += 1
                assert SECRET not in text, (step, outcome, text)
                assert stage.seen() == stage.before, (step, outcome)
                if is_flipped:
                    flip()
                if between.count <= step:
                    break
            else:
                pytest.fail(f"a call made more than {_STEPS_MAX} steps")
    return came


@pytest.mark.parametrize("target", TARGETS)
def test_no_write_lands_outside_whichever_step_a_link_is_flipped_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """P4: before every step of a write, for good and for one step."""
    stage = Stage(place, place.root / target)

    def once(step: int) -> tuple[str, str]:
        path = "d/f.txt" if step % 2 else f"d/n{step}.txt"
        return attempt(write_file(), place.scene(), path=path, content=f"written {step}\n")

    came = walked(monkeypatch, stage, once)
    assert came["ok"] > 0, came  # flipped back in time, or after the last step
    assert came["error"] > 0, came  # flipped between the prompt and the write
    assert came["not bound"] + came["bound outside"] > 0, came  # flipped before the prompt
    assert not list(place.workspace.rglob(".*.tmp"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "tool", [read_file(), list_files(), search_files()], ids=lambda tool: tool.definition.name
)
def test_nothing_outside_is_read_whichever_step_a_link_is_flipped_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, target: str, tool: Tool
) -> None:
    stage = Stage(place, place.root / target)
    (stage.target / f"{SECRET}.txt").write_text(f"{SECRET}\n")
    stage.before = stage.seen()
    arguments = ARGUMENTS[tool.definition.name]
    came = walked(monkeypatch, stage, lambda _: attempt(tool, place.scene(), **arguments))
    assert came["ok"] > 0, came
    if tool.definition.name != "search_files":  # a search leaves a link out and goes on
        assert came["error"] > 0, came
        assert came["not bound"] + came["bound outside"] > 0, came


ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "d/f.txt"},
    "list_files": {"path": "d"},
    "search_files": {"path": ".", "pattern": "i"},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_no_write_lands_outside_while_links_are_flipped(
    place: Place, flip: Flip, target: str
) -> None:
    stage, came = Stage(place, place.root / target), Counter[str]()
    flip(place.workspace, "d", "d.other")
    for number in range(TRIES):
        outcome, text = attempt(
            write_file(),
            place.scene(),
            path="d/f.txt" if number % 2 else f"d/n{number}.txt",
            content=f"written {number}\n",
        )
        came[outcome] += 1
        assert SECRET not in text
    assert stage.seen() == stage.before
    assert came["ok"] > 0, came  # else nothing was tried
    assert not list(place.workspace.rglob(".*.tmp"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "tool", [read_file(), list_files(), search_files()], ids=lambda tool: tool.definition.name
)
def test_nothing_outside_is_read_while_links_are_flipped(
    place: Place, flip: Flip, target: str, tool: Tool
) -> None:
    stage, came = Stage(place, place.root / target), Counter[str]()
    (stage.target / f"{SECRET}.txt").write_text(f"{SECRET}\n")
    flip(place.workspace, "d", "d.other")
    arguments = ARGUMENTS[tool.definition.name]
    for _ in range(TRIES):
        outcome, text = attempt(tool, place.scene(), **arguments)
        came[outcome] += 1
        assert SECRET not in text, (outcome, text)
    assert came["ok"] > 0, came


def test_no_write_lands_in_another_folder_whichever_step_it_takes_the_approved_ones_place_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two real folders, exchanged after the prompt and before every step of the write."""
    for name in ("d", "d.other"):
        (place.workspace / name).mkdir()
    shown = (place.workspace / "d").stat().st_ino
    tool, scene = write_file(), place.scene()
    arguments = tool.validate(encode(path="d/f.txt", content="x"))
    binding = tool.bind(arguments, scene)

    async def go() -> ToolReturned:
        return await (await tool.prepare(arguments, binding, scene, idempotency_key="k")).go(
            timeout_seconds=60, on_output=lambda _: None
        )

    came: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        between = Between(patch)
        for step in range(_STEPS_MAX):
            between.acts = {step: lambda: exchange(place.workspace, "d", "d.other")}
            with between:
                outcome = asyncio.run(go()).outcome
            came[outcome] += 1
            if (place.workspace / "d").stat().st_ino != shown:
                exchange(place.workspace, "d", "d.other")
            assert list((place.workspace / "d.other").iterdir()) == [], (step, outcome)
            (place.workspace / "d" / "f.txt").unlink(missing_ok=True)
            if between.count <= step:
                break
        else:
            pytest.fail(f"a write made more than {_STEPS_MAX} steps")
    assert (came["ok"] > 0, came["error"] > 0) == (True, True), came


@pytest.mark.timeout(600)
def test_no_write_lands_in_another_folder_that_took_the_approved_ones_place(
    place: Place, flip: Flip
) -> None:
    """Two real folders: only the one that was shown, by device and inode, is written to."""
    for name in ("d", "d.other"):
        (place.workspace / name).mkdir()
    shown = (place.workspace / "d").stat().st_ino
    other = os.open(place.workspace / "d.other", os.O_RDONLY | os.O_DIRECTORY)
    tool, scene = write_file(), place.scene()
    arguments = tool.validate(encode(path="d/f.txt", content="x"))
    binding = tool.bind(arguments, scene)
    flip(place.workspace, "d", "d.other")

    async def go() -> ToolReturned:
        return await (await tool.prepare(arguments, binding, scene, idempotency_key="k")).go(
            timeout_seconds=60, on_output=lambda _: None
        )

    came: Counter[str] = Counter()
    for _ in range(TRIES):
        came[asyncio.run(go()).outcome] += 1
        for name in ("d", "d.other"):
            found = place.workspace / name / "f.txt"
            if found.exists() and (place.workspace / name).stat().st_ino == shown:
                found.unlink(missing_ok=True)
    assert came["ok"] > 0  # else nothing was tried
    assert os.listdir(other) == []  # noqa: PTH208  # by its descriptor: the names are still exchanged
    os.close(other)


# --- one step at a time


def prepared(
    tool: Tool, scene: Any, meanwhile: Callable[[], object], **arguments: Any
) -> ToolReturned:
    """Bound; then something happens; then it runs."""

    async def whole() -> ToolReturned:
        checked = tool.validate(encode(**arguments))
        binding = tool.bind(checked, scene)
        ready = await tool.prepare(checked, binding, scene, idempotency_key="k")
        meanwhile()
        return await ready.go(timeout_seconds=60, on_output=lambda _: None)

    return asyncio.run(whole())


def replace_workspace(place: Place, by: str) -> None:
    place.workspace.rename(place.root / "moved")
    if by == "link":
        place.workspace.symlink_to(place.root / "outside")
    else:
        place.workspace.mkdir()
        (place.workspace / "f.txt").write_text(f"{SECRET}\n")


@pytest.mark.parametrize("by", ["link", "folder"])
@pytest.mark.parametrize(
    "tool",
    [read_file(), list_files(), search_files(), write_file()],
    ids=lambda tool: tool.definition.name,
)
def test_a_workspace_that_was_replaced_after_the_prompt_is_not_used(
    place: Place, tool: Tool, by: str
) -> None:
    (place.root / "outside").mkdir()
    for folder in (place.workspace, place.root / "outside"):
        (folder / "f.txt").write_text("inside\n" if folder == place.workspace else f"{SECRET}\n")
    name = tool.definition.name
    arguments = {"path": "f.txt" if name in ("read_file", "write_file") else "."}
    arguments |= (
        {"pattern": "-"}
        if name == "search_files"
        else {"content": "new"}
        if name == "write_file"
        else {}
    )
    facts = place.workspace.stat()
    scene = place.scene(workspace_identity=f"{facts.st_dev}:{facts.st_ino}")
    returned = prepared(tool, scene, lambda: replace_workspace(place, by), **arguments)
    assert (returned.outcome, SECRET in returned.text) == ("error", False)
    assert (place.root / "outside" / "f.txt").read_text() == f"{SECRET}\n"
    assert (place.workspace / "f.txt").read_text() == f"{SECRET}\n"


def test_a_folder_that_was_moved_out_of_the_workspace_after_the_prompt_is_not_written_to(
    place: Place,
) -> None:
    """
    The very folder that was approved, but no longer where it was shown to be; a link leads there
    now.
    """
    (place.workspace / "d").mkdir()

    def move() -> None:
        (place.workspace / "d").rename(place.root / "d")
        (place.workspace / "d").symlink_to(place.root / "d")

    assert (
        prepared(write_file(), place.scene(), move, path="d/f.txt", content="x").outcome == "error"
    )
    assert list((place.root / "d").iterdir()) == []


def test_the_last_look_before_the_rename_sees_a_folder_that_was_moved(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved while the new content was synced beside the old."""
    (place.workspace / "d").mkdir()
    fsync = os.fsync

    def moved_meanwhile(fd: int) -> None:
        fsync(fd)
        if (place.workspace / "d").exists():
            (place.workspace / "d").rename(place.root / "d")

    monkeypatch.setattr(os, "fsync", moved_meanwhile)
    returned = prepared(write_file(), place.scene(), lambda: None, path="d/f.txt", content="x")
    assert (returned.outcome, "changed after this was approved" in returned.text) == ("error", True)
    assert list((place.root / "d").iterdir()) == []


def test_a_path_outside_that_was_approved_works_and_is_bound_from_the_root(place: Place) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "f.txt").write_text("theirs\n")
    path = str(outside / "f.txt")
    assert prepared(read_file(), place.scene(), lambda: None, path=path).text == "theirs\n"
    assert (
        prepared(list_files(), place.scene(), lambda: None, path=str(outside)).text == "f.txt (7)"
    )
    assert (
        prepared(
            search_files(), place.scene(), lambda: None, path=str(outside), pattern="their"
        ).text
        == "f.txt:1: theirs"
    )
    assert (
        prepared(write_file(), place.scene(), lambda: None, path=path, content="ours\n").outcome
        == "ok"
    )
    assert (outside / "f.txt").read_text() == "ours\n"

    def replaced() -> None:
        outside.rename(place.root / f"old{len(list(place.root.iterdir()))}")
        outside.mkdir()
        (outside / "f.txt").write_text(f"{SECRET}\n")

    for tool, more in (
        (read_file(), {"path": path}),
        (list_files(), {"path": str(outside)}),
        (write_file(), {"path": path, "content": "x"}),
    ):
        returned = prepared(tool, place.scene(), replaced, **more)
        assert (returned.outcome, SECRET in returned.text) == ("error", False)
        assert (outside / "f.txt").read_text() == f"{SECRET}\n"


def test_a_link_inside_the_workspace_is_shown_and_used_as_what_it_leads_to(place: Place) -> None:
    (place.workspace / "real.txt").write_text("one\n")
    (place.workspace / "link.txt").symlink_to("real.txt")
    tool = write_file()
    binding = tool.bind(tool.validate(encode(path="link.txt", content="two\n")), place.scene())
    assert (binding.path, binding.reach) == (str(place.workspace / "real.txt"), "workspace")
    assert str(place.workspace / "real.txt") in binding.display
    assert (
        prepared(tool, place.scene(), lambda: None, path="link.txt", content="two\n").outcome
        == "ok"
    )
    assert (
        (place.workspace / "real.txt").read_text(),
        (place.workspace / "link.txt").is_symlink(),
    ) == ("two\n", True)


def test_a_second_name_of_a_file_of_the_home_is_refused(place: Place) -> None:
    """A hard link to the key has a path in the workspace."""
    os.link(place.key, place.workspace / "innocent.txt")
    (place.workspace / "a.txt").write_text("key-material is elsewhere\n")
    os.link(place.workspace / "a.txt", place.workspace / "b.txt")  # two names, and none in the home
    for tool, more in ((read_file(), {}), (write_file(), {"content": "x"})):
        with pytest.raises(CannotBind) as refused:
            tool.bind(tool.validate(encode(path="innocent.txt", **more)), place.scene())
        assert refused.value.code == "hard_deny"
    found = prepared(search_files(), place.scene(), lambda: None, pattern="key-material").text
    assert found == "a.txt:1: key-material is elsewhere\nb.txt:1: key-material is elsewhere"


@pytest.mark.parametrize(
    "path", ["/proc", "/proc/self", "/proc/sys", "/sys", "/sys/kernel", "/dev", "link"]
)
@pytest.mark.parametrize(
    "tool", [list_files(), search_files()], ids=lambda tool: tool.definition.name
)
def test_file_systems_that_are_made_up_are_never_walked(
    place: Place, tool: Tool, path: str
) -> None:
    (place.workspace / "link").symlink_to("/proc")
    arguments = {"path": path} | (
        {"pattern": "x"} if tool.definition.name == "search_files" else {}
    )
    with pytest.raises(CannotBind, match="file system, which tools do not walk") as refused:
        tool.bind(tool.validate(encode(**arguments)), place.scene())
    assert refused.value.code == "hard_deny"


def test_a_search_that_meets_made_up_file_systems_leaves_them_out_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    From the root of all, which has the three; everything else in it is not looked at here, since it
    is anybody's.
    """
    names_in, root = file_walk.names_in, Path("/").stat().st_ino
    monkeypatch.setattr(
        file_walk,
        "names_in",
        lambda fd: (["dev", "proc", "sys"], True) if os.fstat(fd).st_ino == root else names_in(fd),
    )
    walk = file_walk.FileWalk(os.open("/", os.O_RDONLY | os.O_DIRECTORY), None)
    assert list(walk.files()) == []
    assert walk.notes() == [
        "[left out: dev/ (device file system), proc/ (proc file system), sys/ (sysfs file system)]"
    ]


def test_a_walk_is_bounded_in_files_names_bytes_and_time_and_says_where_it_stopped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (place.workspace / f"f{number:02}").write_text("text\n" * 10)

    def searched() -> str:
        return prepared(search_files(), place.scene(), lambda: None, pattern="nowhere").text

    assert searched() == "[nothing found in 30 files]"
    for name, value, said in (
        ("FILES_MAX", 10, "[stopped after 10 files, 500 bytes, 30 names]"),
        ("BYTES_MAX", 500, "[stopped after 10 files, 500 bytes, 30 names]"),
        ("ENTRIES_MAX", 20, "[stopped after 0 files, 0 bytes, 30 names]"),
        ("SECONDS_MAX", 0.0, "[stopped after 0 s: 0 files, 0 bytes]"),
        ("NAMES_MAX", 10, "[left out: ./ (all names after the first 10)]"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(file_walk, name, value)
            assert searched().endswith(said), name
    with monkeypatch.context() as patch:
        patch.setattr(file_walk, "NAMES_MAX", 10)
        listed = prepared(list_files(), place.scene(), lambda: None, path=".").text.splitlines()
    assert (len(listed), listed[-1]) == (11, "[stopped after 10 names; the folder has more]")
