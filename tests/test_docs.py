"""
The documents say what the code does: promises name tests that exist, examples run as printed, codes
and events are listed.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.generated_docs.events import document as events_document

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from holdfast.gateway.http.context import GatewaySettings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROSE = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        )
    ),
    *sorted(DOCS.rglob("*.md")),
]
FAMILIES = {"D": 10, "L": 7, "T": 7, "A": 7, "P": 11, "M": 2, "G": 4, "X": 1, "C": 3, "S": 1}
LETTERS = [
    f"{family}{number}" for family, count in FAMILIES.items() for number in range(1, count + 1)
]
NOT_BUILT: set[str] = set()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def rows_of(page: Path) -> dict[str, list[str]]:
    """The rows of a page's tables, by their first cell."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row for row in cells}


# --- promises


def sections_of(page: Path) -> dict[str, str]:
    """The text below each heading of a promise, by its letter."""
    parts = re.split(r"^### ([A-Z]\d+)\n", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_promise_is_in_the_failure_model_with_what_falsifies_it() -> None:
    """
    Each letter of the design has one section with its threat, its defence and a test, or says that
    it is not built.
    """
    sections = sections_of(DOCS / "internals/failure-model.md")
    assert list(sections) == LETTERS
    for letter, text in sections.items():
        parts = dict(re.findall(r"^- \*\*(.+?):\*\* ?(.*(?:\n  - .*)*)", text, re.MULTILINE))
        if letter in NOT_BUILT:
            assert "not built" in parts["Defence"], letter
        else:
            assert all(parts[name].strip() for name in ("Threat", "Defence", "Remains possible")), (
                letter
            )
            assert "`" in parts["Tests"], letter


def names_of_tests() -> set[str]:
    files = [
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "src/holdfast/testing").rglob("*.py"),
        *(ROOT / "proof").rglob("*.py"),
    ]
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}


def test_every_test_that_a_document_names_exists() -> None:
    """A promise can't lean on a test that was renamed away."""
    known = names_of_tests() | {
        story.name for story in (ROOT / "tests/proof/scenarios").rglob("*.txt")
    }
    named = re.findall(r"`(test_\w+|\w+\.txt)`", (DOCS / "internals/failure-model.md").read_text())
    assert [name for name in named if name not in known] == []
    assert len(named) > len(LETTERS)


# --- codes and events


def is_code(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Constant)
            and isinstance(each.value, str)
            and re.fullmatch(r"[a-z]+(_[a-z]+)*", each.value)
        ):
            yield each.value


POSITIONS = {
    "refused": 0,
    "Deny": 0,
    "ErrorReport": 0,
    "_voided": 3,
    "_finished": 4,
    "_given_up": 1,
    "problem": 1,
}
"""Functions that take a code by position, and where."""


def codes_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            for keyword in node.keywords:
                if keyword.arg == "code" and name not in {"ToolDefinition", "SealMark", "replace"}:
                    yield from is_code(keyword.value)
            place = POSITIONS.get(name, len(node.args))
            if place < len(node.args):
                yield from is_code(node.args[place])
        elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(
                isinstance(target, ast.Name) and target.id == "default_code" for target in targets
            ):
                yield from is_code(node.value)


def test_every_code_that_is_raised_is_documented() -> None:
    """Found by scanning the sources; what a program may branch on is listed with what it means."""
    files = [file for file in (ROOT / "src/holdfast").rglob("*.py") if "testing" not in file.parts]
    raised = {code for file in files for code in codes_in(file)}
    documented = {name.strip("`") for name in rows_of(DOCS / "reference/errors.md")}
    assert sorted(raised - documented) == []


def test_every_event_is_documented() -> None:
    """Regenerate with `python -m proof.generated_docs.events > docs/reference/events.md`."""
    assert (DOCS / "reference/events.md").read_text() == events_document()


# --- examples


def examples() -> Iterator[tuple[str, str]]:
    for page in PROSE:
        for number, code in enumerate(
            re.findall(r"```python\n# runnable\n(.*?)```", page.read_text(), re.DOTALL), 1
        ):
            yield f"{page.name} {number}", code


