"""
Homes that can only be read, that lost a key, and streams that are not there: what can be looked at
is shown, nothing is written, nothing falls over.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.assembly.home_path import home_path
from holdfast.errors import Unusable
from tests.acceptance.cli.conftest import Cli, everything_below

SEVERAL = """
import io, json, sys
from contextlib import redirect_stdout
from holdfast.cli.main import _run
told = []
for words in json.loads(sys.argv[1]):
    out = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(out, write_through=True)) as stream:
        code = _run(["--json", *words])
        stream.flush()
    told.append([code, out.getvalue().decode()])
print(json.dumps(told))
"""


def several(
    cli: Cli, *commands: Sequence[str], prefix: Sequence[str] = ()
) -> list[tuple[int, Any]]:
    """
    Commands one after the other in one process, each with its exit code and what it printed: a
    Python is started once.
    """
    python = [*prefix, *cli.command[:1], "-c", SEVERAL, json.dumps(commands)]
    done = subprocess.run(
        python, cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=100, check=True
    )
    return [
        (code, [json.loads(line) for line in out.splitlines()])
        for code, out in json.loads(done.stdout)
    ]


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two conversations and a prompt that waits; each test has a copy."""
    folder = tmp_path_factory.mktemp("born")
    (folder / "workspace").mkdir()
    made = Cli(folder / "home", folder / "workspace", None)
    sent = [("send", name, "hello", "--as", "alice") for name in ("notes", "other")]
    told = several(made, *sent, ("send", "ops/api", "run: echo ran >> ran.txt", "--as", "alice"))
    assert [code for code, _ in told] == [0, 0, 3]
    return made.home


@pytest.fixture
def odd(cli: Cli, created: Path) -> Cli:
    shutil.copytree(created, cli.home)
    return cli


@pytest.mark.needs_system("bwrap")
def test_a_home_on_a_read_only_mount_can_be_looked_at_and_is_never_written(odd: Cli) -> None:
    ((_, (waiting,)),) = several(odd, ("approvals", "list"))
    asked = waiting["approvals"][0]
    before = everything_below(odd.home)
    looking: list[Sequence[str]] = [
        ("sessions", "list"),
        ("sessions", "show", "notes"),
        ("sessions", "follow", "notes"),
        ("sessions", "export", "notes"),
        ("approvals", "list"),
        ("approvals", "show", asked["id"]),
        ("grants", "list"),
        ("tokens", "list"),
        ("verify",),
        ("sessions", "search", "hello"),
    ]
    writing: list[Sequence[str]] = [
        ("send", "notes", "hello", "--as", "alice"),
        ("send", "new", "hello", "--as", "alice"),
        ("approvals", "answer", asked["id"], "approve_once", "--as", "alice"),
        ("sessions", "cancel", "ops/api", "--as", "alice"),
        ("tokens", "add", "t", "--as", "alice", "--scopes", "read"),
        ("keys", "rotate"),
    ]
    told = several(
        odd,
        *looking,
        *writing,
        prefix=("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(odd.home), str(odd.home)),
    )
    assert [code for code, _ in told] == [0] * len(looking) + [5] * len(writing)
    assert {out[0]["error"]["code"] for _, out in told[len(looking) :]} == {"not_saved"}
    assert [each["session"] for each in told[0][1][0]["sessions"]] == [
        "local/notes",
        "local/other",
        "ops/api",
    ]
    assert [each["id"] for each in told[4][1][0]["approvals"]] == [asked["id"]]
    assert [hit["session"] for hit in told[9][1][0]["hits"] if hit["kind"] == "request"] == [
        "local/other",
        "local/notes",
    ]
    assert odd.ran() == 0
    assert everything_below(odd.home) == before


@pytest.mark.needs_system("bwrap")
def test_a_search_that_can_not_keep_what_it_read_finds_the_same(odd: Cli) -> None:
    """
    One that was kept before the mount became read-only is behind, and can't be brought up: the
    journals are read instead.
    """
    ((_, (before,)),) = several(odd, ("sessions", "search", "hello"))
    assert (odd.home / "search.db").exists()
    several(odd, ("send", "notes", "hello again", "--as", "alice"))
    kept = everything_below(odd.home)
    searching = ("sessions", "search", "hello")
    ((code, (found,)),) = several(
        odd,
        searching,
        prefix=("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(odd.home), str(odd.home)),
    )
    assert (code, len(found["hits"])) == (0, len(before["hits"]) + 1)
    assert everything_below(odd.home) == kept


@pytest.mark.needs_system("bwrap")
def test_send_and_doctor_report_a_home_that_can_not_be_created(
    cli: Cli,
) -> None:
    """As with a home folder that is read-only, which containers and build machines have."""
    above = str(cli.home.parent)
    looking, sending, health = several(
        cli,
        ("approvals", "list"),
        ("send", "notes", "hello"),
        ("doctor",),
        prefix=("bwrap", "--dev-bind", "/", "/", "--ro-bind", above, above),
    )
    assert looking == (0, [{"approvals": []}])
    assert (sending[0], sending[1][0]["error"]) == (
        6,
        {
            "code": "not_permitted",
            "message": f"{cli.home} can't be made: Read-only file system",
            "hint": "name a home where you may write: --home, $HOLDFAST_HOME, or the path given to `holdfast.open`",
        },
    )
    problems = [each["detail"] for each in health[1][0]["checks"] if each["state"] == "problem"]
    assert (health[0], problems) == (1, [f"{cli.home} is not there, and {above} can't be written"])


def test_an_unknown_home_folder_is_not_created_under_its_short_name(cli: Cli) -> None:
    """
    Else every place that a command is started in would get a home of its own, in a folder named
    `~`.
    """
    for home in ("~no-such-person/state", "~no-such-person"):
        ran = cli("--json", "--home", home, "send", "notes", "hello")
        assert (ran.code, ran.json["error"]["code"]) == (2, "usage")
        assert (
            ran.json["error"]["message"]
            == f"{home}: no home folder is known: the system has no user 'no-such-person'"
        )
    assert list(cli.cwd.iterdir()) == []
    assert cli("--home", "./~no-such-person", "send", "notes", "hello").code == 0
    assert [each.name for each in cli.cwd.iterdir()] == ["~no-such-person"]


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("", "$HOME is empty"),
        ("here", "$HOME is 'here', which is not an absolute path"),
        (None, "$HOME is not set, and the system has no user with uid 987654"),
    ],
)
def test_an_unknown_home_folder_is_refused_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, home: str | None, why: str
) -> None:
    """An empty $HOME would make a home beside the system's own folders, at `/.holdfast`."""
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(Unusable) as refused:
        home_path()
    assert refused.value.message == f"~/.holdfast: no home folder is known: {why}"
    assert refused.value.hint.startswith("name a home with --home or $HOLDFAST_HOME")
    assert home_path("/elsewhere") == Path("/elsewhere")


