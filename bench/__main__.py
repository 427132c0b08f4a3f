"""
`python -m bench [PART ...] [--json FILE] [--write-docs] [--scale 0.1] [--in FOLDER]`: our numbers
against the machine's, as ratios of one run.

Parts: append many lengths reacquire open segments fold turn in_turn startup provider parked
sessions_list gateway page mcp_proxy busy_server workers recall reminders jobs postgres. All of
them without any. A part that fails is named at the end, and the others are kept.
"""

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from bench import docs
from bench.ground import Ground, Row, as_json, machine

PARTS = {
    "append": "append",
    "many": "crowd",
    "lengths": "lengths",
    "reacquire": "reacquire",
    "open": "opening",
    "segments": "segments",
    "fold": "folding",
    "turn": "turns",
    "in_turn": "in_turn",
    "startup": "startup",
    "provider": "provider",
    "parked": "parked",
    "sessions_list": "sessions_list",
    "gateway": "gateway",
    "page": "page",
    "mcp_proxy": "mcp_proxy",
    "busy_server": "busy_server",
    "workers": "workers",
    "recall": "memory",
    "reminders": "reminders",
    "jobs": "jobs",
    "postgres": "database",
}


def main() -> None:
    asked = _arguments()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # an installed package is compiled: commands are measured as users have them
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=asked.folder))
    rows: list[Row] = []
    failed: list[str] = []
    ground = Ground(folder, asked.scale)
    try:
        facts = machine(folder)
        print(", ".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
        for part in asked.parts or PARTS:
            try:
                found = importlib.import_module(f"bench.{PARTS[part]}").measure(ground)
            except Exception:  # noqa: BLE001  it is told, and the other parts have their turn
                traceback.print_exc()
                failed.append(part)
                continue
            rows += found
            for row in found:
                print(_line(row), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = [row for row in rows if row.reached is False]
    promised = sum(row.reached is not None for row in rows)
    print(f"{promised - len(missed)} of {promised} goals reached")
    order = [importlib.import_module(f"bench.{name}").PART for name in PARTS.values()]
    result = {"machine": facts, "rows": as_json(rows), "series": ground.series, "order": order}
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    if asked.write_docs:
        docs.note("ours", result)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Our numbers against the machine's, as ratios of one run.",
    )
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*PARTS, []],
        metavar="PART",
        help=f"one or more of: {' '.join(PARTS)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="also write docs/internals/benchmarks.md and its picture",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: smaller and quicker")
    parser.add_argument(
        "--in",
        dest="folder",
        type=Path,
        help="a folder on the disk to measure; the system's temporary folder otherwise",
    )
    return parser.parse_args()


def _line(row: Row) -> str:
    ratio = f"{row.ratio:8.2f} x" if row.ratio is not None else " " * 10
    reached = "" if row.reached is None else "reached" if row.reached else "MISSED"
    return f"{row.part:14} {row.what:58} {row.ours:>24} {row.limit:>14} {ratio} {row.goal:>12} {reached:8} {row.note}"


if __name__ == "__main__":
    main()