@pytest.mark.parametrize(
    "code", [code for _, code in examples()], ids=[name for name, _ in examples()]
)
def test_an_example_runs_as_printed(code: str, tmp_path: Path) -> None:
    """Copied out of the page, in an empty folder, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_verifier_of_the_format_believes_what_holds_and_nothing_else(tmp_path: Path) -> None:
    """The page says all that is needed to verify a journal without Holdfast."""
    found = re.search(
        r"# runnable: verifier\n(.*?)```",
        (DOCS / "reference/journal-format.md").read_text(),
        re.DOTALL,
    )
    assert found is not None
    home = tmp_path / "home"
    holdfast = [sys.executable, "-m", "holdfast", "--home", str(home)]
    for text in ("what time is it", "list files"):
        subprocess.run(
            [*holdfast, "send", "notes", text],
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=True,
        )
    segments = sorted((home / "sessions/local/notes").glob("*.jsonl"))

    def verdict() -> tuple[int, str]:
        command = [sys.executable, "-c", found[1], str(home), *map(str, segments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    count = sum(len(segment.read_bytes().splitlines()) for segment in segments)
    assert verdict() == (0, f"{count} records hold\n")
    segments[0].write_bytes(segments[0].read_bytes().replace(b"what time", b"what lime", 1))
    assert verdict() == (1, f"{segments[0].name}: record 3 does not verify\n")


def test_the_crash_of_the_readme_is_resumed_as_printed(tmp_path: Path) -> None:
    """
    Its chat in a real terminal, its kill -9, and its commands with their exit codes and their
    effect.
    """
    program = [sys.executable, "-m", "holdfast"]
    work = tmp_path / "try"
    work.mkdir()
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}

    def holdfast(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*program, *arguments],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    story = (
        (ROOT / "README.md")
        .read_text()
        .partition("## Crash it and resume it")[2]
        .partition("## ")[0]
    )
    chat, *printed = [
        shlex.split(line)
        for line in re.findall(r"^\$ holdfast (.*?)\s*(?:#.*)?$", story, re.MULTILINE)
    ]
    (said,) = re.findall(r"^you> (.*)$", story, re.MULTILINE)
    home = re.search(r"HOLDFAST_HOME=(\S+)", story)
    folder = re.search(r"cd (\S+)", story)
    assert home is not None
    assert folder is not None
    assert not Path(home[1]).is_relative_to(folder[1])
    with PseudoTerminal([*program, *chat], env=env, cwd=str(work)) as terminal:
        terminal.wait_until_seen("you> ")
        terminal.type(f"{said}\r")
        terminal.wait_until_seen("--- shell asks for approval --- a-")
        terminal.wait_until_seen("answer> ")
        assert terminal.kill() == -9
    if shutil.which("bwrap") is not None:
        assert "unconfined" not in terminal.seen.lower()
    codes = []
    for words in printed:
        if "a-..." in words:
            listed = json.loads(holdfast("--json", "approvals", "list").stdout)
            words[words.index("a-...")] = listed["approvals"][0]["id"]
        codes.append((words[0], holdfast(*words).returncode))
    assert codes == [
        ("approvals", 0),
        ("approvals", 0),
        ("sessions", 0),
        ("verify", 0),
        ("send", 3),
    ]
    assert (work / "deploys.log").read_text() == "deployed\n"


# --- prose


def prose_lines(page: Path) -> Iterator[str]:
    """Lines of running text: no code, no tables, no headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return (
        line for line in text.splitlines() if line and not line.startswith(("|", "#", "[", "    "))
    )


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_prose_has_one_sentence_per_line(page: Path) -> None:
    """So that a change of a sentence is a change of a line."""
    ends = re.compile(r"[a-z`)\]][.?!] +[A-Z`]")
    marked = [
        line
        for line in prose_lines(page)
        if ends.search(re.sub(r"`[^`]*`", "`x`", line)) and not re.match(r"\s*([-*]|\d+\.)", line)
    ]
    assert marked == []


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and every named page exists."""
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_every_path_of_the_tree_that_a_page_names_exists(page: Path) -> None:
    """So that a page follows a file that moves; `requirements/` also stands for users' files."""
    named = re.findall(r"`((?:tests|src|proof|docs|bench)/[\w./-]+)`", page.read_text())
    assert [
        path for path in named if not (ROOT / path).exists() and not list(ROOT.glob(f"{path}*"))
    ] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/internals/where-to-look.md"])
