"""A command that only looks pays for no provider: importing one takes a second."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROVIDERS = ("pydantic_ai", "openai", "anthropic")
# Run a command as `holdfast` does, and print at the end which providers it imported.
RUN = f"""
import sys
from holdfast.cli.main import main
try:
    main()
except SystemExit:
    pass
print(file=sys.stderr)
print([name for name in {PROVIDERS!r} if name in sys.modules], file=sys.stderr)
"""
SETTINGS = """
[models.team]
model = "openai-chat:gpt-4o"
base_url = "http://127.0.0.1:9/v1"

[agents.assistant]
model = "openai:gpt-4o"

[agents.other]
model = "team"
"""


def run(home: Path, *arguments: str) -> tuple[str, str]:
    """Return what the command printed, and the providers that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--home", str(home), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=home.parent,
        env={**os.environ, "OPENAI_API_KEY": "sk-loopback-only"},
    )
    return done.stdout, done.stderr.splitlines()[-1]


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Path, str]:
    """A home whose agents use a provider, and a prompt in it."""
    home, script = tmp_path / "home", tmp_path / "script.jsonl"
    script.write_text('{"call": [{"tool": "shell", "args": {"command": "true"}}]}\n')
    told, _ = run(home, "--json", "send", "ops/api", "go", "--model", f"script:{script}")
    (home / "holdfast.toml").write_text(SETTINGS)
    return home, json.loads(told)["approvals"][0]["id"]


def test_a_command_that_prints_a_prompt_imports_no_provider(asked: tuple[Path, str]) -> None:
    home, approval = asked
    for command in (
        ("approvals", "list"),
        ("approvals", "show", approval),
        ("sessions", "show", "ops/api"),
        ("config", "check"),
    ):
        printed, imported = run(home, *command)
        assert printed.strip(), command
        assert imported == "[]", command


def test_the_list_of_imports_notices_a_provider(asked: tuple[Path, str]) -> None:
    """The first call of a model imports its provider. Nothing listens at this address."""
    home, _ = asked
    (home / "holdfast.toml").write_text(SETTINGS + '\n[limits]\nmodel_retry_for = "1s"\n')
    _, imported = run(home, "send", "ops/other", "go", "--agent", "other")
    assert imported == "['pydantic_ai', 'openai']"
