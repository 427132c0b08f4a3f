"""
S1 at the command line: a secret among the arguments is neither kept nor said again, and one that is
too short is refused.
"""

import os

import pytest

from holdfast.secrecy import secrecy_of
from holdfast.token_form import token_of
from tests.acceptance.cli.conftest import Cli, everything_below

CANARY = "canary-" + "0123456789abcdef"
WAYS = {
    "a message": ("send", "new", "use {}"),
    "a session": ("send", "{}", "hello"),
    "a dedup key": ("send", "new", "hello", "--dedup", "{}"),
    "a person": ("send", "new", "hello", "--as", "{}"),
    "an agent": ("send", "new", "hello", "--agent", "{}"),
    "a model": ("send", "new", "hello", "--model", "{}"),
    "a workspace": ("send", "new", "hello", "--workspace", "/nowhere/{}"),
    "a token's name": ("tokens", "add", "{}", "--scopes", "read", "--as", "alice"),
    "a token's person": ("tokens", "add", "laptop", "--scopes", "read", "--as", "{}"),
    "an approval": ("approvals", "show", "{}"),
    "a reason": ("sessions", "unseal", "notes", "--reason", "{}"),
    "a reminder": ("reminders", "add", "new", "{}", "--every", "1d"),
    "a file": ("sessions", "import", "new", "/nowhere/{}"),
    "an option": ("--{}",),
    "a command": ("{}",),
}


@pytest.mark.parametrize("as_json", [False, True])
def test_no_argument_with_a_secret_is_kept_or_repeated(cli: Cli, as_json: bool) -> None:
    cli.settings('[secrets]\nenv = ["MY_CANARY"]\n')
    env = {"MY_CANARY": CANARY}
    cli.json("send", "notes", "hello", env=env)
    secrecy, token = secrecy_of((CANARY,)), token_of(os.urandom(32))
    for name, words in WAYS.items():
        for secret in (CANARY,) if as_json else (token, token.encode().hex()):
            ran = cli(
                *(("--json",) if as_json else ()),
                *(word.replace("{}", secret) for word in words),
                env=env,
            )
            assert ran.code != 0, (name, ran)
            assert not secrecy.holds(ran.out + ran.err), (name, ran)
    assert not any(
        secrecy.holds(data) or secrecy.holds(path) for path, _, data in everything_below(cli.home)
    )


def test_a_token_is_shown_once_to_who_made_it(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    ran = cli("tokens", "add", "laptop", "--scopes", "read", "--as", "alice")
    assert secrecy_of(()).holds(ran.out)
    assert not secrecy_of(()).holds(cli("tokens", "list").out)
    assert not any(secrecy_of(()).holds(data) for _, _, data in everything_below(cli.home))


def test_a_secret_that_is_too_short_to_be_found_is_refused(cli: Cli) -> None:
    cli.settings('[secrets]\nenv = ["MY_PIN", "MY_OTHER"]\n')
    env = {"MY_PIN": "hunter2", "MY_OTHER": "long enough"}
    checked = cli("--json", "config", "check", env=env)
    assert checked.code == 1
    assert checked.json["problems"] == [
        "[secrets] env names MY_PIN, whose value has 7 characters; a secret has at least 8"
    ]
    sent = cli("--json", "send", "notes", "hello", env=env)
    assert (sent.code, sent.json["error"]["code"]) == (2, "settings")
    assert "MY_PIN" in sent.json["error"]["message"]
    assert "hunter2" not in checked.out + sent.out
    assert cli("config", "check", env={**env, "MY_PIN": "hunter22"}).code == 0


def test_settings_that_hold_a_secret_are_shown_without_it(cli: Cli) -> None:
    cli.settings(
        f'[secrets]\nenv = ["MY_CANARY"]\n[approvals]\nnotify = {{webhook = "https://example.org/{CANARY}"}}\n'
    )
    for words in (("config", "show"), ("--json", "config", "show")):
        ran = cli(*words, env={"MY_CANARY": CANARY})
        assert (ran.code, CANARY in ran.out, "https://example.org/[secret]" in ran.out) == (
            0,
            False,
            True,
        )
