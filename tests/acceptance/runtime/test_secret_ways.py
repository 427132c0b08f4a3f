"""
S1, every way in: a person's or a client's text is refused before anything is journalled, a model's
or a tool's is hidden.

Each row is tried with a token that no home issued, with a variable that `secrets.env` names and
with the home's own key, and with what such a secret becomes in base64, hex and percent encoding.
After each row every byte below the home is searched.
"""

import asyncio
import base64
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.gateway.server.tokens import TokenBook
from holdfast.runtime.lifecycle.delete import delete
from holdfast.runtime.lifecycle.import_file import import_file
from holdfast.runtime.lifecycle.unseal import unseal
from holdfast.secrecy import HIDDEN, secrecy_of
from holdfast.session.view.messages import Quote
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.token_form import token_of
from tests.acceptance.runtime.conftest import alice

EMPTY = bytes(512)  # no secret has so many zeros; the home's reserve consists of them
VARIABLE = "HOLDFAST_TEST_CANARY"
SETTINGS = f'[secrets]\nenv = ["{VARIABLE}"]\n'
local = holdfast.MessageSource.local


class Way:
    """One open home, with a prompt that waits, and the text to smuggle in."""

    def __init__(
        self, home: holdfast.Home, text: str, approval: holdfast.Approval, folder: Path
    ) -> None:
        self.home, self.text, self.approval, self.folder = home, text, approval, folder

    @property
    def service(self) -> Any:
        return self.home.service

    async def answer(self, option: str = "approve_once", **given: Any) -> None:
        told = await self.home.answer(self.approval, option, **{"by": alice, **given})
        if told.result == "failed":
            raise holdfast.Refused("the answer failed", code=told.reason)

    async def foreign(self, do: Callable[[Any], Awaitable[Any]]) -> None:
        async with self.home.turn("ops/foreign", "look around", source=alice) as turn:
            await do(turn)
            await turn.finish("done")


def quoting(text: str) -> holdfast.MessageSource:
    return msgspec.structs.replace(alice, quotes=(Quote("bob", text),))


def book(way: Way) -> TokenBook:
    return TokenBook(way.service.home)


async def token(way: Way, **given: Any) -> None:
    fields: dict[str, Any] = {
        "name": "laptop",
        "person": "alice",
        "scopes": ["read"],
        "by": "alice",
        "now": 0,
    }
    given = {**fields, **given}
    await book(way).add(given.pop("name"), **given)


async def revoked_token(way: Way) -> None:
    await token(way)
    await book(way).revoke("laptop", by=way.text)


async def in_folder(way: Way) -> None:
    folder = way.folder / way.text.replace("/", "-")
    folder.mkdir()
    await way.home.send("ops/folder", "hello", source=alice, workspace=folder)


async def remembered(way: Way) -> None:
    await way.home.send("ops/grant", "act", source=alice)
    (waiting,) = [each for each in await way.home.approvals() if each.session == "ops/grant"]
    told = await way.home.answer(waiting, "approve_session", by=alice, reason=way.text)
    raise holdfast.Refused("the answer failed", code=told.reason)


async def imported(
    way: Way, *, name: str = "ops/imported", source: str = "old.jsonl", by: str = "alice"
) -> None:
    await import_file(way.service.runtime, name, a_file("hello"), source=source, by=by)


def a_file(text: str) -> bytes:
    head = {
        "type": "session",
        "version": 3,
        "id": "s1",
        "timestamp": "2026-01-01T00:00:00Z",
        "cwd": "/srv",
    }
    said = {"role": "user", "content": [{"type": "text", "text": text}]}
    line = {
        "type": "message",
        "id": "a",
        "parentId": None,
        "timestamp": "2026-01-01T00:00:00Z",
        "message": said,
    }
    return msgspec.json.encode(head) + b"\n" + msgspec.json.encode(line) + b"\n"


