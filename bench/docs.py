"""
docs/internals/benchmarks.md and its picture, written from docs/internals/benchmarks.json, which `python -m bench` and
`python -m bench.peers` fill.

Nothing in the document is typed by hand: what a run found is what it says, goals missed included.
"""

import json
from pathlib import Path
from typing import Any

from bench.picture import DARK, LIGHT, picture

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "internals" / "benchmarks.json"
PAGE = ROOT / "docs" / "internals" / "benchmarks.md"
PICTURES = {
    LIGHT: ROOT / "docs" / "img" / "append-cost.svg",
    DARK: ROOT / "docs" / "img" / "append-cost-dark.svg",
}

TITLE = "Appending one more to a session, by the length of its history (p50)"
SHOWN = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="../img/append-cost-dark.svg">
  <img alt="What one more append costs, by the length of the history: Holdfast, and what people use instead" src="../img/append-cost.svg">
</picture>"""

HEAD = """# Benchmarks

Written by `make bench ARGS=--write-docs` and `make bench-peers ARGS=--write-docs`; do not edit.
Ratios count, not absolute numbers: ours and the limit are measured in turns, in one run, on one disk, and medians are compared.
Everything of ours is durable when it is acknowledged: written and synced with `fdatasync`.
The anchor is written after that, and synced at the end of each turn.
Over HTTP client and server never share a process.
Beside the answer's row stands what a request that does nothing takes on the same connection, so that the part of HTTP can be told.
"""


def note(section: str, found: dict[str, Any]) -> None:
    """Keep what one of the two commands found, and write the page from all there is."""
    known = json.loads(DATA.read_text()) if DATA.exists() else {}
    if section == "ours" and "ours" in known:
        # A run of some parts replaces just those.
        new = {row["part"] for row in found["rows"]}
        kept = [row for row in known["ours"]["rows"] if row["part"] not in new]
        before = known["ours"]["machine"]
        earlier = {
            part: text
            for part, text in before.get("parts of earlier runs", {}).items()
            if part not in new
        }
        when = f"{before['date']}, load {before['load when it began']}"
        earlier |= {row["part"]: when for row in kept if row["part"] not in earlier}
        if earlier:
            found["machine"]["parts of earlier runs"] = earlier
        order = {part: place for place, part in enumerate(found["order"])}
        found["rows"] = sorted([*found["rows"], *kept], key=lambda row: order.get(row["part"], 99))
        found["series"] = {**known["ours"]["series"], **found["series"]}
    known[section] = found
    DATA.write_text(json.dumps(known, indent=1) + "\n")
    PAGE.write_text(page(known))
    if series := _series(known):
        for colours, path in PICTURES.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture(series, TITLE, colours))


def _series(known: dict[str, Any]) -> dict[str, Any]:
    """The lines of one run: that beside the others where there was one, ours alone otherwise."""
    found: dict[str, Any] = known.get("peers", {}).get("series", {}) or known.get("ours", {}).get(
        "series", {}
    )
    return found


def page(known: dict[str, Any]) -> str:
    parts = [HEAD]
    if "ours" in known:
        parts += [
            "## Ours against the limit",
            _machine(known["ours"]["machine"]),
            _ours(known["ours"]["rows"]),
            _verdict(known["ours"]["rows"]),
        ]
    if "peers" in known:
        parts += [
            "## The same work done by others",
            _machine(known["peers"]["machine"]),
            peers(known["peers"]),
        ]
    parts += ["## Cost against history", SHOWN]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _machine(machine: dict[str, Any]) -> str:
    said = [f"- {name}: {value}" for name, value in machine.items() if not isinstance(value, dict)]
    said += [
        f"- {part}: of an earlier run, {when}"
        for part, when in machine.get("parts of earlier runs", {}).items()
    ]
    return "\n".join(said)


def _ours(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | what | ours | limit | ratio | goal | reached | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else ""
        cells = (
            row["part"],
            row["what"],
            row["ours"],
            row["limit"],
            ratio,
            row["goal"],
            verdict(row["reached"]),
            row["note"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _verdict(rows: list[dict[str, Any]]) -> str:
    promised = [row for row in rows if row["reached"] is not None]
    missed = [f"{row['part']}: {row['what']}" for row in promised if not row["reached"]]
    said = f"{len(promised) - len(missed)} of {len(promised)} goals reached in this run."
    return said + ("\nMissed: " + "; ".join(missed) + "." if missed else "")


def peers(found: dict[str, Any]) -> str:
    names = found["names"]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [
        "| " + " | ".join([row["what"], *(row["cells"].get(name, "-") for name in names)]) + " |"
        for row in found["rows"]
    ]
    lines += [
        "",
        "How durable each one is:",
        "",
        *(f"- {name}: {mode}." for name, mode in found["durability"].items()),
    ]
    if found.get("goals"):
        lines += [
            "",
            "| against the best durable peer | Holdfast | that peer | ratio | goal | reached |",
            "|---|---|---|---|---|---|",
            *(
                f"| {each['what']} | {each['ours']} | {each['peer']} | {each['ratio']} "
                f"| {each['goal']} | {verdict(each['reached'])} |"
                for each in found["goals"]
            ),
        ]
    if found["better"]:
        lines += [
            "",
            "Where others are ahead of Holdfast:",
            "",
            *(f"- {line}." for line in found["better"]),
        ]
    if found["left_out"]:
        lines += [
            "",
            "Not measured, and why:",
            "",
            *(f"- {name}: {reason}." for name, reason in found["left_out"].items()),
        ]
    return "\n".join([*lines, "", "How to read it:", "", *(f"- {each}" for each in found["notes"])])


def verdict(reached: bool | None) -> str:  # noqa: FBT001  a cell of a table
    return "" if reached is None else "yes" if reached else "**no**"
