"""TAB offers what there is: commands, sessions, prompts, a prompt's options; and never fails."""

from tests.acceptance.cli.conftest import Cli


def _offered(cli: Cli, *words: str, incomplete: str = "") -> list[str]:
    env = {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("holdfast", *words, incomplete)),
        "COMP_CWORD": str(len(words) + 1),
    }
    ran = cli(env=env)
    assert ran.err == "", ran
    return ran.out.split()


def test_sessions_prompts_and_options_are_offered(cli: Cli) -> None:
    approval = cli.ask()
    cli.json("send", "notes", "hello")
    assert _offered(cli, "sessions", "show") == ["local/notes", "ops/api"]
    assert _offered(cli, "sessions", "show", incomplete="op") == ["ops/api"]
    assert _offered(cli, "resume", incomplete="loc") == ["local/notes"]
    assert _offered(cli, "approvals", "answer") == [approval["id"]]
    assert _offered(cli, "approvals", "answer", approval["id"], incomplete="app") == [
        option for option in approval["options"] if option.startswith("app")
    ]
    assert "approvals" in _offered(cli, incomplete="app")


def test_memories_and_tokens_are_offered(cli: Cli) -> None:
    asked = cli.json("send", "notes", "remember that the door is green")
    cli.json("approvals", "answer", asked["approvals"][0]["id"], "approve_once")
    cli.json("tokens", "add", "laptop", "--as", "alice", "--scopes", "read")
    (item,) = cli.json("memory", "list")["memory"]
    assert _offered(cli, "memory", "forget") == [item["id"]]
    assert _offered(cli, "tokens", "revoke", incomplete="la") == ["laptop"]


def test_completion_offers_the_sessions_of_the_home_on_the_command_line(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    elsewhere = str(cli.cwd / "elsewhere")
    cli.json("--home", elsewhere, "send", "there", "hello")
    assert _offered(cli, "--home", elsewhere, "sessions", "show") == ["local/there"]
    assert _offered(cli, "sessions", "show", "--home", elsewhere) == ["local/there"]


def test_completion_offers_nothing_and_creates_nothing_without_a_home(cli: Cli) -> None:
    assert _offered(cli, "sessions", "show") == []
    assert not cli.home.exists()
    cli.settings("this is not TOML")
    assert _offered(cli, "sessions", "show") == []


def test_completion_can_be_installed(cli: Cli) -> None:
    home, below_a_shell = (
        {"HOME": str(cli.cwd)},
        ("bash", "-c", '"$@"; exit $?', "bash"),
    )  # it asks which shell it was started by
    shown = cli("--show-completion", "bash", env=home, prefix=below_a_shell)
    assert shown.code == 0 or "bash" in shown.out + shown.err
    ran = cli("--install-completion", "bash", env=home, prefix=below_a_shell)
    assert ran.code == 0, ran
    assert (cli.cwd / ".bash_completions").exists() or (cli.cwd / ".bashrc").exists()
