"""
A hostile current folder: no module in it is imported next to the keys, whatever it is called and
whichever command is run there.

Each file says its name in a list when it is imported. The folder has one for every module of the
standard library, for every installed package, for names that libraries only try, and for what
Python imports at its start. Real processes, started as people start them.
"""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Cli

SCRIPT = Path(sys.executable).with_name("holdfast")
OPTIONAL = (
    "sitecustomize", "usercustomize", "orjson", "ujson", "simplejson", "yaml", "tomli", "attr", "attrs", "colorama", "shellingham", "IPython", "cPickle",
    "pydantic_ai", "logfire", "uvloop", "httptools", "uvicorn", "starlette", "h11", "websockets", "wsproto", "anyio", "brotli", "zstandard", "gnureadline",
    "pygments", "tree_sitter", "tree_sitter_bash", "apsw", "bot", "holdfast_local", "curses", "_curses", "docutils", "certifi", "opentelemetry", "setproctitle",
)  # fmt: skip
NEVER = {"__main__", "antigravity", "this"}


def names() -> list[str]:
    return sorted({*sys.stdlib_module_names, *packages_distributions(), *OPTIONAL} - NEVER)


@pytest.fixture
def hostile(cli: Cli) -> Cli:
    """The command's folder is its workspace, and full of modules that somebody else wrote."""
    said = f"open({str(cli.cwd.parent / 'imported.txt')!r}, 'a').write(__name__ + '\\n')\n"
    for name in names():
        if not name.isidentifier():
            continue
        (cli.cwd / f"{name}.py").write_text(said)
        (cli.cwd / name).mkdir(exist_ok=True)  # a package of that name is found before the file
        (cli.cwd / name / "__init__.py").write_text(said)
    (cli.cwd / "evil-1.dist-info").mkdir()
    (cli.cwd / "evil-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: evil\nVersion: 1\n"
    )
    (cli.cwd / "evil-1.dist-info" / "entry_points.txt").write_text(
        "[pydantic]\nevil = this:x\n[opentelemetry_context]\ncontextvars_context = bot:x\n"
    )
    return cli


def imported(cli: Cli) -> list[str]:
    path = cli.cwd.parent / "imported.txt"
    return path.read_text().split() if path.exists() else []


def run(
    cli: Cli, *words: str, command: tuple[str, ...] = (str(SCRIPT),), stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*command, *words],
        cwd=cli.cwd,
        env=cli.env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_no_command_imports_a_module_of_the_folder_it_is_run_in(hostile: Cli) -> None:
    """16: `send`, `approvals answer`, `resume`, `doctor` and the rest, by the installed script."""
    asked = json.loads(
        run(
            hostile, "--json", "send", "ops/api", "run: echo ran >> ran.txt", "--as", "alice"
        ).stdout
    )["approvals"][0]
    table: tuple[tuple[str, ...], ...] = (
        ("send", "notes", "what time is it?"),
        ("send", "notes", "search_files pattern=x path=."),
        ("approvals", "list"),
        ("approvals", "show", asked["id"]),
        ("approvals", "answer", asked["id"], "approve_once", "--as", "alice"),
        ("resume",),
        ("verify",),
        ("doctor",),
        ("config", "check"),
        ("config", "show"),
        ("grants", "list"),
        ("tokens", "add", "ci", "--as", "alice", "--scopes", "read"),
        ("tokens", "list"),
        ("sessions", "list"),
        ("sessions", "show", "ops/api"),
        ("sessions", "follow", "ops/api", "--after", "0"),
        ("sessions", "export", "ops/api"),
        ("sessions", "compact", "ops/api"),
        ("memory", "list"),
        ("jobs", "list"),
        ("reminders", "list"),
        ("keys", "rotate"),
        ("backup", "../kept"),
        ("--help",),
        ("send", "notes", "hi", "--model", "openai:gpt-5"),
        ("serve", "--port", "70000"),
    )
    for words in table:
        run(hostile, *words)
        assert imported(hostile) == [], words
    assert hostile.ran() == 1  # the commands did their work there