def test_a_folder_whose_name_is_not_text_is_refused_in_words(cli: Cli) -> None:
    """
    It could not be shown, nor journalled: neither as a home nor as a workspace, and nothing is left
    there.
    """
    odd = os.fsdecode(bytes(cli.cwd) + b"/b\xff d")
    Path(odd).mkdir()
    given = [
        cli("--json", "send", "notes", "hello", "--workspace", odd),
        cli("--json", "send", "notes", "hello", env={"HOLDFAST_HOME": f"{odd}/state"}),
    ]
    cli.cwd = Path(odd)
    given.append(cli("--json", "send", "notes", "hello"))
    assert [(ran.code, ran.json["error"]["code"]) for ran in given] == [
        (6, "malformed"),
        (2, "malformed"),
        (2, "malformed"),
    ]
    assert all("b\\udcff d" in ran.json["error"]["message"] for ran in given)
    assert list(Path(odd).iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [("send", "notes", "x", "--dedup"), ("approvals", "show"), ("sessions", "search"), ("--home",)],
)
def test_a_word_that_is_not_text_is_refused_wherever_it_stands(
    cli: Cli, words: tuple[str, ...]
) -> None:
    ran = cli("--json", *words, "half a character: \udcff")
    assert (ran.code, ran.json["error"]["code"]) == (6, "malformed")
    assert not cli.home.exists()


def test_somebody_whom_the_system_does_not_know_has_no_workspace_and_no_script(cli: Cli) -> None:
    folder = cli("--json", "send", "notes", "hello", "--workspace", "~no-such-person")
    script = cli("--json", "send", "notes", "hello", "--model", "script:~no-such-person/x.jsonl")
    assert [ran.json["error"]["code"] for ran in (folder, script)] == [
        "no_workspace",
        "unknown_model",
    ]


