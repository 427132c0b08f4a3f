"""What `doctor` says of chats, from settings and the environment, where no server runs."""

from pathlib import Path

import pytest

from holdfast.cli.commands.doctor import channel_checks
from holdfast.cli.commands.doctor.channel_checks import check_channels
from holdfast.settings import settings_from_toml

CHAT = b'[channels.tg]\nkind = "telegram"\nbot_token_env = "TG_TOKEN"\n'
ALICE = b'[people.alice]\ntelegram = "7"\n'


def test_a_chat_lacks_its_library_its_token_or_its_people(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert list(check_channels(None, tmp_path)) == []
    monkeypatch.delenv("TG_TOKEN", raising=False)
    [unset] = check_channels(settings_from_toml(CHAT + ALICE), tmp_path)
    assert (unset.state, "TG_TOKEN is not set" in unset.detail) == ("warning", True)
    monkeypatch.setenv("TG_TOKEN", "7000000001:AAfake-token-of-a-test")
    [nobody] = check_channels(settings_from_toml(CHAT), tmp_path)
    assert (nobody.state, "nobody is known" in nobody.detail) == ("warning", True)
    [good] = check_channels(settings_from_toml(CHAT + ALICE), tmp_path)
    assert (good.state, good.detail) == ("ok", "[channels.tg]: alice")
    monkeypatch.setattr(channel_checks, "find_spec", lambda _name: None)
    [missing] = check_channels(settings_from_toml(CHAT + ALICE), tmp_path)
    assert (missing.state, "[telegram]'`" in missing.hint) == ("problem", True)