REFUSED: dict[str, Callable[[Way], Awaitable[Any]]] = {
    "a message's text": lambda way: way.home.send("ops/new", f"use {way.text}", source=alice),
    "a dedup key": lambda way: way.home.send("ops/new", "hello", source=alice, dedup=way.text),
    "a person's name": lambda way: way.home.send("ops/new", "hello", source=local(way.text)),
    "a quote": lambda way: way.home.send("ops/new", "hello", source=quoting(way.text)),
    "a name that is quoted": lambda way: way.home.send(
        "ops/new", "hello", source=msgspec.structs.replace(alice, quotes=(Quote(way.text, "hi"),))
    ),
    "a model's name": lambda way: way.home.send(
        "ops/new", "hello", source=alice, model=f"script:{way.text}"
    ),
    "an agent's name": lambda way: way.home.send("ops/new", "hello", source=alice, agent=way.text),
    "a workspace": in_folder,
    "an answer's reason": lambda way: way.answer(reason=f"because {way.text}"),
    "a denial's reason": lambda way: way.answer("deny", reason=way.text),
    "an answer's id": lambda way: way.answer(answer_id=way.text),
    "an answer's option": lambda way: way.answer(way.text),
    "who answers": lambda way: way.answer(by=local(way.text)),
    "an edit's value": lambda way: way.answer("edit", arguments={"what": way.text}),
    "an edit's key": lambda way: way.answer("edit", arguments={way.text: "x"}),
    "a remembered answer's reason": remembered,
    "a reminder": lambda way: way.home.remind("ops/new", way.text, source=alice, every="1h"),
    "a reminder's person": lambda way: way.home.remind(
        "ops/new", "hello", source=local(way.text), every="1h"
    ),
    "who makes a session": lambda way: way.service.create("ops/new", by=way.text),
    "who cancels": lambda way: way.home.cancel(
        "ops/api", by=msgspec.structs.replace(local(way.text), principal="operator")
    ),
    "who unseals": lambda way: unseal(way.service.runtime, "ops/api", by="alice", reason=way.text),
    "who deletes": lambda way: delete(way.service.runtime, "ops/api", by=way.text),
    "a token's name": lambda way: token(way, name=way.text),
    "a token's person": lambda way: token(way, person=way.text),
    "a token's audience": lambda way: token(way, audience=f"team:{way.text}"),
    "who makes a token": lambda way: token(way, by=way.text),
    "who revokes a token": revoked_token,
    "who rotates the keys": lambda way: way.service.runtime.world.store.rotate_keys(by=way.text),
    "who imports": lambda way: imported(way, by=way.text),
    "where an import is from": lambda way: imported(way, source=way.text),
    "a channel's mirrored text": lambda way: way.service.mirror(
        "ops/api", "t1", channel="chat", part="1", text=way.text
    ),
    "a channel's receipt": lambda way: way.service.mirror(
        "ops/api", "t1", channel="chat", part="1", text="hi", receipt=way.text
    ),
}
# Refused for their form before anybody looks for a secret in them; nothing is kept either way.
MALFORMED = {
    "a token's name",
    "a token's audience",
    "a token's person",
    "a reminder's person",
    "an agent's name",
    "a model's name",
}

HIDDEN_WAYS: dict[str, Callable[[Way], Awaitable[Any]]] = {
    "a call's tool": lambda way: way.foreign(lambda turn: turn.gate(way.text, {"at": "x"})),
    "a call's argument": lambda way: way.foreign(lambda turn: turn.gate("look", {"at": way.text})),
    "a call's key": lambda way: way.foreign(lambda turn: turn.gate("look", {way.text: "x"})),
    "a call's text": lambda way: way.foreign(
        lambda turn: turn.gate("look", {way.text: "x"}, text=way.text)
    ),
    "a call's provider id": lambda way: way.foreign(
        lambda turn: turn.gate("look", {"at": "x"}, id=way.text)
    ),
    "a foreign failure": lambda way: way.foreign(
        lambda turn: turn.fail(way.text, f"it was {way.text}")
    ),
    "a model's reply": lambda way: way.home.send("ops/said", "say it", source=alice, agent="says"),
    "a tool's output": lambda way: way.home.send(
        "ops/printed", "print it", source=alice, agent="prints"
    ),
    "a tool's long output": lambda way: way.home.send(
        "ops/long", "print it", source=alice, agent="prints_long"
    ),
    "a tool's error": lambda way: way.home.send("ops/failed", "fail", source=alice, agent="fails"),
    "what is remembered": lambda way: way.home.send(
        "ops/remembered", "remember it", source=alice, agent="remembers"
    ),
    "a task for a delegate": lambda way: way.home.send(
        "ops/delegated", "hand it on", source=alice, agent="hands_on"
    ),
    "an import's text": lambda way: import_file(
        way.service.runtime,
        "ops/imported",
        a_file(f"it is {way.text}"),
        source="old.jsonl",
        by="alice",
    ),
}


