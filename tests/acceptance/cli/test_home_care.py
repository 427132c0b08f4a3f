"""`keys rotate`, `config`, `doctor`."""

import json
from pathlib import Path

import pytest

from holdfast.adapters.tools.shell.confinement import levels as confinement
from holdfast.adapters.tools.shell.confinement.isolation import Isolation, Obstacle
from holdfast.cli.commands.doctor import machine_checks
from holdfast.settings import Settings
from holdfast.settings.keys import ANY, SECTIONS
from tests.acceptance.cli.conftest import Cli, everything_below


def test_a_rotated_key_seals_what_comes_and_the_old_one_verifies_what_was(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    assert cli.json("keys", "rotate") == {"generation": 2}
    assert cli.json("send", "notes", "hello")["outcome"] == "completed"
    assert cli.json("send", "new", "hello")["outcome"] == "completed"
    assert [each["verdict"] for each in cli.json("verify")["sessions"]] == ["holds", "holds"]
    assert "generation 3" in cli("keys", "rotate").out


def test_a_rotation_is_not_an_accusation_and_hides_nothing(cli: Cli) -> None:
    """
    Rows of the index and of the search that an older key of ours sealed are made anew, and called
    nobody's forgery (D9, L7).
    """
    cli("send", "ops/api", "the blue whale")
    assert [hit["session"] for hit in cli.json("sessions", "search", "whale")["hits"]] == [
        "ops/api"
    ]
    cli("keys", "rotate")
    listed = cli("--json", "sessions", "list")
    assert ([each["session"] for each in listed.json["sessions"]], listed.err) == (["ops/api"], "")
    found = cli("--json", "sessions", "search", "whale")
    assert ([hit["session"] for hit in found.json["hits"]], found.err) == (["ops/api"], "")


def test_config_show_lists_every_section_and_key(cli: Cli) -> None:
    """`config show` has every section and key that a file may have, with its default."""
    shown = cli.json("config", "show")["settings"]
    known = {
        "agents.assistant" if path[0] == "agents" else ".".join(path): keys
        for path, keys in SECTIONS.items()
        # No model, server or hook is there by default.
        if path[0] == "agents" or ANY not in (*path, *keys)
    }
    assert {section: keys.keys() for section, keys in shown.items()} == {
        section: keys.keys() for section, keys in known.items()
    }


def test_there_is_no_key_to_rotate_without_a_home(cli: Cli) -> None:
    ran = cli("--json", "keys", "rotate")
    assert (ran.code, ran.json["error"]["code"]) == (2, "no_home")
    assert not cli.home.exists()


def test_settings_that_hold_are_shown_with_the_defaults(cli: Cli) -> None:
    shown = cli.json("config", "show")
    assert (
        shown["exists"],
        shown["settings"]["agents.assistant"]["model"],
        shown["settings"]["approvals"]["expires_after"],
    ) == (False, "demo", "7d")
    cli.settings(
        '[agents.ops]\nmodel = "demo"\ntools = ["now"]\n[approvals]\nexpires_after = "12h"\n[secrets]\nenv = ["MY_SECRET"]\n'
    )
    shown = cli.json("config", "show", env={"MY_SECRET": "hunter2"})
    assert (shown["exists"], shown["settings"]["approvals"]["expires_after"]) == (True, "12h")
    text = cli("config", "show", env={"MY_SECRET": "hunter2"}).out
    assert "[agents.ops]" in text
    assert "hunter2" not in text + json.dumps(shown)


def test_settings_are_checked_with_line_key_and_nearest_key(cli: Cli) -> None:
    assert cli("config", "check").code == 0
    cli.settings('[agents.ops]\nmodel = "demo"\n\n[aprovals]\nexpires_after = "7d"\n')
    ran = cli("--json", "config", "check")
    assert (ran.code, ran.json["error"]["code"]) == (2, "settings")
    assert "line 4" in ran.json["error"]["message"]
    assert "'approvals'" in ran.json["error"]["message"]


def test_settings_that_name_missing_things_are_reported(cli: Cli) -> None:
    cli.settings(
        '[agents.ops]\nmodel = "demo"\ntools = ["now", "bot:restart"]\n[policy.team]\nshel = "deny"\n'
    )
    ran = cli("--json", "config", "check")
    assert ran.code == 1
    assert any("bot" in each for each in ran.json["problems"])
    assert any("'shel'" in each and "'shell'" in each for each in ran.json["problems"])


def test_a_sender_hears_of_a_tool_that_settings_name_and_no_program_has(cli: Cli) -> None:
    """
    The turn runs without it, and says nothing of it on stdout: a program that reads that is not
    disturbed.
    """
    cli.settings('[agents.ops]\nmodel = "demo"\ntools = ["now", "shel"]\n')
    ran = cli("--json", "send", "notes", "hi")
    assert (ran.code, ran.json["outcome"]) == (0, "completed")
    assert ran.err == "holdfast.toml: agent ops: no tool 'shel'; did you mean 'shell'?\n"
    assert cli("--json", "sessions", "list").err == "", "who only looks is not told every time"
    cli.settings('[agents.ops]\nmodel = "demo"\ntools = ["now", "shell"]\n')
    assert cli("--json", "send", "notes", "hi").err == ""


def test_settings_that_others_may_write_or_nobody_can_read_are_refused(cli: Cli) -> None:
    cli.settings("")
    (cli.home / "holdfast.toml").unlink()
    (cli.home / "holdfast.toml").symlink_to("/etc/passwd")
    ran = cli("--json", "send", "notes", "hi")
    assert (ran.code, ran.json["error"]["code"]) == (2, "settings")


def test_doctor_finds_nothing_wrong_with_a_fresh_home(cli: Cli) -> None:
    assert cli("doctor").code == 0
    assert not cli.home.exists()
    cli.json("send", "notes", "hello")
    before = everything_below(cli.home)
    ran = cli("--json", "doctor")
    assert (ran.code, ran.json["problems"]) == (0, 0), ran
    checks = {each["check"]: each for each in ran.json["checks"]}
    assert set(checks) >= {
        "python",
        "home",
        "settings",
        "confinement",
        "filesystem",
        "disk",
        "keys",
        "home journal",
        "sessions",
        "index",
    }
    assert everything_below(cli.home) == before


def test_doctor_names_the_level_of_commands_and_why_it_is_not_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Obstacle(cause="bubblewrap is not installed", remedy="install the package bubblewrap")
    monkeypatch.setattr(confinement, "find_isolation", lambda: missing)
    (found,) = machine_checks.check_confinement(tmp_path, Settings())
    assert (found.state, found.hint) == ("warning", missing.remedy)
    assert found.detail.startswith(
        (
            "shell commands are limited: bubblewrap is not",
            "shell commands are unconfined: bubblewrap is not",
        )
    )
    (found,) = machine_checks.check_confinement(tmp_path, Settings(shell_confine="require"))
    assert (found.state, found.hint, "refused" in found.detail) == ("problem", missing.remedy, True)
    monkeypatch.setattr(
        confinement, "find_isolation", lambda: Isolation("/usr/bin/bwrap", ("/usr/bin/bwrap",))
    )
    (found,) = machine_checks.check_confinement(tmp_path, Settings(shell_confine="require"))
    assert (found.state, found.detail.startswith("isolated")) == ("ok", True)


def _problems(cli: Cli) -> dict[str, str]:
    ran = cli("--json", "doctor")
    assert ran.code == 1, ran
    return {
        each["check"]: each["detail"] + " " + each["hint"]
        for each in ran.json["checks"]
        if each["state"] == "problem"
    }


def test_doctor_names_what_is_wrong_and_how_to_mend_it(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    cli.break_journal()
    cli("send", "ops/api", "hello")
    cli.settings("[what]\n")
    (cli.home / "keys" / "1.key").chmod(0o644)
    found = _problems(cli)
    assert "ops/api is sealed" in found["sessions"]
    assert "sessions unseal ops/api" in found["sessions"]
    assert "line 1" in found["settings"]
    assert "0600" in found["keys"]


def test_doctor_looks_at_who_may_get_in(cli: Cli) -> None:
    cli.json("send", "ops/api", "hello")
    cli.home.chmod(0o777)
    assert "chmod 700" in _problems(cli)["home"]


def test_doctor_names_a_key_that_no_rotation_made(cli: Cli) -> None:
    cli("send", "ops/api", "hello")
    (cli.home / "keys/2.key").write_bytes(bytes(32))
    (cli.home / "keys/2.key").chmod(0o600)
    (told,) = [each for each in cli.json("doctor")["checks"] if each["check"] == "keys"]
    assert (told["state"], "does not name 2.key" in told["detail"]) == ("warning", True)


def test_doctor_says_when_the_home_is_not_a_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cli.env["HOLDFAST_HOME"] = str(tmp_path / "file")
    assert "not a folder" in _problems(cli)["home"]


def test_doctor_counts_what_dead_listeners_left(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    (cli.home / "run").mkdir(exist_ok=True)
    (cli.home / "run" / "999999999-0.sock").touch()
    ran = cli("--json", "doctor")
    assert (
        ran.code,
        [each["state"] for each in ran.json["checks"] if each["check"] == "sockets"],
    ) == (0, ["warning"])


def test_a_backup_lies_outside_of_the_home_wherever_its_path_leads(
    cli: Cli, tmp_path: Path
) -> None:
    """A copy inside of the home would be copied by the next backup, and the keys with it."""
    cli.json("send", "ops/api", "hello", "--as", "alice")
    (tmp_path / "link").symlink_to(cli.home)
    (tmp_path / "beside").mkdir()
    before = sorted(each.name for each in cli.home.iterdir())
    for inside in (
        tmp_path / "link" / "copy",
        tmp_path / "beside" / ".." / cli.home.name / "copy",
        tmp_path / "link",
    ):
        refused = cli("--json", "backup", str(inside))
        assert (refused.code, refused.json["error"]["code"]) == (6, "malformed"), inside
    assert sorted(each.name for each in cli.home.iterdir()) == before
    outside = cli.home / ".." / "copy"
    assert cli.json("backup", str(outside))["broken"] == []
    assert (tmp_path / "copy" / "keys").is_dir()


def test_a_backup_into_a_circle_of_links_is_refused_in_words(cli: Cli, tmp_path: Path) -> None:
    cli.json("send", "ops/api", "hello", "--as", "alice")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for place in (tmp_path / "a", tmp_path / "a" / "copy"):
        refused = cli("--json", "backup", str(place))
        assert (refused.code, str(place) in refused.json["error"]["message"]) == (5, True), place
