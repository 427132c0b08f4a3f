"""The owner lets a person into a chat at the command line, and nobody else does."""

from pathlib import Path

import pytest

from holdfast.cli.commands.channels.pair import pair
from holdfast.errors import HoldfastError
from holdfast.settings import SettingsSource

SLACK = '[channels.work]\nkind = "slack"\nbot_token_env = "BOT"\napp_token_env = "APP"\n'
ALICE, BOB = "T0HOLD/U0ALICE", "T0HOLD/U0BOB"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    write(tmp_path, SLACK)
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "holdfast.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "before",
    [
        SLACK,
        SLACK.rstrip("\n"),
        f"[people.alice]  # on call\n{SLACK}",
        f'[people."alice"]\ntelegram = "7"\n\n{SLACK}',
    ],
    ids=["no table", "no last line break", "a table with a comment", "a table of another platform"],
)
def test_a_pair_is_added_to_the_settings_and_nothing_else_changes(home: Path, before: str) -> None:
    path = write(home, before)
    assert pair(home, "work", "alice", ALICE) == f'slack = "{ALICE}"'
    settings = SettingsSource(home).now()
    assert settings.people["alice"]["slack"] == ALICE
    assert [line for line in before.splitlines() if line not in path.read_text().splitlines()] == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in home.iterdir()] == ["holdfast.toml"]
    pair(home, "work", "bob", BOB)
    assert SettingsSource(home).now().people["bob"]["slack"] == BOB


@pytest.mark.parametrize(
    ("channel", "person", "identity", "code"),
    [
        ("nowhere", "alice", ALICE, "unknown"),
        ("work", "alice", "alice", "malformed"),
        ("work", "alice", "T0HOLD/U0ALICE\n", "malformed"),
        ("work", "carol", BOB, "settings"),
        ("work", "bob", ALICE, "exists"),
        ("work", 'x"]\n[policy]', ALICE, "malformed"),
    ],
)
def test_a_pair_that_is_not_one_changes_nothing(
    home: Path, channel: str, person: str, identity: str, code: str
) -> None:
    path = write(home, f'{SLACK}[people.bob]\nslack = "{BOB}"\n')
    before = path.read_bytes()
    with pytest.raises(HoldfastError) as refused:
        pair(home, channel, person, identity)
    assert refused.value.code == code
    assert path.read_bytes() == before


def test_a_table_that_is_written_otherwise_is_left_to_the_owner(home: Path) -> None:
    path = write(home, f'people = {{ alice = {{ telegram = "7" }} }}\n{SLACK}')
    before = path.read_bytes()
    with pytest.raises(HoldfastError) as refused:
        pair(home, "work", "alice", ALICE)
    assert refused.value.code == "settings"
    assert path.read_bytes() == before