def agents_with(text: str) -> list[holdfast.Agent]:
    @holdfast.tool
    def act(what: str = "x") -> str:
        """Do something that can't be undone."""
        return f"did {what}"

    @holdfast.tool(contract="pure", mode="auto")
    def look(at: str = "") -> str:
        """Only look."""
        return f"saw {at}"

    @holdfast.tool(contract="pure", mode="auto")
    def show(times: int = 1) -> str:
        """Show it."""
        return "\n".join(f"line {number}: {text}" for number in range(times))

    @holdfast.tool(contract="pure", mode="auto")
    def fail() -> str:
        """Always fails."""
        raise ValueError(f"no {text}")

    def asking(name: str, tool: str, args: dict[str, Any], *tools: Any) -> holdfast.Agent:
        lines = [{"call": [{"tool": tool, "args": args}]}, {"say": "done"}]
        return holdfast.Agent(name, model=ScriptModel(lines * 3), tools=tools)

    helper = holdfast.Agent(
        "helper", model=ScriptModel([{"say": f"I know {text}"}] * 3), tools=[look]
    )
    return [
        asking("ops", "act", {"what": "x"}, act, look),
        holdfast.Agent("says", model=ScriptModel([{"say": f"it is {text}"}]), tools=[]),
        asking("prints", "show", {}, show),
        asking("prints_long", "show", {"times": 4_000}, show),
        asking("fails", "fail", {}, fail),
        asking("remembers", "remember", {"text": text}, "remember"),
        holdfast.Agent(
            "hands_on",
            model=ScriptModel(
                [
                    {"call": [{"tool": "delegate_helper", "args": {"task": text}}]},
                    {"say": f"so {text}"},
                ]
            ),
            tools=[look],
            delegates=[helper],
        ),
    ]


def forms_of(secret: str | bytes) -> list[str]:
    data = secret if isinstance(secret, bytes) else secret.encode()
    encoded = [
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(b"x" + data).decode(),
        data.hex(),
        data.hex().upper(),
    ]
    return [
        *([secret] if isinstance(secret, str) else []),
        *encoded,
        "".join(f"%{each:02X}" for each in data),
    ]


def bytes_below(folder: Path) -> bytes:
    """
    Everything that is kept, without empty blocks; the keys themselves lie in their own folder.
    """
    found = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "keys"]
    return b"\n".join(
        b"\n".join((os.fsencode(path.relative_to(folder)), path.read_bytes().replace(EMPTY, b"")))
        for path in found
    )


@pytest.fixture(autouse=True)
def _canary(monkeypatch: pytest.MonkeyPatch) -> None:
    value = f"canary {os.urandom(12).hex()}"
    monkeypatch.setenv(VARIABLE, value)


async def tried(
    tmp_path: Path,
    pick: Callable[[Path], str | bytes],
    way: Callable[[Way], Awaitable[Any]],
    form: int,
) -> tuple[str | None, bytes, Any]:
    """Returns the code of the refusal, all that was kept, and what finds the secret."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "holdfast.toml").write_text(SETTINGS)
    async with holdfast.open(folder):
        pass
    secret = pick(folder)
    text = forms_of(secret)[form % len(forms_of(secret))]
    code = None
    async with holdfast.open(folder, agents=agents_with(text)) as home:
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        try:
            await way(Way(home, text, approval, tmp_path))
        except HoldfastError as exc:
            code = exc.code
        with contextlib.suppress(HoldfastError):
            await home.service.compact("ops/api")
    return (
        code,
        await asyncio.to_thread(bytes_below, folder),
        secrecy_of((secret,) if not isinstance(secret, str) or secret[:3] != "hf_" else ()),
    )


PICKS: dict[str, Callable[[Path], str | bytes]] = {
    "token": lambda _: token_of(os.urandom(32)),
    "variable": lambda _: os.environ[VARIABLE],
    "key": lambda folder: (folder / "keys" / "1.key").read_bytes(),
}


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("name", REFUSED)
def test_the_runtime_refuses_input_that_holds_a_secret_and_does_not_keep_it(
    name: str, kind: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        form = list(REFUSED).index(name)
        code, kept, secrecy = await tried(tmp_path, PICKS[kind], REFUSED[name], form)
        assert not secrecy.holds(kept)
        assert code == "secret" or (name in MALFORMED and code is not None)

    story()


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("name", HIDDEN_WAYS)
def test_the_runtime_hides_a_secret_that_a_model_or_a_tool_produces(
    name: str, kind: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        form = list(HIDDEN_WAYS).index(name)
        code, kept, secrecy = await tried(tmp_path, PICKS[kind], HIDDEN_WAYS[name], form)
        assert not secrecy.holds(kept)
        assert (code, HIDDEN.encode() in kept) == (None, True)

    story()
