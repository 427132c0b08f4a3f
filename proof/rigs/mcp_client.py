"""
Our client as a program, for the official conformance suite: `python -m proof.rigs.mcp_client URL`.

It is the whole way of a person: a home, settings with the address, every tool read and pinned, and
each call made by a turn. The suite's server is on loopback, and policy lets all calls run. Where
the server wants a login, the person runs `holdfast mcp login` and opens the address that it shows.
"""

import asyncio
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import holdfast
from holdfast.errors import Refused
from holdfast.home import Home
from holdfast.runtime.reports.types import ApprovalReport, TurnReport

VALUES: dict[str, Any] = {
    "string": "x", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {},
}  # fmt: skip
SOURCE = holdfast.MessageSource.local("alice")


LOOK_AGAIN_SECONDS = 0.2
LOGINS_MAX = 2  # a person does not log in for ever
SECRET, KEY = "CONFORMANCE_SECRET", "CONFORMANCE_KEY"
CLIENT_ADDRESS = "https://conformance-test.local/client-metadata.json"  # as the suite expects


class Person:
    """A home, and somebody who uses it."""

    def __init__(self, folder: Path, url: str, context: dict[str, Any]) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(mode=0o700)
        self.home.joinpath("holdfast.toml").write_text(
            f"[mcp.web]\nurl = {json.dumps(url)}\n{login_settings(folder, url, context)}"
            "[agents.ops]\ntools = ['web.*']\n[policy.personal]\n'*' = 'auto'\n",
            encoding="utf-8",
        )
        self._logins = 0
        self._calls = 0

    async def login(self, said: str) -> bool:
        """Log in if the text asks for it. Return whether it worked."""
        if "holdfast mcp login" not in said or self._logins >= LOGINS_MAX:
            return False
        self._logins += 1
        command = [sys.executable, "-m", "holdfast", "--home", str(self.home), "mcp", "login"]
        running = await asyncio.create_subprocess_exec(
            *command, "web", stderr=asyncio.subprocess.PIPE
        )
        assert running.stderr is not None
        async for line in running.stderr:
            text = line.decode().strip()
            print(text)
            if text.startswith("http"):
                await asyncio.to_thread(browse, text)
        return await running.wait() == 0

    async def shown(self, home: Home) -> Any:
        while True:
            try:
                return await home.service.servers.show(["web"])
            except Refused as exc:
                print(exc.message)
                if not await self.login(exc.message):
                    return ()

    async def call(self, home: Home, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool in a turn of its own. Return the text of its outcome."""
        self._calls += 1
        session, script = f"c/{self._calls}", self.folder / f"{self._calls}.jsonl"
        script.write_text(json.dumps({"call": [{"tool": name, "args": arguments}]}))
        sending = asyncio.ensure_future(
            home.send(session, "go", source=SOURCE, model=f"script:{script}")
        )
        while not (await asyncio.wait([sending], timeout=LOOK_AGAIN_SECONDS))[0]:
            for question in await home.approvals():  # its server asks inside of the open call
                await answered(home, question, wait=False)
        turn = sending.result()
        while turn.outcome == "waiting":  # each round of a server has a bound
            turn = await answered(home, turn.approvals[0])
        done = await home.calls(session)
        print(name, turn.outcome, [each.outcome for each in done])
        return str(done[-1].text)


def login_settings(folder: Path, url: str, context: dict[str, Any]) -> str:
    if "client_id" not in context:
        return f"client_id = {json.dumps(CLIENT_ADDRESS)}\n"
    # The suite does not say its issuer, which an operator knows.
    at = urlsplit(url)
    described = f"{at.scheme}://{at.netloc}/.well-known/oauth-protected-resource{at.path}"
    with urllib.request.urlopen(described, timeout=10) as found:  # noqa: S310  on loopback
        issuer = json.load(found)["authorization_servers"][0]
    lines = [f"client_id = {json.dumps(context['client_id'])}", f"issuer = {json.dumps(issuer)}"]
    for name, key, variable in (
        ("client_secret", "client_secret_env", SECRET),
        ("private_key_pem", "client_key_env", KEY),
    ):
        if name in context:
            os.environ[variable] = context[name]
            lines.append(f"{key} = {json.dumps(variable)}")
    identity = context.get("idp_id_token") or context.get("valid_jwt")
    if identity is not None:
        kept = folder / "identity"
        kept.write_text(f"{identity}\n")
        lines.append(f"identity_file = {json.dumps(str(kept))}")
    if "idp_issuer" in context:
        lines.append(f"identity_issuer = {json.dumps(context['idp_issuer'])}")
        lines.append(f"identity_client_id = {json.dumps(context['idp_client_id'])}")
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    if identity is not None or scenario.startswith("auth/client-credentials"):
        lines.append("login = 'client'")
    return "\n".join(lines) + "\n"


def browse(address: str) -> None:
    """Open the address as a browser does: it follows where it is sent."""
    try:
        with urllib.request.urlopen(address, timeout=10) as page:  # noqa: S310  on loopback
            page.read()
    except urllib.error.URLError as exc:
        print(exc)


async def main(url: str) -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        person = Person(Path(folder), url, context)
        async with holdfast.open(person.home) as home:
            shown = await person.shown(home)
            pins = [(each.name, each.digest) for each in shown]
            await home.service.servers.pin(pins, by="alice")
            schemas = {each.name: each.definition["inputSchema"] for each in shown}
            for name, arguments in calls_of(context, schemas):
                if name in schemas:
                    text = await person.call(home, name, arguments)
                    while await person.login(text):
                        text = await person.call(home, name, arguments)


def calls_of(
    context: dict[str, Any], schemas: dict[str, dict[str, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    given = context.get("toolCalls", [])
    if given:
        return [(f"web.{each['name']}", without_nulls(each["arguments"])) for each in given]
    return [(name, arguments_of(schema, schemas)) for name, schema in schemas.items()]


async def answered(home: Home, question: ApprovalReport, *, wait: bool = True) -> TurnReport:
    """
    Answer the server's question as a person who takes the first choice. A form that does not take
    these values gets none, so that its defaults count.
    """
    first = question.options[0]
    report = await home.answer(question, first, by=SOURCE, reason='{"x": 1}', wait=wait)
    if report.reason == "malformed":
        report = await home.answer(question, first, by=SOURCE, reason="{}", wait=wait)
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
