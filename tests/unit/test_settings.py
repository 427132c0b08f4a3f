"""
Settings: what is understood, what is refused and how it is said, and that a running process follows
the file without ever becoming laxer by accident.
"""

import errno
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.tools.registry import builtin_tools
from holdfast.errors import Unusable
from holdfast.limits import JSON_DEPTH_MAX, KIB
from holdfast.ports.model import ModelEndpoint
from holdfast.ports.tools import BUILTIN_TOOLS
from holdfast.runtime.context import AgentSpec
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.settings import (
    FILE_NAME,
    Notify,
    Settings,
    SettingsSource,
    lines,
    load_settings,
    settings_from_toml,
)
from holdfast.settings.keys import ANY, NOTIFY_KEYS, RULE_KEYS, SECTIONS
from holdfast.settings.lines import line_of, places_of

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

FULL = """
[agents.ops]
model = "openai:gpt-5"
instructions = "Look first."
tools = ["read_file", "bot:restart_service"]
[agents.second]
[people.alice]
local = "alice"
slack = "U024BE7LH"
[people.Bob]
local = "bob"
[policy.personal]
now = "auto"
write_file = "ask"
[policy.team]
restart_service = { ask = ["bob", "carol"], requester_may_answer = false, expires_after = "1d" }
shell = { requester_may_answer = true, remember = "session" }
"*" = "deny"
[approvals]
expires_after = "12h"
remember_for = "14d"
prompts_per_turn_max = 5
on_message = "wait"
notify = { webhook = "https://example.org/hook" }
[limits]
turn_model_calls_max = 40
turn_tool_calls_max = 30
turn_tokens_max = 100_000
turn_cost_max = 2.5
tool_timeout = "45s"
[tools.shell]
confine = "require"
[secrets]
env = ["DEPLOY_TOKEN"]
[storage]
allow_network_filesystem = true
[retention]
sessions = "90d"
outputs = "30d"
quarantine = "365d"
[serve]
host = "::1"
port = 9000
hosts = ["box.lan:443"]
allow_remote = true
workspace = "/srv/work"
stop_after = "60s"
"""


def settings(text: str) -> Settings:
    return settings_from_toml(text.encode())


def refusal(text: str) -> Unusable:
    with pytest.raises(Unusable) as caught:
        settings(text)
    assert (caught.value.exit_code, caught.value.code) == (2, "settings")
    assert caught.value.hint
    return caught.value


# What is understood


def test_without_a_file_there_is_one_agent_with_all_built_in_tools(tmp_path: Path) -> None:
    found = load_settings(tmp_path)
    assert found == Settings() == load_settings(tmp_path / "absent")
    assert found.agents() == {
        "assistant": AgentSpec(name="assistant", model="demo", tools=BUILTIN_TOOLS)
    }
    assert (found.default_agent, found.policy()) == ("assistant", Policy())


def test_everything_that_may_be_said_is_understood() -> None:
    found = settings(FULL)
    assert found == Settings(
        configured={
            "ops": AgentSpec(
                name="ops",
                model="openai:gpt-5",
                instructions="Look first.",
                tools=("read_file", "bot:restart_service"),
            ),
            "second": AgentSpec(name="second", model="demo", tools=BUILTIN_TOOLS),
        },
        people={"alice": {"local": "alice", "slack": "U024BE7LH"}, "Bob": {"local": "bob"}},
        rules={
            Audience.PERSONAL: {
                "now": Rule(mode="auto", line=13),
                "write_file": Rule(mode="ask", line=14),
            },
            Audience.TEAM: {
                "restart_service": Rule(
                    mode="ask",
                    approvers=("bob", "carol"),
                    requester_may_answer=False,
                    expires_after_seconds=86400,
                    line=16,
                ),
                "shell": Rule(mode="ask", requester_may_answer=True, remember="session", line=17),
                "*": Rule(mode="deny", line=18),
            },
        },
        approvals_expire_after_seconds=12 * 3600,
        remember_for_seconds=14 * 86400,
        prompts_per_turn_max=5,
        on_message="wait",
        notify=Notify(webhook="https://example.org/hook"),
        turn_model_calls_max=40,
        turn_tool_calls_max=30,
        turn_tokens_max=100_000,
        turn_cost_max=2.5,
        tool_timeout_seconds=45,
        shell_confine="require",
        secret_names=("DEPLOY_TOKEN",),
        allow_network_filesystem=True,
        retain_sessions_seconds=90 * 86400,
        retain_outputs_seconds=30 * 86400,
        retain_quarantine_seconds=365 * 86400,
        serve_host="::1",
        serve_port=9000,
        serve_hosts=("box.lan:443",),
        serve_allow_remote=True,
        serve_workspace="/srv/work",
        serve_stop_seconds=60,
    )
    assert found.default_agent == "ops"
    assert found.policy() == Policy(
        rules=found.rules,
        on_message="wait",
        expires_after_seconds=12 * 3600,
        prompts_per_turn_max=5,
        turn_model_calls_max=40,
        turn_tool_calls_max=30,
        turn_tokens_max=100_000,
        turn_cost_microusd_max=2_500_000,
        remember_for_seconds=14 * 86400,
        people=found.people,
    )