def test_every_module_that_a_map_of_the_package_names_exists(page: str) -> None:
    """A map that points at a file that moved leads newcomers astray."""
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / page).read_text())
    package = ROOT / "src/holdfast"
    missing = [path for path in named if not list(package.rglob(path))]
    assert named
    assert missing == []


def test_every_page_is_in_the_index_and_in_a_folder_of_its_kind() -> None:
    """`docs/README.md` is the one index, and the only page at the top."""
    index = DOCS / "README.md"
    linked = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index.read_text())}
    pages = {page.resolve() for page in DOCS.rglob("*.md")} - {index.resolve()}
    assert sorted(str(page.relative_to(DOCS)) for page in pages - linked) == []
    assert {page.relative_to(DOCS).parts[0] for page in pages} == {
        "tutorial",
        "guides",
        "reference",
        "operations",
        "internals",
        "decisions",
    }


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "internals/benchmarks.md"], ids=name_of
)
def test_the_picture_of_the_costs_is_shown_on_light_and_dark_pages(page: Path) -> None:
    """Two files that exist, one for each."""
    shown = re.findall(r'src(?:set)?="([^"]+)"', page.read_text())
    assert [Path(each).name for each in shown if "cost" in each] == [
        "append-cost-dark.svg",
        "append-cost.svg",
    ]
    assert [each for each in shown if not (page.parent / each).exists()] == []


def test_the_readme_is_short_enough_to_be_read() -> None:
    """About a hundred lines; the rest has pages of its own."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_every_make_target_that_a_document_names_exists() -> None:
    """A reader types the target as it is printed. The tutorial's one brings the server along."""
    makefile = (ROOT / "Makefile").read_text()
    targets = dict(re.findall(r"^([a-z-]+):(?!=)(.*)$", makefile, re.MULTILINE))
    pages = {name_of(page): page.read_text() for page in PROSE}
    named = {
        (name, target)
        for name, text in pages.items()
        for target in re.findall(r"(?:`|\$ |^)make ([a-z-]+)", text, re.MULTILINE)
        if target not in {"backup", "deploy"}  # of an example's own Makefile
    }
    assert {each for each in named if each[1] not in targets} == set()
    tutorial = "docs/tutorial/first-agent.md"
    assert [target for name, target in named if name == tutorial] == ["install"]
    assert "$(VENV)/.serve" in targets["install"]


def test_the_tree_of_the_architecture_names_every_room_and_single_file() -> None:
    """A room that the page lacks is one that a newcomer does not find."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tree = text.partition("## The tree")[2].partition("To follow")[0]
    package = ROOT / "src/holdfast"
    rooms = [
        folder.parent
        for pattern in ("*/__init__.py", "*/*/__init__.py")
        for folder in package.glob(pattern)
    ]
    names = {f"{room.name}/" for room in rooms} | {
        file.name for file in package.glob("*.py") if file.name != "__init__.py"
    }
    assert {name for name in names if f"{name}`" not in tree and f"`{name}" not in tree} == set()


@pytest.mark.parametrize("page", ["reference/http-api.md", "operations/gateway.md"])
def test_the_documents_give_the_stream_limits_of_the_code(page: str) -> None:
    """Two pages name these numbers, and a client sizes its pool by them."""
    text = (DOCS / page).read_text()
    limits = GatewaySettings()
    assert f"{limits.streams_per_token_max:,} streams" in text
    assert f"{limits.streams_per_person_max:,}" in text
    assert f"{limits.streams_max:,}" in text
