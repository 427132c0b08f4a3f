"""
Fuzzers of every parser of foreign bytes: records, events, strict JSON, arguments, shell text,
scripts, job reports and HTTP.

A target takes any bytes. It returns, or raises its parser's documented error. Any other exception
and any wrong result is a finding. `python -m proof.fuzz.command TARGET` runs one target with
atheris, guided by coverage, for `--seconds`; without a target it runs all, one after the other. The
tests drive the same targets with Hypothesis. `--corpus` keeps the inputs of a run, one per file,
and the next run tries them first.
"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proof.child_process import words_for
from proof.fuzz.http import fuzz_http, the_gateway
from proof.fuzz.parsers import (
    Target,
    fuzz_anchor,
    fuzz_arguments,
    fuzz_event,
    fuzz_record,
    fuzz_report,
    fuzz_script,
    fuzz_shell,
    fuzz_strict,
)

TARGETS: Mapping[str, Target] = {
    "anchor": fuzz_anchor,
    "record": fuzz_record,
    "strict": fuzz_strict,
    "event": fuzz_event,
    "arguments": fuzz_arguments,
    "shell": fuzz_shell,
    "script": fuzz_script,
    "report": fuzz_report,
    "http": fuzz_http,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fuzzing", description="Coverage-guided fuzzing of every parser, by atheris."
    )
    parser.add_argument(
        "target",
        nargs="?",
        choices=sorted(TARGETS),
        help="one of them; without it all, one after the other",
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"), help="where inputs are kept")
    options = parser.parse_args(arguments)
    if options.target is not None:
        return _fuzz(options.target, options.seconds, options.corpus)
    for name in TARGETS:
        words = [
            *words_for("proof.fuzz.command"),
            name,
            "--seconds",
            str(options.seconds),
            "--corpus",
            str(options.corpus),
        ]
        done = subprocess.run(words, check=False)  # atheris takes over the whole process
        if done.returncode != 0:
            sys.stderr.write(f"{name}: a finding; the input that led to it lies where it says\n")
            return done.returncode
    return 0


def _fuzz(name: str, seconds: int, corpus: Path) -> int:
    try:
        atheris: Any = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.stderr.write("atheris is not installed: `make fuzz` installs it\n")
        return 2
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]
    if name == "http":
        the_gateway()
    with atheris.instrument_imports():  # instruments later imports; the others are done by hand
        target(b"")
    for module in [
        each
        for key, each in sys.modules.items()
        if key.startswith(("holdfast.journal", "holdfast.gateway", "holdfast.adapters"))
    ]:
        _instrument(atheris, module)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-artifact_prefix={folder}/found-",
            "-print_final_stats=1",
            str(folder),
        ],
        target,
    )
    atheris.Fuzz()
    return 0


def _instrument(atheris: Any, module: Any) -> None:
    for name, value in list(vars(module).items()):
        if (
            callable(value)
            and getattr(value, "__module__", None) == module.__name__
            and hasattr(value, "__code__")
        ):
            setattr(module, name, atheris.instrument_func(value))


if __name__ == "__main__":
    sys.exit(main())