def test_the_built_in_tools_are_those_that_there_are() -> None:
    assert tuple(tool.definition.name for tool in builtin_tools()) == BUILTIN_TOOLS


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43200), ("7d", 604800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert (
        settings(f'[approvals]\nexpires_after = "{text}"').approvals_expire_after_seconds == seconds
    )


# What is refused, and how it is said

REFUSED = [
    # text, line, what the message must name, the nearest valid key
    ("[agents.ops]\nmodel = 'demo'\nmodle = 'x'", 3, "modle", "model"),
    ("[agnts.ops]\nmodel = 'demo'", 1, "agnts", "agents"),
    ("[policy.tema]\nshell = 'ask'", 1, "policy.tema", "team"),
    ("[aprovals]", 1, "aprovals", "approvals"),
    ("x = 1", 1, "x", None),
    ("serve = 1", 1, "serve", None),
    ("[tools.shel]\nconfine = 'auto'", 1, "tools.shel", "shell"),
    ("[tools]\nshell = 'auto'", 2, "shell", None),
    (
        "\n\n[limits]\n# a comment\nturn_model_call_max = 4",
        5,
        "turn_model_call_max",
        "turn_model_calls_max",
    ),
    ("[policy.team]\nshell = { asks = ['bob'] }", 2, "asks", "ask"),
    ("[policy.team.shell]\nask = ['bob']\nexpire_after = '1d'", 3, "expire_after", "expires_after"),
    ("[policy.team]\nshell = 'allow'", 2, "shell", None),
    ("[policy.team]\nshell = true", 2, "shell", None),
    ("[policy.team]\nshell = { ask = 'bob' }", 2, "shell", None),
    ("[policy.team]\nshell = { ask = ['bob', 'bob'] }", 2, "twice", None),
    ("[policy.team]\nshell = { ask = ['Zoe\u0308'] }", 2, "ask", None),
    ("[policy.team]\nshell = { requester_may_answer = false }", 2, "nobody who may answer", None),
    ("[policy.team]\nshell = { expires_after = 3600 }", 2, "expires_after", None),
    ("[policy.team]\n'bot:restart' = 'deny'", 2, "bot:restart", None),
    ("[approvals]\nexpires_after = '7 days'", 2, "7 days", None),
    ("[approvals]\nexpires_after = '0d'", 2, "0d", None),
    ("[approvals]\nexpires_after = '-1d'", 2, "-1d", None),
    ("[approvals]\nexpires_after = '٧d'", 2, "expires_after", None),
    ("[approvals]\nexpires_after = 7", 2, "duration", None),
    ("[approvals]\nexpires_after = '366d'", 2, "366d is longer than 365d", None),
    ("[approvals]\nprompts_per_turn_max = -1", 2, "-1", None),
    ("[approvals]\nprompts_per_turn_max = true", 2, "true", None),
    ("[approvals]\nprompts_per_turn_max = '5'", 2, "prompts_per_turn_max", None),
    ("[approvals]\nprompts_per_turn_max = 5.0", 2, "5.0", None),
    ("[approvals]\non_message = 'queue'", 2, "supersede", None),
    ("[approvals]\nnotify = {}", 2, "exactly one", None),
    (
        "[approvals]\nnotify = { webhook = 'https://a.example', command = ['x'] }",
        2,
        "exactly one",
        None,
    ),
    ("[approvals]\nnotify = { webhook = 'ftp://a.example' }", 2, "webhook", None),
    ("[approvals]\nnotify = { webhook = 'http://a.example' }", 2, "https", None),
    ("[approvals]\nnotify = { webhook = 'https://u:p@a.example' }", 2, "password", None),
    ("[approvals]\nnotify = { command = 'rm -rf' }", 2, "command", None),
    ("[approvals]\nnotify = { comand = ['x'] }", 2, "comand", "command"),
    ("[limits]\nturn_cost_max = nan", 2, "nan", None),
    ("[limits]\nturn_cost_max = inf", 2, "inf", None),
    ("[limits]\nturn_cost_max = 0", 2, "turn_cost_max", None),
    ("[limits]\nturn_model_calls_max = 0", 2, "turn_model_calls_max", None),
    ("[limits]\ntool_timeout = '2d'", 2, "tool_timeout", None),
    ("[limits]\ntool_timeout = '25h'", 2, "25h is longer than 1d", None),
    ("[mcp]\nwait = '2h'", 2, "2h is longer than 1h", None),
    ("[tools.shell]\nconfine = 'maybe'", 2, "require", None),
    ("[secrets]\nenv = 'TOKEN'", 2, "env", None),
    ("[secrets]\nenv = ['A B']", 2, "A B", None),
    ("[secrets]\nenv = [1]", 2, "env", None),
    ("[storage]\nallow_network_filesystem = 'yes'", 2, "true or false", None),
    ("[serve]\nport = 65536", 2, "65536", None),
    ("[serve]\nhost = 'http://x'", 2, "host", None),
    ("[serve]\nhost = ''", 2, "host", None),
    ("[agents.ops]\nmodel = ''", 2, "model", None),
    ("[agents.ops]\ntools = ['a b']", 2, "a b", None),
    ("[agents.ops]\ntools = ['shell', 'shell']", 2, "twice", None),
    ("[agents.'']\nmodel = 'demo'", 1, "name", None),
    ("[people.alice]\nlocal = ['alice']", 2, "local", None),
    ("[people.alice]\nlocal = 'ali\u200bce'", 2, "local", None),
    ("[people.alice]\n'Big Channel' = 'x'", 2, "Big Channel", None),
    ("[people.'Zoe\u0308']\nlocal = 'zoe'", 1, "Zoe", None),
    ("[people.alice]\nlocal = 'a'\n[people.bob]\nlocal = 'a'", 4, "alice", None),
    ("[serve]\nport = 1\nport = 2", 3, "", None),
    ("[serve\nport = 1", 1, "", None),
    ("[retention]\nsessions = 'never'", 2, "duration", None),
]


@pytest.mark.parametrize(("text", "line", "named", "nearest"), REFUSED)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key(
    text: str, line: int, named: str, nearest: str | None
) -> None:
    error = refusal(text)
    assert f"line {line}:" in error.message
    assert named in error.message
    assert (
        f"did you mean {nearest!r}?" if nearest else "did you mean"
    ) in error.message or nearest is None


def test_all_problems_are_said_at_once_in_the_order_of_the_file() -> None:
    error = refusal("[serve]\nport = 'x'\nhots = 'y'\n[limits]\ntool_timeout = 1\n")
    assert [int(found) for found in re.findall(r"line (\d+):", error.message)] == [2, 3, 5]


def test_a_long_list_of_problems_is_bounded() -> None:
    error = refusal("[serve]\n" + "".join(f"x{number} = 1\n" for number in range(100)))
    assert error.message.count("\n") == 20
    assert error.message.endswith("and more")


@pytest.mark.parametrize(
    "data",
    [
        b"[serve]\nhost = '\xff'",
        b"\xef\xbb\xbf[serve]",
        b"[serve]\x00",
        b"x = " + b"[" * 5000,
        b"[serve]\nport = " + b"9" * 5000,
        b"# " + b"x" * 70_000,
        b"\xff\xfe[\x00",
    ],
)
def test_bytes_that_are_not_settings_are_refused(data: bytes) -> None:
    with pytest.raises(Unusable) as caught:
        settings_from_toml(data)
    assert caught.value.code == "settings"


def test_a_message_shows_nothing_invisible() -> None:
    """The error may be a character that nobody sees, or one that turns the line around."""
    error = refusal("[serve]\n\"po\u202ert\" = 1\nhost = 'a \u200b'")
    assert error.message.isascii()


# Lines

TRICKY = '''# [serve]
[agents.one]
instructions = """
[serve]
port = 1
model = "no"
"""
tools = [
  "shell",  # model = "no"
]
"mo\\u0064el" = "demo"

  [ serve ]
port = 2
approvals.notify.webhook = "https://example.org"
[people]
alice.local = "alice"
bob = { local = "bob", slack = "U1" }
[[list]]
x = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("agents",), 2),
        (("agents", "one", "instructions"), 3),
        (("agents", "one", "tools"), 8),
        (("agents", "one", "tools", "shell"), 8),
        (("agents", "one", "model"), 11),
        (("serve",), 13),
        (("serve", "port"), 14),
        (("serve", "approvals", "notify", "webhook"), 15),
        (("people", "alice", "local"), 17),
        (("people", "bob", "slack"), 18),
        (("list",), 19),
        (("nowhere",), None),
    ],
)
def test_the_line_of_a_key_is_found_whatever_stands_around_it(
    path: tuple[str, ...], line: int | None
) -> None:
    tomllib.loads(TRICKY)
    assert line_of(places_of(TRICKY), path) == line
    assert line_of(places_of(TRICKY.replace("\n", "\r\n")), path) == line


@pytest.mark.parametrize(
    "value",
    [
        '"""a"""', '"""a""""', '"""a"""""', '"""\n[x]\ny = """', '"""\\\n"""', '"""\\""""', "'''a'''", "'''a''''", "'''a'''''", "'''\n# \"\n'''", "''''''",
        "'#'", "'\\'", '"\\""', '"#"', "['[', ']',\n '''\n]\n''',  # ]\n]", "{ a = '}', b = [1,\n2] }", '"\\\\"  # "', "[[1],\n[2]]", "1 # '''",
    ],
)  # fmt: skip
def test_a_key_is_found_behind_any_value(value: str) -> None:
    text = f"[one]\nvalue = {value}\nother = 1\n[two]\nlast = 2\n"
    tomllib.loads(text)
    places, more = places_of(text), value.count("\n")
    assert [
        places[path] for path in (("one", "value"), ("one", "other"), ("two",), ("two", "last"))
    ] == [2, 3 + more, 4 + more, 5 + more]


