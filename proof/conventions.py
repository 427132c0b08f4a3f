"""
The conventions of CONTRIBUTING.md that a linter does not know: `python -m proof.conventions`.

It reads the sources as they are, prints each place that breaks a rule, and exits 1 if there is one.
It checks the package and `proof`, and in the tests the names and docstrings.
`conventions_known.txt` lists the places that may break a rule, each with its reason. A place
without a reason does not count, nor does a place that breaks no rule.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER_FILES_MAX = 15  # more cannot be taken in at a glance
FILE_LINES_MAX = 450  # past this a file holds a second idea
# A screen. Parameters and docstrings do not count: the parameters of a command are its options.
FUNCTION_LINES_MAX = 60
# Sentences that begin like this have no subject that a reader could name.
ODD_START = re.compile(r"(What|Whoever|Whatever|Of|None:)\b")
# "is not a X" stands for "is not an X". "There is no X" and "is no longer" are ordinary English.
IS_NO = re.compile(r"(?<![Tt]here )\b(is|are) (no|none)\b(?! longer| more| such| other)")
# The same habits in the name of a test. "told" is "reported".
ODD_NAME = re.compile(
    r"_(told|whoever)(_|$)|^test_(what|whoever|whatever|of)_"
    r"|(?<!_there)_(is|are|was|were)_(no|none)(?!_longer|_more|_such|_other)(_|$)"
)
SENTENCES = re.compile(r"(?<=[.:;!?])\s+")
QUESTION = re.compile(r"\?$")
KNOWN = Path(__file__).with_name("conventions_known.txt")


def main() -> int:
    known = allowed(KNOWN.read_text(encoding="utf-8"))
    found = [*sizes_and_names(), *sentences(), *names_of_tests()]
    if sys.argv[1:] == ["--all"]:
        print(*(text for _, text in found), sep="\n")
        return 0
    broken = [text for place, text in found if place not in known]
    broken += [
        f"{place}: breaks no rule; take it out of {KNOWN.name}"
        for place in sorted(known - {place for place, _ in found})
    ]
    print(*broken, sep="\n", end="\n" if broken else "")
    return 1 if broken else 0


def allowed(text: str) -> set[str]:
    """
    Return the places that may break a rule. Each line is a place, `: ` and the reason.

    >>> allowed("src/a.py: it is one table\\nsrc/b.py")
    {'src/a.py'}
    """
    lines = (line.partition(": ") for line in text.splitlines())
    return {place for place, _, reason in lines if reason}


def sizes_and_names() -> Iterator[tuple[str, str]]:
    """Folders, files, functions, and names of classes: a stable name of the place, and a text."""
    files = [*python_files("src/holdfast"), *python_files("proof")]
    per_folder = Counter(file.parent for file in files)
    for folder, count in per_folder.items():
        if count > FOLDER_FILES_MAX:
            yield shown(folder), f"{shown(folder)}: {count} files (at most {FOLDER_FILES_MAX})"
    classes: dict[str, set[str]] = defaultdict(set)
    for file in files:
        text = file.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > FILE_LINES_MAX:
            yield shown(file), f"{shown(file)}: {lines} lines (at most {FILE_LINES_MAX})"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = lines_of(node)
                if length > FUNCTION_LINES_MAX:
                    place = f"{shown(file)}:{node.name}"
                    yield place, f"{place} has {length} lines (at most {FUNCTION_LINES_MAX})"
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(shown(file))
    for name, places in sorted(classes.items()):
        if len(places) > 1:
            where = ", ".join(sorted(places))
            yield f"class {name}", f"class {name} means two things: {where}"


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function, without the parameters and docstrings in it."""
    lines = set(range(function.lineno, (function.end_lineno or function.lineno) + 1))
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_docstring = ast.get_docstring(node) is not None
            end = (first.end_lineno or first.lineno) + 1 if has_docstring else first.lineno
            lines -= set(range(node.lineno, end))
    return len(lines)


def sentences() -> Iterator[tuple[str, str]]:
    """Docstrings, comments and messages of errors."""
    for file in [*python_files("src/holdfast"), *python_files("proof")]:
        for line, text in prose_of(file):
            yield from odd_sentences(f"{shown(file)}:{line}", text)


def odd_sentences(place: str, text: str) -> Iterator[tuple[str, str]]:
    for sentence in SENTENCES.split(" ".join(text.split())):
        if ODD_START.match(sentence) and not QUESTION.search(sentence):
            yield place, f"{place}: begins with {sentence.split()[0]}: {sentence:.90}"
        if IS_NO.search(sentence):
            yield place, f"{place}: says 'is no': {sentence:.90}"


def names_of_tests() -> Iterator[tuple[str, str]]:
    """Names and docstrings of the tests and of their functions."""
    for file in [*python_files("tests"), *python_files("src/holdfast/testing")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{shown(file)}:{node.name}"
                if node.name.startswith("test_") and ODD_NAME.search(node.name):
                    yield place, f"{place}: is not plain English"
                yield from odd_sentences(place, ast.get_docstring(node) or "")


def prose_of(file: Path) -> Iterator[tuple[int, str]]:
    text = file.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (docstring := ast.get_docstring(node)) is not None:
                yield getattr(node, "lineno", 1), docstring
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