def test_a_server_imports_nothing_of_the_folder_it_is_started_in(hostile: Cli) -> None:
    process = subprocess.Popen(
        [str(SCRIPT), "--json", "serve", "--port", "0"],
        cwd=hostile.cwd,
        env=hostile.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "url" in json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert imported(hostile) == []


def test_tools_of_settings_do_not_move_to_the_folder_of_the_day(hostile: Cli) -> None:
    """A module that was loaded from one folder is never taken from another one."""
    own = hostile.cwd.parent / "bots"
    own.mkdir()
    (own / "ownbot.py").write_text(
        "import holdfast\n\n@holdfast.tool(mode='auto')\ndef status() -> str:\n    return 'mine'\n"
    )
    hostile.settings('[agents.ops]\nmodel = "demo"\ntools = ["ownbot:status"]\n')
    first = subprocess.run(
        [str(SCRIPT), "--json", "send", "ops/a", "status"],
        cwd=own,
        env=hostile.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "mine" in json.loads(first.stdout)["reply"], first
    (hostile.cwd / "ownbot.py").write_text((hostile.cwd / "bot.py").read_text())
    for words in (("send", "ops/a", "status"), ("resume",), ("doctor",), ("config", "check")):
        run(hostile, "--json", *words)
    assert imported(hostile) == []
    (own / "ownbot.py").unlink()
    refused = run(hostile, "--json", "send", "ops/a", "status")
    assert "was loaded from" in refused.stdout
    assert imported(hostile) == []


def test_a_folder_that_settings_name_is_the_only_one(hostile: Cli) -> None:
    own = hostile.home / "tools"
    hostile.settings(
        '[agents.ops]\nmodel = "demo"\ntools = ["bot:status"]\n[tools.python]\nfolder = "tools"\n'
    )
    own.mkdir()
    (own / "bot.py").write_text(
        "import helper\nimport holdfast\n\n@holdfast.tool(mode='auto')\ndef status() -> str:\n    return helper.WORD\n"
    )
    (own / "helper.py").write_text("WORD = 'mine'\n")
    (hostile.cwd / "helper.py").write_text((hostile.cwd / "bot.py").read_text())
    assert "mine" in json.loads(run(hostile, "--json", "send", "ops/a", "status").stdout)["reply"]
    assert imported(hostile) == []


BOT = """
import helper
import holdfast, pkgutil, secrets, json, uuid
import helpers.deep

@holdfast.tool(mode="auto")
def status() -> str:
    import later
    import colorsys
    try:
        pkgutil.resolve_name("stranger")  # a library that tries a module which nobody has installed
    except ImportError:
        pass
    return f"{helper.WORD} {helpers.deep.WORD} {later.WORD} {colorsys.__file__}"

ops = holdfast.Agent("ops", model="demo", tools=[status])
"""


@pytest.mark.parametrize("app", ["bot:ops", "./bot.py:ops", "ABSOLUTE/bot.py:ops"])
def test_an_app_finds_its_own_modules_and_shadows_nobody_elses(hostile: Cli, app: str) -> None:
    """
    The module that was named, and what its own code imports, at once or later; no other import of
    the process is answered from its folder.
    """
    for name in ("bot", "helper", "later"):
        subprocess.run(["rm", "-rf", hostile.cwd / name], check=True)
    (hostile.cwd / "bot.py").write_text(BOT)
    (hostile.cwd / "helper.py").write_text("import helpers.deep\nWORD = 'one'\n")
    (hostile.cwd / "stranger.py").write_text((hostile.cwd / "apsw.py").read_text())
    (hostile.cwd / "later.py").write_text("WORD = 'three'\n")
    (hostile.cwd / "helpers").mkdir()  # without __init__.py
    (hostile.cwd / "helpers" / "deep.py").write_text("WORD = 'two'\n")
    words = (
        "--json",
        "--app",
        app.replace("ABSOLUTE", str(hostile.cwd)),
        "send",
        "ops/a",
        "status",
    )
    for command in ((str(SCRIPT),), (sys.executable, "-P", "-m", "holdfast")):
        done = run(hostile, *words, command=command)
        reply = json.loads(done.stdout)["reply"]
        assert "one two three" in reply
        assert str(hostile.cwd) not in reply
        assert imported(hostile) == [], command


@pytest.mark.parametrize("name", ["secrets", "apsw", "json", "holdfast", "sys"])
def test_an_app_that_takes_the_name_of_another_module_is_refused(hostile: Cli, name: str) -> None:
    refused = json.loads(
        run(hostile, "--json", "--app", f"{name}:ops", "send", "ops/a", "hi").stdout
    )["error"]
    assert refused["code"] == "bad_app"
    assert imported(hostile) == []


WRITES = "import holdfast\nops = holdfast.Agent('ops', model='demo', tools=['shell', 'now'])\n"


def test_a_program_that_tools_may_write_is_named_and_refused_where_scripts_do_not_count(
    cli: Cli,
) -> None:
    """
    The app lies in the workspace of an agent that has a shell: said by default, and refused where
    its code could stand in for a person.
    """
    (cli.cwd / "bot.py").write_text(WRITES)
    said = run(cli, "--json", "--app", "bot:ops", "send", "ops/a", "what time is it?")
    assert (said.returncode, json.loads(said.stdout)["outcome"]) == (0, "completed")
    assert "--workspace" in said.stderr
    assert str(cli.cwd) in said.stderr
    cli.settings('[approvals]\nconsent = ["terminal", "page"]\n')
    refused = run(cli, "--json", "--app", "bot:ops", "send", "ops/b", "what time is it?")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (5, "cannot_drive")
    apart = cli.cwd.parent / "work"
    apart.mkdir()
    works = run(
        cli,
        "--json",
        "--app",
        "bot:ops",
        "send",
        "ops/c",
        "what time is it?",
        "--workspace",
        str(apart),
    )
    assert (works.returncode, works.stderr) == (0, "")


def test_a_link_to_the_workspace_is_the_workspace(cli: Cli) -> None:
    (cli.cwd / "bot.py").write_text(WRITES)
    (cli.cwd.parent / "link").symlink_to(cli.cwd)
    said = run(
        cli,
        "--json",
        "--app",
        str(cli.cwd.parent / "link" / "bot.py") + ":ops",
        "send",
        "ops/a",
        "what time is it?",
    )
    assert "keep the two apart" in said.stderr


def test_the_folder_of_the_script_is_not_searched_either(cli: Cli) -> None:
    """As in ~/.local/bin, which many programs write to."""
    folder = cli.cwd.parent / "bin"
    folder.mkdir()
    (folder / "holdfast").write_text(SCRIPT.read_text())
    (folder / "holdfast").chmod(0o755)
    said = f"open({str(cli.cwd.parent / 'imported.txt')!r}, 'a').write(__name__ + '\\n')\n"
    for name in ("apsw", "tree_sitter", "blake3", "secrets", "asyncio", "uvicorn", "msgspec"):
        (folder / f"{name}.py").write_text(said)
    run(cli, "send", "notes", "what time is it?", command=(str(folder / "holdfast"),))
    assert {"apsw", "tree_sitter", "blake3", "secrets", "uvicorn"}.isdisjoint(imported(cli))


def test_a_command_that_begins_nothing_finds_no_tools_for_the_first_time(hostile: Cli) -> None:
    """
    `resume`, `approvals answer` and `doctor` in a stranger's folder: settings name `bot:status`,
    and nobody has loaded it yet.
    """
    hostile.settings('[agents.ops]\nmodel = "demo"\ntools = ["bot:status"]\n')
    elsewhere = hostile.cwd.parent / "elsewhere"
    elsewhere.mkdir()
    words = [str(SCRIPT), "--json", "send", "ops/a", "hello", "--no-wait"]
    subprocess.run(words, cwd=elsewhere, env=hostile.env, capture_output=True, check=True)
    for command in (
        ("resume",),
        ("resume", "ops/a"),
        ("approvals", "answer", "a-x", "deny"),
        ("doctor",),
        ("config", "check"),
    ):
        run(hostile, "--json", *command)
        assert (imported(hostile), (hostile.home / "programs.json").exists()) == ([], False), (
            command
        )


def test_a_folder_that_no_key_vouches_for_is_not_loaded_from(cli: Cli) -> None:
    """A program that writes to the home names another folder for the tools of settings."""
    cli.settings('[agents.ops]\nmodel = "demo"\ntools = ["bot:status"]\n')
    ours, theirs = cli.cwd.parent / "ours", cli.cwd.parent / "theirs"
    text = "import holdfast\n\n\n@holdfast.tool\ndef status() -> str:\n    return 'well'\n"
    for folder in (ours, theirs):
        folder.mkdir()
        said = f"open({str(cli.cwd.parent / 'imported.txt')!r}, 'a').write({folder.name!r} + ' ')\n"
        (folder / "bot.py").write_text(said + text)
    words = [str(SCRIPT), "--json", "send", "ops/a", "hello"]
    subprocess.run(words, cwd=ours, env=cli.env, capture_output=True, check=True)
    kept = cli.home / "programs.json"
    run(cli, "keys", "rotate")
    assert run(cli, "--json", "send", "ops/a", "hello").returncode == 0
    assert set(imported(cli)) == {"ours"}
    kept.write_text(kept.read_text().replace("/ours", "/theirs"))
    refused = run(cli, "--json", "send", "ops/a", "hello")
    assert (refused.returncode, set(imported(cli))) == (5, {"ours"})
    assert "no key of this home vouches for it" in refused.stdout


def test_a_crash_leaves_no_core_with_the_keys_in_it() -> None:
    """It would lie in the current folder, which may be a workspace."""
    code = """
import resource, sys
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
sys.argv = ["holdfast", "--version"]
from holdfast.cli.main import main
try:
    main()
finally:
    print(resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"