def test_errors_are_placed_with_a_bounded_number_of_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Long instructions and many wrong keys: the text was read once for every line and every problem,
    for minutes, by every command.
    """
    read = 0

    def counting(text: str) -> dict[str, Any]:
        nonlocal read
        read += len(text)
        return tomllib.loads(text)

    monkeypatch.setattr(lines, "loads", counting)
    said, wrong = (
        "look [before] you act\n" * 1_000,
        "".join(f"key{number} = 1\n" for number in range(1_000)),
    )
    text = f"[agents.one]\ninstructions = '''\n{said}'''\n[limits]\n{wrong}"
    assert refusal(text).message.startswith("holdfast.toml, line 1005: no key 'key0' in [limits]")
    assert read < 5 * len(text)


# People


def test_a_person_is_found_by_exactly_the_listed_identity() -> None:
    """Another case, another normal form, another channel: somebody else."""
    found = settings(
        '[people.alice]\nlocal = "alice"\nslack = "U024BE7LH"\n[people."Zoë"]\nlocal = "zoë"\n'
    )
    assert found.person_for("local", "alice") == "alice"
    assert found.person_for("slack", "U024BE7LH") == "alice"
    assert found.person_for("local", "zoë") == "Zoë"
    assert found.person_for("slack", "u024be7lh") is None
    assert found.person_for("local", "Alice") == "Alice"
    assert found.person_for("local", "zoe\u0308") is None
    assert found.person_for("web", "alice") is None
    assert found.person_for("local", "") is None
    assert found.person_for("local", "alice\u200b") is None


def test_nobody_becomes_a_listed_person_by_having_their_name() -> None:
    found = settings('[people.alice]\nlocal = "alice.b"\n[people.bob]\nslack = "U1"\n')
    assert found.person_for("local", "alice") is None
    assert found.person_for("local", "bob") is None
    assert found.person_for("local", "alice.b") == "alice"
    assert found.person_for("local", "carol") == "carol"
    assert found.person_for("slack", "carol") is None


def test_secrets_are_the_values_of_named_variables_that_are_set() -> None:
    found = settings('[secrets]\nenv = ["DEPLOY_TOKEN", "ABSENT"]')
    environment = {
        "DEPLOY_TOKEN": "t-1234567",
        "OPENAI_API_KEY": "sk-1",
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "",
    }
    assert found.secret_values(
        environment, beside=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEPLOY_TOKEN")
    ) == ("t-1234567", "sk-1")


def test_a_rule_for_a_tool_that_nobody_has_is_pointed_out() -> None:
    found = settings('[policy.team]\nshel = "deny"\nshell = "ask"\n"*" = "deny"')
    assert found.unknown_tools(BUILTIN_TOOLS) == (
        "[policy.team], line 2: no tool 'shel'; did you mean 'shell'?",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[agents.ops]\ntools = ["shel", "now", "mine"]',
            ("agent ops: no tool 'shel'; did you mean 'shell'?",),
        ),
        (
            '[policy.team]\nshel = "deny"',
            ("[policy.team], line 2: no tool 'shel'; did you mean 'shell'?",),
        ),
        (
            '[agents.ops]\ntools = ["now"]\ndelegates = ["helper"]\n[agents.helper]\n[policy.team]\ndelegate_helper = "ask"',
            (),
        ),
        ('[agents.ops]\ntools = ["bot:restart"]\n[policy.team]\nrestart_service = "deny"', ()),
        ("", ()),
    ],
    ids=[
        "a misspelt tool",
        "a misspelt rule",
        "a delegate",
        "a tool whose name only its program knows",
        "the defaults",
    ],
)
def test_settings_report_unknown_names_without_an_import_of_user_code(
    text: str, said: tuple[str, ...]
) -> None:
    assert settings(text).unknown_at_hand([*BUILTIN_TOOLS, "mine"]) == said


def test_a_rule_may_be_for_a_tool_of_a_program_beside_the_file() -> None:
    beside = AgentSpec(name="bot", model="demo", tools=("bot:restart",))
    assert (
        settings('[policy.team]\nrestart_service = "deny"').unknown_at_hand(BUILTIN_TOOLS, [beside])
        == ()
    )


# The file, and a process that runs on


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / FILE_NAME
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_change_is_seen_though_time_and_size_are_as_they_were(home: Path) -> None:
    path = write(home, "[serve]\nport = 1111")
    os.utime(path, (1, 1))
    source = SettingsSource(home)
    first = source.now()
    assert source.now() is first
    path.write_text("[serve]\nport = 2222")
    os.utime(path, (1, 1))
    assert source.now().serve_port == 2222


def test_a_file_is_read_to_its_end_however_it_grows_and_shrinks(home: Path) -> None:
    path, port = write(home, ""), "[serve]\nport = 2222\n"
    source = SettingsSource(home)
    for text in (port, "#" * (64 * KIB - len(port) - 1) + "\n" + port, port):
        path.write_text(text)
        assert source.now().serve_port == 2222
    for more in (64 * KIB + 1, 200 * KIB):
        path.write_text("#" * more)
        with pytest.raises(Unusable, match="longer than 64 KiB"):
            source.now()


def test_a_file_that_becomes_invalid_stops_every_decision_until_it_is_mended(home: Path) -> None:
    write(home, '[policy.personal]\nshell = "deny"')
    source = SettingsSource(home)
    assert source.now().policy().rules[Audience.PERSONAL]["shell"].mode == "deny"
    write(home, '[policy.personal]\nshell = "deyn"')
    for _ in range(2):
        with pytest.raises(Unusable):
            source.now()
    write(home, '[policy.personal]\nshell = "ask"')
    assert source.now().policy().rules[Audience.PERSONAL]["shell"].mode == "ask"


def test_a_file_that_disappears_does_not_lift_what_it_forbade(home: Path) -> None:
    path = write(home, '[policy.personal]\nshell = "deny"')
    source = SettingsSource(home)
    source.now()
    path.unlink()
    with pytest.raises(Unusable):
        source.now()
    assert load_settings(home) == Settings()
    write(home, '[policy.personal]\nshell = "deny"')
    assert source.now().rules


def test_a_file_that_appears_is_seen(home: Path) -> None:
    source = SettingsSource(home)
    assert source.now() == Settings()
    write(home, "[serve]\nport = 1")
    assert source.now().serve_port == 1


def test_the_message_names_the_file(home: Path) -> None:
    path = write(home, "[serve]\nprot = 1")
    with pytest.raises(Unusable) as caught:
        load_settings(home)
    assert caught.value.message == f"{path}, line 2: no key 'prot' in [serve]; did you mean 'port'?"
    assert (
        caught.value.hint
        == "valid here: host, port, workers, hosts, allow_remote, workspace, stop_after"
    )


@pytest.mark.parametrize(
    ("folder", "mode", "is_refused"),
    [
        (0o755, 0o664, True),
        (0o701, 0o664, False),
        (0o750, 0o664, True),
        (0o700, 0o666, False),
        (0o711, 0o666, True),
    ],
)
def test_a_file_that_others_can_write_is_nobodys_decision(
    home: Path, folder: int, mode: int, is_refused: bool
) -> None:
    """Group-writable files are usual where the folder lets nobody in."""
    write(home, "[serve]\nport = 1").chmod(mode)
    home.chmod(folder)
    if is_refused:
        with pytest.raises(Unusable):
            load_settings(home)
    else:
        assert load_settings(home).serve_port == 1


def test_anything_but_a_plain_file_is_refused(home: Path) -> None:
    path = home / FILE_NAME
    path.mkdir()
    with pytest.raises(Unusable):
        load_settings(home)
    path.rmdir()
    (home / "real").write_text("")
    path.symlink_to("real")
    with pytest.raises(Unusable):
        load_settings(home)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unusable):
        load_settings(home)


def test_a_file_that_can_not_be_read_is_not_a_missing_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "[serve]\nport = 1")

    def refusing(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(Unusable):
        load_settings(home)


# The document


def section_of(text: str, path: tuple[str, ...]) -> str:
    """The text of docs/reference/settings.md under the heading that names the section."""
    heading = f"`[{'.'.join(path).replace(ANY, 'NAME')}]`"
    parts = [
        part
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
        if heading in part.split("\n", 1)[0]
    ]
    assert len(parts) == 1, heading
    return parts[0]


@pytest.mark.parametrize("path", list(SECTIONS), ids=".".join)
def test_every_section_and_key_is_documented_with_its_default_and_an_example(
    path: tuple[str, ...],
) -> None:
    text = section_of(DOCS.read_text(encoding="utf-8"), path)
    assert "```toml" in text
    examples = "\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    tables = dict(SECTIONS[path])
    if path[0] == "policy":
        tables |= RULE_KEYS
    if path == ("approvals",):
        tables |= NOTIFY_KEYS
    for name, key in tables.items():
        if name != ANY:
            assert f"| `{name}` | {key.default} |" in text
            assert re.search(rf"\b{name} = ", examples), name
        else:
            assert re.search(rf"^\| any .* \| {re.escape(key.default)} \|", text, re.MULTILINE)


def test_the_document_names_no_key_that_there_is_not() -> None:
    text = DOCS.read_text(encoding="utf-8")
    known = {name for keys in (*SECTIONS.values(), RULE_KEYS, NOTIFY_KEYS) for name in keys}
    assert set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)) == known - {ANY}


def test_the_defaults_in_the_document_are_the_defaults() -> None:
    """Every default that can be written down, written down, changes nothing."""
    sections = {
        path: keys
        for path, keys in SECTIONS.items()
        if path[0] not in {"agents", "channels", "hooks", "mcp", "models", "people", "policy"}
    }
    for path, keys in sections.items():
        lines = [
            f"{name} = {key.default.strip('`')}"
            for name, key in keys.items()
            if key.default.startswith("`")
        ]
        assert settings("\n".join([f"[{'.'.join(path)}]", *lines])) == Settings()


def test_the_examples_in_the_document_are_valid() -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) > 10
    for example in examples:
        settings(example)


def test_an_agents_delegates_are_agents_of_the_file() -> None:
    found = settings_from_toml(
        b'[agents.ops]\ndelegates = ["helper"]\n[agents.helper]\ntools = ["now"]\n'
    )
    assert found.agents()["ops"].delegates == ("helper",)
    assert found.agents()["helper"].delegates == ()


@pytest.mark.parametrize(
    ("delegates", "said"),
    [
        (
            '["helpr"]',
            "line 2: delegates in [agents.ops]: no agent 'helpr'; did you mean 'helper'?",
        ),
        ('["ops"]', "line 2: delegates in [agents.ops]: an agent can't be its own delegate"),
        ('["helper", "helper"]', "has 'helper' twice"),
        ('["Zo\u00eb"]', "is not a name that a model can call"),
        ('"helper"', "must be a list in brackets"),
    ],
)
def test_delegates_that_can_not_be_called_are_reported_by_line(delegates: str, said: str) -> None:
    with pytest.raises(Unusable) as wrong:
        settings_from_toml(f"[agents.ops]\ndelegates = {delegates}\n[agents.helper]\n".encode())
    assert said in wrong.value.message


LOCAL_MODEL = """[models.local]
model = "openai-chat:qwen3"
base_url = "http://127.0.0.1:1234/v1"
key_env = "LOCAL_KEY"
temperature = 0
max_output_tokens = 100
headers = { X-Team = "ops" }
"""


def test_a_model_of_the_file_has_its_own_address_key_and_settings() -> None:
    found = settings(LOCAL_MODEL)
    assert found.models["local"] == ModelEndpoint(
        model="openai-chat:qwen3",
        base_url="http://127.0.0.1:1234/v1",
        key_env="LOCAL_KEY",
        temperature=0.0,
        max_output_tokens=100,
        headers=(("X-Team", "ops"),),
    )


def test_the_key_of_a_model_of_the_file_is_a_known_secret() -> None:
    found = settings(LOCAL_MODEL)
    assert found.secret_values({"LOCAL_KEY": "sk-of-the-team", "OTHER": "x"}) == ("sk-of-the-team",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('bas_url = "x"', "line 3: no key 'bas_url' in [models.m]; did you mean 'base_url'?"),
        ('base_url = "ftp://x"', "line 3: base_url in [models.m]: must be an address such as"),
        ('base_url = "http://a:b@x/"', "must not hold a password"),
        ('base_url = "http://x/v1?key=1"', "must end with a path"),
        ("temperature = 2.5", "line 3: temperature in [models.m]: must be a number from 0 to 2"),
        ("temperature = nan", "must be a number from 0 to 2"),
        ("max_output_tokens = 0", "must be a whole number from 1"),
        (
            'headers = { Authorization = "Bearer x" }',
            "line 3: headers in [models.m]: Authorization",
        ),
        ('headers = { X-API-Key = "x" }', "name that with key_env"),
        ('headers = { Host = "x" }', "is set by the client itself"),
        ('headers = { "X Y" = "x" }', "'X Y' is not the name of a header"),
        ('headers = { X-Y = "a\\nb" }', "must be one line of ASCII"),
        ('key_env = "sk-123"', "is not the name of an environment variable"),
        (
            'key_env = "K"\nbase_url = "http://llm.example.org"',
            "line 4: base_url in [models.m]: must",
        ),
    ],
)
def test_a_wrong_model_of_the_file_is_reported_by_line(line: str, said: str) -> None:
    with pytest.raises(Unusable) as wrong:
        settings_from_toml(f'[models.m]\nmodel = "openai:x"\n{line}\n'.encode())
    assert said in wrong.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[models."openai:x"]\nmodel = "openai:y"',
            "line 1: [models.\"openai:x\"]: 'openai:x' names",
        ),
        ('[models.demo]\nmodel = "openai:y"', "[models.demo]: 'demo' names another model already"),
        ("[models.m]\ntemperature = 1", "line 1: [models.m] has no model"),
        ('[models.m]\nmodel = "gpt"', "line 2: model in [models.m]: must be PROVIDER:MODEL"),
        ('[model.m]\nmodel = "openai:x"', "no section [model]; did you mean 'models'?"),
    ],
)
def test_a_section_that_is_not_a_model_is_reported_by_line(text: str, said: str) -> None:
    with pytest.raises(Unusable) as wrong:
        settings_from_toml(text.encode())
    assert said in wrong.value.message


# --- deep, and much of it
# ------------------------------------------------------------------------------------------------

_DEEP = 20_000
_MUCH = {
    "keys with dots": (b"a" + b".a" * _DEEP + b" = 1", 1),
    "keys with dots in quotes": (b"[serve]\nport = 1\n'a'" + b".'a'" * 12_000 + b" = 1", 3),
    "a header with dots": (b"\n[a" + b".a" * _DEEP + b"]", 2),
    "arrays": (b"a = " + b"[" * _DEEP + b"]" * _DEEP, 1),
    "arrays that are never closed": (b"a = " + b"[" * _DEEP, 1),
    "inline tables": (b"[serve]\nport = " + b"{a=" * 10_000 + b"1" + b"}" * 10_000, 2),
    "dots in an inline table": (b"[serve]\nport = {" + b"a." * _DEEP + b"a=1}", 2),
    "arrays in inline tables": (b"[serve]\nport = " + b"{a=[" * 5_000 + b"]}" * 5_000, 2),
    "tables just too deep": (b"[a" + b".a" * JSON_DEPTH_MAX + b"]", 1),
}


@pytest.mark.parametrize("name", _MUCH)
def test_deep_nesting_is_an_error_with_its_line(name: str) -> None:
    """19: no RecursionError, and no minutes of work; the same bound as for JSON."""
    data, line = _MUCH[name]
    with pytest.raises(
        Unusable, match=f"line {line}: is nested deeper than {JSON_DEPTH_MAX}"
    ) as refused:
        settings_from_toml(data)
    assert (refused.value.code, refused.value.line) == ("settings", line)


@pytest.mark.parametrize(
    "text",
    [
        '[serve]\nhosts = ["' + "a." * 100 + 'org"]',
        "# " + "[" * 200 + "." * 200,
        "[serve]\nport = 1 # a" + ".a" * 99,
    ],
)
def test_dots_and_brackets_in_texts_and_comments_do_not_nest(text: str) -> None:
    settings_from_toml(text.encode())


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            b'["'
            + b"a" * 30_000
            + b'"]\n'
            + b"".join(b"k%d = 1\n" % each for each in range(3_000)),
            1,
        ),
        (b"[serve]\n" + b"".join(b"k%d = 1\n" % each for each in range(6_000)), 2),
        (
            b"[agents.x]\ndelegates = ["
            + b",".join(b'"d%d"' % each for each in range(6_000))
            + b"]",
            2,
        ),
        (
            b"[agents.x]\ntools = ["
            + b",".join(b'"t%d"' % each for each in range(6_000))
            + b', "t0"]',
            2,
        ),
    ],
)
def test_the_same_mistake_a_thousand_times_is_said_twenty_times(data: bytes, line: int) -> None:
    with pytest.raises(Unusable) as refused:
        settings_from_toml(data)
    assert (refused.value.line, len(refused.value.message.splitlines()) <= 21) == (line, True)
