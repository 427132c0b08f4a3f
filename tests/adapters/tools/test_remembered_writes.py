"""
P9: two grants never make a shell. A remembered write covers one path and one content, of a file
that nothing runs.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.session.test_policy import ALICE, grant

from holdfast.adapters.tools.files.inert_files import is_inert
from holdfast.adapters.tools.files.write import write_file
from holdfast.session.authority.approvals import SCOPES, options_for
from holdfast.session.authority.grants import covers
from holdfast.session.authority.plan import Binding
from holdfast.session.authority.policy import Ask
from holdfast.session.home.events import GrantProposed


def look(place: Any, encode: Any, path: str, content: str = "x\n") -> tuple[Binding, str]:
    tool = write_file()
    arguments = tool.validate(encode(path=path, content=content))
    return tool.bind(arguments, place.scene()), arguments.decode()


def remembering(binding: Binding) -> list[str]:
    ask = Ask(may_answer=("alice",), reason="", rule="", expires_after_seconds=1, remember="any")
    return [
        each.option
        for each in options_for(write_file().definition, binding, ask)
        if each.option in SCOPES
    ]


def made(binding: Binding, arguments: str, scope: str = "everywhere") -> GrantProposed:
    definition = write_file().definition
    return grant(
        tool="write_file",
        definition=definition.digest(),
        arguments=arguments,
        scope=scope,
        path=binding.path,
        folder="/",
    )


def covered(given: GrantProposed, binding: Binding, arguments: str) -> bool:
    return covers(
        given,
        context=ALICE,
        definition=write_file().definition,
        arguments=arguments,
        binding=binding,
    )


RUN_BY_SOMETHING = [
    ".bashrc", ".git/hooks/pre-commit", ".git/config", ".github/workflows/ci.txt", "sub/.hidden.txt", ".envrc", ".npmrc", ".vscode/tasks.txt",
    "Makefile", "makefile", "GNUmakefile", "x.mk", "CMakeLists.txt", "cmakelists.TXT", "conftest.py", "setup.py", "setup.cfg", "pyproject.toml",
    "tox.ini", "pytest.ini", "noxfile.py", "package.json", "Cargo.toml", "build.rs", "build.gradle", "pom.xml", "Gemfile", "Rakefile", "justfile",
    "Dockerfile", "docker-compose.yml", "requirements.txt", "requirements-dev.txt", "constraints.txt", "sitecustomize.py", "a.pth", "x.so", "x.sh",
    "x", "run", "x.py", "x.js", "x.rb", "x.pl", "x.desktop", "x.service", "x.conf", "x.json", "x.yaml", "x.lua", "x.vim", "x.txt.sh", "x.md.py",
    "n\u043ete.txt", "x.t\u0445t", "test_x.txt", "test.md", "sub/tests.txt", "CMakeCache.txt", "compile_flags.txt", "dev-requirements.txt",
    "requirements/dev.txt", "x.egg-info/entry_points.txt", "x.dist-info/top_level.txt", "node_modules/a/x.txt", "AGENTS.md", "CLAUDE.md",
    "sub/GEMINI.md", "skills/x/notes.md", "SKILL.md", "copilot-instructions.md", "MEMORY.md",
]  # fmt: skip


@pytest.mark.parametrize("path", RUN_BY_SOMETHING)
def test_nothing_is_remembered_of_a_write_that_something_could_run_or_be_steered_by(
    place: Any, encode: Any, path: str
) -> None:
    (place.workspace / path).parent.mkdir(parents=True, exist_ok=True)
    binding, arguments = look(place, encode, path)
    assert remembering(binding) == []
    assert not covered(made(binding, arguments), binding, arguments), (
        "nor does a grant that is there all the same"
    )


@pytest.mark.parametrize(
    "path", ["notes.txt", "a/report.md", "data.csv", "x.tsv", "run.log", "NOTES.TXT"]
)
def test_plain_notes_and_data_may_be_remembered_for_one_path_and_one_content(
    place: Any, encode: Any, path: str
) -> None:
    (place.workspace / "a").mkdir()
    binding, arguments = look(place, encode, path)
    assert remembering(binding) == ["approve_session", "approve_everywhere"]
    given = made(binding, arguments)
    assert covered(given, binding, arguments)
    other_content, other_arguments = look(place, encode, path, "y\n")
    assert not covered(given, other_content, other_arguments)
    elsewhere, moved = look(place, encode, "other.txt")
    assert not covered(given, elsewhere, moved)
    assert not covered(made(binding, "{}", "folder"), binding, arguments), (
        "a folder grant for a tool that writes counts for nothing"
    )
    assert not covered(made(binding, arguments, "folder"), binding, arguments)


@pytest.mark.parametrize("mode", [0o755, 0o744, 0o654, 0o645, 0o111])
def test_a_file_that_may_be_executed_is_never_remembered(
    place: Any, encode: Any, mode: int
) -> None:
    target: Path = place.workspace / "notes.txt"
    binding, arguments = look(place, encode, "notes.txt")
    assert remembering(binding)
    target.write_text("old\n")
    given = made(binding, arguments)
    target.chmod(mode)
    again, _ = look(place, encode, "notes.txt")
    assert remembering(again) == []
    assert not covered(given, again, arguments), (
        "also of what was remembered before it became executable"
    )


@pytest.mark.parametrize(
    "content",
    ["#!/bin/sh\nrm x\n", "\n#!/bin/sh\n", "\ufeff#! /usr/bin/env python\n", "\x7fELF\x02"],
)
def test_a_content_that_a_kernel_or_a_shell_would_run_is_never_remembered(
    place: Any, encode: Any, content: str
) -> None:
    assert remembering(look(place, encode, "notes.txt", content)[0]) == []


def test_a_folder_of_the_search_path_is_never_remembered(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.workspace / "bin").mkdir()
    assert remembering(look(place, encode, "bin/x.txt")[0])
    (place.workspace / "tools").symlink_to(place.workspace / "bin")
    monkeypatch.setenv("PATH", f"{place.workspace}/tools{os.pathsep}{os.environ['PATH']}")
    assert remembering(look(place, encode, "bin/x.txt")[0]) == []
    assert not is_inert("/usr/bin/x.txt", "x")


def test_a_write_outside_the_workspace_is_never_remembered(place: Any, encode: Any) -> None:
    assert remembering(look(place, encode, str(place.root / "notes.txt"))[0]) == []


def test_a_link_that_leads_elsewhere_is_not_what_was_remembered(place: Any, encode: Any) -> None:
    for name in ("one", "two"):
        (place.workspace / name).mkdir()
    (place.workspace / "here").symlink_to(place.workspace / "one")
    binding, arguments = look(place, encode, "here/notes.txt")
    given = made(binding, arguments)
    (place.workspace / "here").unlink()
    (place.workspace / "here").symlink_to(place.workspace / "two")
    again, same = look(place, encode, "here/notes.txt")
    assert same == arguments
    assert not covered(given, again, same)


def test_no_ending_that_may_be_remembered_is_an_executable_one() -> None:
    """The list is short, and a name has to end in one of it."""
    for stem, ending in itertools.product(
        ("x", "x.txt", ".x", "x."), ("", ".", ".exe", ".sh ", ".txt.", ".txt~", ".TXT.py")
    ):
        assert not is_inert(f"/ws/{stem}{ending}", "x") or f"{stem}{ending}" == "x.txt"
