"""`holdfast.Home` for synchronous code: one event loop in its own thread, which every verb uses."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast import home as _async
from holdfast.blocking.external_turn import BlockingItems, BlockingTurn, made_in_loop
from holdfast.errors import Unusable
from holdfast.home import Answer, Approval, Followed, Grant, Job, Reminder, Session, Turn
from holdfast.runtime.external_loop.answered import OpenLoop
from holdfast.runtime.external_loop.calls import CallReport
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.reports.session_list import SessionLine
from holdfast.runtime.streams.in_flight import Follower
from holdfast.session.authority.context import MessageSource

T = TypeVar("T")


class BlockingHome:
    """An open home for synchronous code; a context manager. Safe to use from several threads."""

    def __init__(self, home: _async.Home) -> None:
        self._home = home
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Guards scheduling against closing: nothing is scheduled on a loop that ends.
        self._guard = threading.Lock()

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise Unusable(
                "the home is open already",
                hint="hand the open one around: it may be used from several threads",
            )
        ready = threading.Event()

        def work() -> None:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._loop.call_soon(ready.set)
                self._loop.run_forever()

        self._thread = threading.Thread(target=work, name="holdfast-blocking", daemon=True)
        self._thread.start()
        ready.wait()
        try:
            self._do(self._home.__aenter__)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._do(lambda: self._home.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._guard:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        if threading.current_thread() is self._thread:
            raise Unusable(
                "the home is called from its own loop, which would wait for itself",
                hint="in an async tool use `await` and a home of its own",
            )

        running: list[asyncio.Task[Any] | None] = []

        async def run() -> T:
            running.append(asyncio.current_task())
            return await work()

        with self._guard:
            loop = self._loop
            if loop is None:
                raise Unusable(
                    "the home is not open", hint="use `with holdfast.blocking.open(...) as home`"
                )
            doing = asyncio.run_coroutine_threadsafe(run(), loop)
        try:
            return doing.result()
        except concurrent.futures.CancelledError as exc:  # only the end of the loop cancels it
            raise Unusable("the home was closed meanwhile", hint="open it again") from exc
        except BaseException:
            # For example Ctrl-C during the wait: cancel the work, and let it end before the error
            # is raised.
            if doing.cancel():
                asyncio.run_coroutine_threadsafe(_ended(running), loop).result()
            raise

    def send(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        model: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> Turn:
        return self._do(
            lambda: self._home.send(
                session,
                text,
                source=source,
                agent=agent,
                model=model,
                dedup=dedup,
                workspace=workspace,
                wait=wait,
            )
        )

    def answer(
        self,
        approval: Approval,
        option: str,
        *,
        by: MessageSource,
        reason: str | None = None,
        arguments: Any = None,
        answer_id: str | None = None,
        wait: bool = True,
    ) -> Answer:
        return self._do(
            lambda: self._home.answer(
                approval,
                option,
                by=by,
                reason=reason,
                arguments=arguments,
                answer_id=answer_id,
                wait=wait,
            )
        )

    def approval(self, id: str) -> Approval:  # noqa: A002  # the field's name
        return self._do(lambda: self._home.approval(id))

    def approvals(self, for_: str | None = None) -> tuple[Approval, ...]:
        return self._do(lambda: self._home.approvals(for_))

    def follow(self, session: str, after: int | None = None) -> Generator[Followed, None, None]:
        """Yield until the home is closed; leave the loop to stop."""
        return self._each(self._do(made_in_loop(lambda: self._home.follow(session, after))))

    def _each(self, followed: Follower[T]) -> Generator[T, None, None]:
        try:
            while True:
                try:
                    found = self._do(followed.__anext__)
                except StopAsyncIteration:
                    return
                yield found
        finally:
            with suppress(Unusable):  # the home was closed before, which ended the follower
                self._do(followed.aclose)

    def cancel(
        self, session: str, *, by: MessageSource, turn: str | None = None
    ) -> tuple[Turn, ...]:
        return self._do(lambda: self._home.cancel(session, by=by, turn=turn))

    def resume(self, session: str | None = None, *, model: str | None = None) -> tuple[Turn, ...]:
        return self._do(lambda: self._home.resume(session, model=model))

    def remind(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource,
        at: str | datetime | None = None,
        every: str | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        may_prompt: bool = False,
        agent: str | None = None,
        model: str | None = None,
        workspace: str | PathLike[str] | None = None,
    ) -> Reminder:
        return self._do(
            lambda: self._home.remind(
                session,
                text,
                source=source,
                at=at,
                every=every,
                cron=cron,
                time_zone=time_zone,
                may_prompt=may_prompt,
                agent=agent,
                model=model,
                workspace=workspace,
            )
        )

    def reminders(self) -> tuple[Reminder, ...]:
        return self._do(self._home.reminders)

    def cancel_reminder(self, reminder: str, *, by: MessageSource) -> Reminder:
        return self._do(lambda: self._home.cancel_reminder(reminder, by=by))

    def grants(self) -> tuple[Grant, ...]:
        return self._do(self._home.grants)

    def revoke(self, grant: str, *, by: MessageSource) -> None:
        self._do(lambda: self._home.revoke(grant, by=by))

    def jobs(
        self, session: str | None = None, *, by: MessageSource, everything: bool = False
    ) -> tuple[Job, ...]:
        return self._do(lambda: self._home.jobs(session, by=by, everything=everything))

    def job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        return self._do(lambda: self._home.job(id, by=by))

    def cancel_job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        return self._do(lambda: self._home.cancel_job(id, by=by))

    def session(self, session: str) -> Session:
        return self._do(lambda: self._home.session(session))

    @contextmanager
    def turn(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> Generator["BlockingTurn", None, None]:
        """A turn driven by your own loop."""
        with self._own_loop(
            self._home.turn(
                session,
                text,
                source=source,
                agent=agent,
                dedup=dedup,
                workspace=workspace,
                wait=wait,
            )
        ) as turn:
            yield turn

    @contextmanager
    def take_up(
        self, session: str, turn: str, *, wait: bool = True
    ) -> Generator["BlockingTurn", None, None]:
        """Take up an open turn of your own loop."""
        with self._own_loop(self._home.take_up(session, turn, wait=wait)) as taken:
            yield taken

    def begin(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> "BlockingTurn":
        begun = self._do(
            lambda: self._home.begin(
                session,
                text,
                source=source,
                agent=agent,
                dedup=dedup,
                workspace=workspace,
                wait=wait,
            )
        )
        return BlockingTurn(begun, self._do)

    def answered(self) -> Generator[OpenLoop, None, None]:
        """Yield turns that can go on until the home is closed; leave the loop to stop."""
        return self._each(self._do(made_in_loop(self._home.answered)))

    def calls(self, session: str, turn: str | None = None) -> tuple[CallReport, ...]:
        return self._do(lambda: self._home.calls(session, turn))

    def sessions(self) -> tuple[SessionLine, ...]:
        return self._do(self._home.sessions)

    def know(self, *tools: Any, agent: str | None = None) -> None:
        self._do(made_in_loop(lambda: self._home.know(*tools, agent=agent)))

    def items(self, session: str, *, adapter: str) -> "BlockingItems":
        kept = self._do(made_in_loop(lambda: self._home.items(session, adapter=adapter)))
        return BlockingItems(kept, self._do)

    @contextmanager
    def _own_loop(
        self, begun: AbstractAsyncContextManager[ExternalTurn]
    ) -> Generator["BlockingTurn", None, None]:
        turn = self._do(begun.__aenter__)
        try:
            yield BlockingTurn(turn, self._do)
        except BaseException as exc:
            error = exc  # Python deletes `exc` at the end of the clause
            self._do(lambda: begun.__aexit__(type(error), error, error.__traceback__))
            raise
        self._do(lambda: begun.__aexit__(None, None, None))


async def _ended(running: list[asyncio.Task[Any] | None]) -> None:
    for task in running:
        if task is not None:
            await asyncio.wait([task])
