"""
Our client as a program, for the official conformance suite: `python -m proof.rigs.mcp_client URL`.

It is the whole way of a person: a home, settings with the address, every tool read and pinned, and
each call made by a turn. The suite's server is on loopback, and policy lets all calls run.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import Refused
from holdfast.home import Home
from holdfast.runtime.reports.types import TurnReport

VALUES: dict[str, Any] = {
    "string": "x", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {},
}  # fmt: skip
SOURCE = holdfast.MessageSource.local("alice")


async def main(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls", [])
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        home.joinpath("holdfast.toml").write_text(
            f"[mcp.web]\nurl = {json.dumps(url)}\n[agents.ops]\ntools = ['web.*']\n"
            "[policy.personal]\n'*' = 'auto'\n",
            encoding="utf-8",
        )
        async with holdfast.open(home) as opened:
            try:
                shown = await opened.service.servers.show(["web"])
            except Refused as exc:
                print(exc.message)
                return
            pins = [(each.name, each.digest) for each in shown]
            await opened.service.servers.pin(pins, by="alice")
            schemas = {each.name: each.definition["inputSchema"] for each in shown}
            calls = [
                (f"web.{each['name']}", without_nulls(each["arguments"])) for each in given
            ] or [(name, arguments_of(schema, schemas)) for name, schema in schemas.items()]
            known = {name for name, _ in pins}
            for number, (name, arguments) in enumerate(calls):
                if name in known:
                    script = Path(folder) / f"{number}.jsonl"
                    script.write_text(json.dumps({"call": [{"tool": name, "args": arguments}]}))
                    turn = await opened.send(
                        f"c/{number}", "go", source=SOURCE, model=f"script:{script}"
                    )
                    while turn.outcome == "waiting":  # each round of a server has a bound
                        turn = await answered(opened, turn)
                    print(
                        name, turn.outcome, [c.outcome for c in await opened.calls(f"c/{number}")]
                    )


async def answered(home: Home, turn: TurnReport) -> TurnReport:
    """Answer the server's question as a person who takes the first choice."""
    question = turn.approvals[0]
    report = await home.answer(
        question, question.options[0], by=SOURCE, reason='{"x": 1}', answer_id=question.id
    )
    return report.turn


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the tool's own schema does not allow: the suite allows that too."""
    return {name: value for name, value in arguments.items() if value is not None}


def arguments_of(schema: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """
    Return plain values that fit the schema's required fields. A field `schema` is for the schema of
    another tool, which the suite compares with the one that it sent.
    """
    fields = schema.get("properties", {})
    values = {
        name: VALUES.get(fields.get(name, {}).get("type"), "x")
        for name in schema.get("required", fields)
    }
    if "schema" in values:
        values["schema"] = next(each for each in schemas.values() if each is not schema)
    return values


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
