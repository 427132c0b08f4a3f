"""
The shell itself is asked what a text means: it runs what was read, with the words that were read.
"""

import random
import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.adapters.tools.shell.parse import read_command
from holdfast.adapters.tools.shell.remembered.commands import why_not_text
from holdfast.adapters.tools.shell.remembered.table import LEAVES

NAMES = sorted({*LEAVES, "find", "sed", "test"} - {":", "exit"})
PIECES = r"""
ls cat echo sort grep find test printf cd sed -n 1p -l -a -- a b.txt 'x_y' "q_r" '' ""
a'b'c a"b"c | || && ; > /dev/null 2>&1 < 2>/dev/null >&2 &>/dev/null # a#b = a=b X=1 -x=y
--color=auto ! { } ( ) $ ` * ? ~ \ & ' " % + @ ^ : , . .. / // [ ] << <<< E |& ;; if then
fi do done time case in esac function coproc select until [[ ]] (( )) $'a' $"a" é 1 2 3> -
<( 0< 1>&2 é=1 !! {a,b} a{ }b %% == -e -name -type f != <& >| <> 9 -2 a2 {x}>
"""
FRAGMENTS = PIECES.split()
CALL, TEXT = b"\1", b"\2"


def texts(seed: int, count: int) -> list[str]:
    """Texts whose approval could be remembered, put together at random."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        text = rng.choice(["ls", "cat", "echo", "sort", "grep", "", "find ."])
        for _ in range(rng.randint(1, 7)):
            text += rng.choice([" ", " ", " ", "", "", "\n", "\t"]) + rng.choice(FRAGMENTS)
        if why_not_text(read_command(text)) is None:
            found[text] = None
    return list(found)


def recorder() -> str:
    """Functions in place of all leaf programs: each writes down its words."""
    say = "builtin printf '%s\\0' {name} \"$@\" >&9; builtin printf '\\1' >&9"
    lines = [f"{name}() {{ {say.format(name=name)}; }}" for name in NAMES]
    return "\n".join(
        [*lines, f"command_not_found_handle() {{ {say.format(name='not-found')}; }}", ""]
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_shell_runs_what_was_read_and_makes_no_file(tmp_path: Path, seed: int) -> None:
    """The grammar and bash differ in places; no text where they do may be remembered."""
    chosen = texts(seed, 400)
    script = recorder()
    for text in chosen:
        script += (
            f"( eval {shlex.quote(text)} ) </dev/null >/dev/null 2>&1; builtin printf '\\2' >&9\n"
        )
    work = tmp_path / "work"
    work.mkdir()
    out = tmp_path / "out"
    subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", f"exec 9>'{out}'\n{script}"],
        cwd=work,
        timeout=120,
        check=False,
    )
    parts = out.read_bytes().split(TEXT)[:-1]
    assert len(parts) == len(chosen)
    for text, part in zip(chosen, parts, strict=True):
        called = [tuple(call.decode().split("\0")[:-1]) for call in part.split(CALL) if call]
        read = [command.literals() for command in read_command(text).subcommands]
        assert [call for call in called if call not in read] == [], (text, read)
        assert called or "<" in text or read[0][:1] in [(":",), ("exit",)], (text, read)
    assert list(work.iterdir()) == []
