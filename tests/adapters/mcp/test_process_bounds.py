"""A server's process: the bound of its stderr file, and the level that its prompt names."""

import re
from functools import partial
from pathlib import Path

import pytest

from holdfast.adapters.mcp import process
from holdfast.limits import MCP_STDERR_BYTES_MAX
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import Rig, alice, asked, outcome
from tests.adapters.tools.adversary import needs

pytestmark = pytest.mark.needs_system("bwrap")


@in_loop
async def test_a_server_that_talks_without_end_fills_no_disk(rig: Rig) -> None:
    script = rig.script.read_text(encoding="utf-8")
    noise = 'for at in range(9000):\n    print(f"line {at} " + "x" * 90, file=sys.stderr)\n'
    main = 'if __name__ == "__main__":\n'
    rig.script.write_text(script.replace(main, f"{noise}{main}"), encoding="utf-8")
    kept = rig.home / "run/mcp/wire.stderr"
    async with rig.pinned() as home:
        await home.answer(await asked(home), "approve_once", by=alice)
        assert (await outcome(home))[0] == "ok"
    assert 0 < kept.stat().st_size <= MCP_STDERR_BYTES_MAX
    text = kept.read_text(encoding="utf-8")
    assert text.startswith("[earlier lines were dropped]\n")
    # The server wrote every line before it served; a pipe holds at most the last 700 of them.
    assert max(int(each) for each in re.findall(r"line ([0-9]+) ", text)) > 8000


@in_loop
async def test_a_server_without_confinement_says_so_in_every_prompt(rig: Rig) -> None:
    rig.settings(policy='[tools.shell]\nconfine = "off"\n[policy.personal]\n"wire.*" = "auto"\n')
    async with rig.pinned() as home:
        prompt = await asked(home)  # policy lets only a contained call run without a person
        assert "UNCONFINED" in prompt.display
        assert [each.kind for each in prompt.risks] == ["unconfined"]
        assert prompt.options == ("approve_once", "deny")
        await home.answer(prompt, "approve_once", by=alice)
        assert (await outcome(home))[0] == "ok"
        assert len(rig.got()) == 1


def test_a_server_under_landlock_runs_and_cannot_change_the_home(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("landlock")
    limited = partial(process.choose_quickly, mechanisms=("landlock",))
    monkeypatch.setattr(process, "choose_quickly", limited)
    script = rig.script.read_text(encoding="utf-8")
    settings = rig.home / "holdfast.toml"
    attack = (
        f"try:\n    open({str(settings)!r}, 'a').write('# mine')\n"
        "except OSError as exc:\n    print(type(exc).__name__, file=sys.stderr)\n"
    )
    main = 'if __name__ == "__main__":\n'
    rig.script.write_text(script.replace(main, f"{attack}{main}"), encoding="utf-8")

    @in_loop
    async def story() -> None:
        async with rig.pinned() as home:
            prompt = await asked(home)
            await home.answer(prompt, "approve_once", by=alice)
            assert (await outcome(home))[0] == "ok"

    story()
    assert "# mine" not in settings.read_text(encoding="utf-8")
    assert "PermissionError" in (rig.home / "run/mcp/wire.stderr").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/opt/tool/bin/server", "/opt/tool"),
        ("/opt/tool/server.py", "/opt/tool"),
        ("HOME/tools/server.py", "HOME/tools"),
        ("HOME/tool/bin/server", "HOME/tool"),
        ("HOME/server.py", "HOME/server.py"),
        ("HOME/bin/server", "HOME/bin/server"),
        ("ABOVE/server.py", "ABOVE/server.py"),
        ("/server.py", "/server.py"),
        ("/dist/server.js", "/dist/server.js"),
    ],
)
def test_no_hint_lets_a_server_read_the_whole_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, path: str
) -> None:
    """A person copies the hint: it names an installation, the folder of a script, or it alone."""
    home = tmp_path / "alice"
    monkeypatch.setattr(process, "user_folder", lambda: str(home))

    def placed(text: str) -> str:
        return text.replace("HOME", str(home)).replace("ABOVE", str(tmp_path))

    assert process._readable(placed(file)) == placed(path)
