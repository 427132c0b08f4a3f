"""The tutorial works as printed: its program, its commands, its crash and its answer."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal

pytestmark = [
    pytest.mark.needs_system("chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(180),
]
PAGE = Path(__file__).parents[3] / "docs" / "tutorial" / "first-agent.md"
WAIT_MS = 60_000


def test_the_tutorial_runs_as_printed(needs: Callable[[str], str], tmp_path: Path) -> None:
    """
    The agent is the page's own program, the chat is killed while its prompt stands, the browser
    approves it, and the tool has run once.
    """
    text = PAGE.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (said,) = re.findall(r"^you> (.*)$", text, re.MULTILINE)
    steps = text.partition("## 2.")[2]
    chat, listing, serve, *checks = [
        shlex.split(line) for line in re.findall(r"^\$ holdfast (.*)$", steps, re.MULTILINE)
    ]
    work, home = tmp_path / "tutorial", tmp_path / "home"
    work.mkdir()
    (work / "ops.py").write_text(program)
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    holdfast = [sys.executable, "-m", "holdfast"]

    def run(arguments: list[str]) -> str:
        done = subprocess.run(
            [*holdfast, *arguments],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with PseudoTerminal([*holdfast, *chat], env=env, cwd=str(work)) as terminal:
        terminal.wait_until_seen("you> ")
        terminal.type(f"{said}\r")
        terminal.wait_until_seen("--- restart_service asks for approval --- a-")
        terminal.wait_until_seen("answer> ")
        assert terminal.kill() == -9
    assert "restart_service" in run(listing)
    assert not (work / "restarts.log").exists()

    (home / "holdfast.toml").write_text("[serve]\nport = 0\n")  # else two runs share one port
    with PseudoTerminal([*holdfast, *serve], env=env, cwd=str(work)) as server:
        server.wait_until_seen("#code=")
        server.wait_until_seen("\n")
        found = re.search(r"http://\S+#code=\S+", server.seen)
        assert found is not None, server.seen
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=needs("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page()
            page.set_default_timeout(WAIT_MS)
            expect.set_options(timeout=WAIT_MS)
            page.goto(found[0])
            approve = page.locator(".option[data-option=approve_once]")
            expect(approve).to_be_visible()
            page.wait_for_timeout(600)  # a card that has just opened takes no click
            approve.click()
            expect(page.locator(".outcome")).to_be_visible()
            browser.close()
        server.type("\x03")
        server.wait_until_seen("stopped")
    assert (work / "restarts.log").read_text() == "api in eu-1\n"
    shown = [run(arguments) for arguments in checks]
    assert len(shown) == 2
    assert "api restarted in eu-1" in shown[0]