@pytest.mark.parametrize("kib", [0, 8, 64])
def test_a_search_whose_file_takes_no_more_finds_the_same(odd: Cli, kib: int) -> None:
    """Nothing of it fits, its beginning does, or what is kept does and what came since does not."""
    if kib == 64:
        several(odd, ("sessions", "search", "hello"))
        several(odd, ("send", "notes", "hello " + "again " * 20_000, "--as", "alice"))
    searching = ("sessions", "search", "hello")
    ((code, (found,)),) = several(
        odd, searching, prefix=("sh", "-c", f'ulimit -f {2 * kib}; exec "$@"', "sh")
    )
    assert (code, sorted({hit["session"] for hit in found["hits"]})) == (
        0,
        ["local/notes", "local/other"],
    )
    ((_, (again,)),) = several(odd, searching)
    assert again == found


def test_a_home_that_lost_its_key_can_still_be_exported_and_says_that_nothing_was_verified(
    odd: Cli,
) -> None:
    stored = next((odd.home / "sessions" / "local" / "notes").glob("*.jsonl")).read_bytes()
    (odd.home / "keys" / "1.key").unlink()
    exported = odd("--json", "sessions", "export", "notes")
    assert (exported.code, exported.out.encode()) == (0, stored)
    assert "could not be verified" in exported.err
    markdown, listed, sent = several(
        odd,
        ("sessions", "export", "notes", "--markdown"),
        ("approvals", "list"),
        ("send", "notes", "hello"),
    )
    assert markdown[0] == 0
    assert "could not be verified" in markdown[1][0]["markdown"]
    # Nobody can say what waits: an empty list would say that nothing does.
    assert [(listed[0], listed[1][0]["error"]["code"]), (sent[0], sent[1][0]["error"]["code"])] == [
        (6, "no_key"),
        (6, "no_key"),
    ]


def test_the_doctor_finds_files_that_can_not_be_used(odd: Cli) -> None:
    """Lists come from the index and see none of this."""
    folder = odd.home / "sessions" / "local"
    (folder / "notes").rename(odd.cwd / "away")
    (folder / "notes").symlink_to(odd.cwd / "away")
    shutil.rmtree(folder / "other")
    ((code, (told,)),) = several(odd, ("doctor",))
    problems = [each["detail"] for each in told["checks"] if each["state"] == "problem"]
    assert code == 1
    assert [each.partition(":")[0] for each in problems] == ["local/notes", "local/other"]


def test_the_cli_refuses_a_cursor_past_the_end_a_blank_option_and_an_exiting_app(
    odd: Cli,
) -> None:
    """
    A follower that waits after a missing record would miss every record up to it; a variable that
    was not set is not a way of leaving an option out.
    """
    (odd.cwd / "leaves.py").write_text(
        "raise SystemExit(3)\n"
    )  # told as our own code, it would say that somebody is asked
    before = everything_below(odd.home)
    told = several(
        odd,
        ("--app", "leaves:agent", "send", "notes", "hello"),
        ("sessions", "follow", "notes", "--after", "999"),
        ("send", "notes", "x", "--dedup", ""),
        ("send", "notes", "x", "--model", " "),
        ("send", "notes", "x", "--agent", ""),
        ("send", "notes", "x", "--workspace", ""),
        ("approvals", "answer", "a-x", "deny", "--answer-id", ""),
        ("backup", ""),
        ("--home", "", "send", "notes", "x"),
        ("sessions", "list", "--home", " "),
        ("--app", "", "send", "notes", "x"),
    )
    assert [(code, out[0]["error"]["code"]) for code, out in told] == [
        (2, "bad_app"),
        (6, "cursor_ahead"),
        *[(2, "malformed")] * 9,
    ]
    assert everything_below(odd.home) == before
    assert [each.name for each in odd.cwd.iterdir() if each.name != "__pycache__"] == ["leaves.py"]


def test_streams_that_are_closed_make_nothing_fall_over(odd: Cli) -> None:
    python = shlex.join(odd.command)
    closed = odd.shell(
        f"{python} sessions export notes >&-; echo $? >&2; {python} sessions export notes | true; echo ${{PIPESTATUS[0]}} >&2; {python} chat notes <&-; echo $? >&2; "
        f"{python} send notes - <&-; echo $? >&2"
    )
    assert closed.stderr.splitlines() == [
        "0",
        "0",
        "error: chat needs a terminal to talk in",
        "hint: `holdfast send SESSION TEXT` works without one",
        "2",
        "error: stdin is closed",
        "hint: `-` reads from stdin: pipe something into it",
        "2",
    ]
