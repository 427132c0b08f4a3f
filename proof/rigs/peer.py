"""
Another process on the same home, controlled through pipes: one JSON object per line, each with one
answer.

    {"do": "append", "session": ..., "texts": [...], "check": "short"}
                                         -> {"head": seq, "suffix": [texts]}
    {"do": "hold", "session": ...}       takes the write lock, says {"holding": true}, waits inside
                                         for {"do": "go"}
    {"do": "claim", "session": ...}      -> {"epoch": n or null}
    {"do": "die_writing", "session": ..., "keep": n}
                                         writes the first n bytes of a record, then is killed
    {"do": "spawn_holding", "session": ...}
                                         as hold, with a child process that outlives it
    {"do": "fork_holding", "session": ...}
                                         the same, with a forked copy of the process

Only pipes synchronise the processes: no sleeps, no guesses.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check, Draft, Journal, JournalStore, Section
from proof.child_process import words_for


class Peer:
    """The near end: a child process on the home at `path`."""

    def __init__(self, path: Path, **settings: int) -> None:
        arguments = words_for("proof.rigs.peer", str(path), json.dumps(settings))
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **facts: Any) -> Any:
        """Send one request and wait for its answer."""
        self.tell(do, **facts)
        return self.hear()

    def tell(self, do: str, **facts: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **facts}).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def append(self, session: SessionId, *texts: str) -> list[str]:
        answer = self.ask("append", session=session, texts=texts)
        return [str(text) for text in answer["suffix"]]

    def kill(self) -> int:
        self._process.kill()
        return self.wait()

    def stop(self) -> None:
        """Freeze the process. It stays alive but does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def note(text: str) -> Draft:
    return Draft("note", 1, msgspec.json.encode({"text": text}))


class _FarEnd:
    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._open: dict[str, Journal] = {}
        self._kept: list[object] = []

    async def serve(self) -> None:
        while line := sys.stdin.readline():
            wish = json.loads(line)
            try:
                _answer(await self._do(wish))
            except HoldfastError as exc:
                _answer({"error": exc.code, "message": exc.message})

    async def _journal(self, session: str) -> Journal:
        if session not in self._open:
            self._open[session] = await self._store.open(SessionId(session))
        return self._open[session]

    async def _do(self, wish: dict[str, Any]) -> Any:
        journal = await self._journal(wish["session"])
        match wish["do"]:
            case "append":
                drafts = [note(text) for text in wish["texts"]]
                check = Check(wish.get("check", "short"))
                done = await journal.append(lambda _: drafts, since=journal.head, check=check)
                suffix = [msgspec.json.decode(each.body).get("text") for each in done.suffix]
                return {"head": done.head.seq, "suffix": suffix}
            case "hold":
                return _append_while(journal, _wait_for_go)
            case "spawn_holding":
                return _append_while(journal, self._spawn_and_wait)
            case "fork_holding":
                return _append_while(journal, _fork_and_wait)
            case "claim":
                claim = await journal.claim()
                self._kept.append(claim)
                return {"epoch": None if claim is None else claim.epoch}
            case "die_writing":
                _die_in_write(wish["keep"])
                await journal.append(lambda _: [note("torn")], since=journal.head)
                return None
            case "open":
                return {"head": journal.head.seq}
            case other:
                return {"error": f"no such wish: {other}"}

    def _spawn_and_wait(self) -> None:
        """
        Start a tool's process that inherits everything it can, and lives until the test kills it.
        """
        child = subprocess.Popen(
            ["tail", "-f", "/dev/null"],  # noqa: S607
            stdout=subprocess.DEVNULL,
            close_fds=False,
        )
        self._kept.append(child)
        _answer({"child": child.pid})
        sys.stdin.readline()


def _append_while(journal: Journal, inside: Callable[[], None]) -> Any:
    def decide(_: Section) -> Sequence[Draft]:
        inside()
        return [note("held")]

    done = journal.append_now(decide, since=journal.head)
    return {"head": done.head.seq}


def _fork_and_wait() -> None:
    """
    Fork a child that never execs, and lives until the test kills it. The child answers, so it has
    let go of its parent's descriptors by then.
    """
    if os.fork() == 0:
        _answer({"child": os.getpid()})
        while True:
            signal.pause()
    sys.stdin.readline()


def _wait_for_go() -> None:
    _answer({"holding": True})
    sys.stdin.readline()


def _answer(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def _die_in_write(keep: int) -> None:
    """
    Let the next write to a journal file keep its first bytes, then kill this process, as a power
    button for one program would.
    """
    for name in ("write", "pwrite", "writev", "pwritev"):
        setattr(os, name, _half(getattr(os, name), keep))


def _half(write: Callable[..., int], keep: int) -> Callable[..., int]:
    def half(descriptor: int, data: Any, *rest: int) -> int:
        if not str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(".jsonl"):
            return write(descriptor, data, *rest)
        joined = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        part = bytes(joined)[:keep]
        write(
            descriptor, part if isinstance(data, bytes | bytearray | memoryview) else [part], *rest
        )
        os.kill(os.getpid(), signal.SIGKILL)
        return keep

    return half


async def _main(path: str, settings: str) -> None:
    from holdfast.adapters.files import FileStore

    await _FarEnd(await FileStore.open_home(Path(path), **json.loads(settings))).serve()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
