"""One conversation in the terminal: the person's lines, the session's news and its prompts."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.cli.output.call_text import prompts_in_brief
from holdfast.cli.output.usage_text import usage_text
from holdfast.cli.shared.consent import way_of_answer
from holdfast.cli.shared.identity import Who

if TYPE_CHECKING:
    from holdfast.cli.commands.chat.keyboard import Keyboard
    from holdfast.ids import TurnId
    from holdfast.runtime.reports.types import ApprovalReport, TurnReport
    from holdfast.runtime.service import Service
    from holdfast.session.authority.context import MessageSource, Workspace


_RECALLED = 40  # earlier records that are shown on entering


_HELP = """\
/prompts  show again what waits for you, and what waits for other people
/cancel   stop everything that is open here
/help     this text
/quit     leave, like Ctrl-D; what waits keeps waiting
A space before a slash sends the text as a message."""


class Chat:
    """One terminal in one session."""

    def __init__(
        self,
        service: "Service",
        keyboard: "Keyboard",
        person: Who,
        session: str,
        *,
        agent: str | None,
        model: str | None,
        workspace: "Workspace | None",
        here: "Workspace",
    ) -> None:
        from holdfast.cli.commands.chat.news import News
        from holdfast.cli.commands.chat.screen import Screen

        self._service = service
        self._keyboard = keyboard
        self._who = person
        self._session = session
        self._agent, self._model = agent, model
        self._workspace, self._here = workspace, here
        self._screen = Screen()
        self._news = News(self._screen, person.person)
        self._postponed: set[str] = set()  # open prompts that the person chose to answer later
        self._shown: str | None = None  # the prompt on the screen that waits for an answer
        self._cancels = 0  # how often Ctrl-C was pressed during this work
        self._follower: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._shown_seq = 0  # the last record on the screen
        self._showed_more = asyncio.Event()
        # A job has reported. This process must drive its turn, because no other process is known to
        # stay.
        self._is_owed = False

    async def talk(self) -> None:
        from holdfast.cli.commands.chat.keyboard import Left

        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await self._enter()
                    while True:
                        await self._once()
                except Left:
                    self._leave()
                finally:
                    if self._follower is not None:
                        self._follower.cancel()
        except BaseExceptionGroup as errors:
            raise _innermost(errors) from None

    # --- enter and leave

    async def _enter(self) -> None:
        self._screen.say(
            f"{self._session}, as {self._who.person}. /help for more, Ctrl-D to leave.", "bold"
        )
        if await self._service.live.current(self._name) is None:
            return
        await self._recall()
        self._follow()
        await self._do(self._service.resume(self._session, by=self._who.person, model=self._model))
        from holdfast.cli.commands.chat.prompts import show_standing

        for approval in await self._open_prompts():
            show_standing(self._screen, approval, self._who.person)

    @property
    def _name(self) -> Any:
        from holdfast.ids import session_id

        return session_id(self._session)

    async def _recall(self) -> None:
        """Show the last records, closed prompts included."""
        async with self._service.live.use(self._name) as ledger:
            recent, self._shown_seq = list(ledger.recent)[-_RECALLED:], ledger.state.seq
        self._news.names_agents = True
        for record in recent:
            self._news.record(record)
        self._news.names_agents = False

    def _follow(self) -> None:
        if self._follower is None and self._group is not None:
            self._follower = self._group.create_task(self._tell())

    async def _tell(self) -> None:
        from holdfast.runtime.streams.feed import Delta, Gap
        from holdfast.session.events import (
            ApprovalAnswered,
            ApprovalClosed,
            ApprovalRequested,
            InputAccepted,
        )

        async for each in self._service.follow(self._session, after=self._shown_seq):
            if isinstance(each, Delta | Gap):
                self._news.piece(each)
                continue
            event = self._news.record(each)
            self._shown_seq = each.seq
            self._showed_more.set()
            match event:
                case ApprovalRequested(may_answer=may_answer) if (
                    self._shown is None and self._who.person in may_answer
                ):
                    self._keyboard.interrupt()
                case ApprovalAnswered(approval=approval) | ApprovalClosed(approval=approval) if (
                    approval == self._shown
                ):
                    self._keyboard.interrupt()
                case InputAccepted(kind="job"):
                    self._is_owed = True
                    if (
                        self._shown is None
                    ):  # do not disturb a person who is answering; the turn is driven afterwards
                        self._keyboard.interrupt()
                case _:
                    pass

    def _leave(self) -> None:
        self._screen.say(
            f"Left. `holdfast chat {self._session}` comes back; nothing that waits is lost.", "dim"
        )

    # --- one round

    async def _once(self) -> None:
        from holdfast.cli.commands.chat.keyboard import Interrupted, Stopped

        self._keyboard.look_afresh()
        if self._is_owed:
            self._is_owed = False
            await self._drive_on()
        waiting = [
            each
            for each in await self._open_prompts()
            if self._who.person in each.may_answer and each.id not in self._postponed
        ]
        try:
            if waiting:
                await self._ask(waiting[0])
            else:
                await self._hear()
        except Interrupted:
            await self._drive_on()
        except Stopped:
            if waiting:
                self._postponed.add(waiting[0].id)
                self._screen.say(
                    "The prompt stays open. /prompts shows it again, /cancel stops the turn.", "dim"
                )
            else:
                self._screen.say("Ctrl-D leaves.", "dim")

    async def _open_prompts(self) -> "list[ApprovalReport]":
        from holdfast.runtime.reports.types import approval_report

        if self._follower is None:
            return []
        async with self._service.live.use(self._name) as ledger:
            if ledger.journal.sealed is None:
                await ledger.catch_up()
            turns = tuple(ledger.state.turns.values())
            own = [
                approval_report(ledger.session, ledger.instance, turn, call.approval)
                for turn in turns
                for call in turn.waiting
                if call.approval is not None
            ]
            return [
                *own,
                *[each for turn in turns for each in await self._service.live.prompts_below(turn)],
            ]

    async def _name_prompts_of_others(self) -> None:
        from holdfast.cli.commands.chat.prompts import show_prompts_of_others

        show_prompts_of_others(self._screen, await self._open_prompts(), self._who.person)

    async def _hear(self) -> None:
        line = await self._keyboard.read_message("you> ")
        text = line.strip()
        if not text:
            return
        match text:
            case "/quit":
                from holdfast.cli.commands.chat.keyboard import Left

                raise Left
            case "/help":
                self._screen.say(_HELP)
            case "/prompts":
                self._postponed.clear()  # the next round asks again
                await self._name_prompts_of_others()
            case "/cancel":
                await self._cancel()
            case _ if text.startswith("/") and not line.startswith(" "):
                self._screen.say(
                    f"{text.split()[0]} is not a command. /help lists them. A space before it "
                    "sends it as a message.",
                    "yellow",
                )
            case _:
                await self._send(text)

    async def _send(self, text: str) -> None:
        from holdfast.runtime.verbs.accept import Incoming
        from holdfast.session.authority.context import MessageSource

        source = MessageSource.local(self._who.person, asserted_by=self._who.asserted_by)
        if not await self._may_supersede(source, text):
            return
        if self._follower is None:
            await self._service.create(self._session, by=self._who.person)
            self._follow()
        self._news.own.append(text)
        report = await self._do(
            self._service.send(
                self._session,
                Incoming(
                    text=text,
                    source=source,
                    agent=self._agent,
                    model=self._model,
                    workspace=self._workspace,
                    default_workspace=self._here,
                ),
            )
        )
        self._model = None  # given once; the session keeps it
        if report is not None:
            self._print_result(report)

    async def _may_supersede(self, source: "MessageSource", text: str) -> bool:
        """
        Ask a second time before a message closes a prompt that waits. An answer word closes
        nothing: the session refuses it with a hint.
        """
        from holdfast.cli.commands.chat.keyboard import Stopped
        from holdfast.session.decide.inputs import is_answer_word

        closes = await self._service.would_supersede(self._session, source=source)
        if not closes or is_answer_word(text):
            return True
        waits = await prompts_in_brief(self._service, closes)
        self._screen.say(
            f"This message would close what waits, and it would not run: {waits}.", "yellow"
        )
        self._screen.say("Type send to send it anyway. Enter keeps the prompt.", "yellow")
        try:
            typed = await self._keyboard.read_answer("send? ")
        except Stopped:
            typed = ""
        if typed.strip() == "send":
            return True
        self._screen.say("Not sent. /prompts shows what waits.", "dim")
        return False

    def _print_result(self, report: "TurnReport") -> None:
        """Report facts that are in no record: that no input was accepted, and the costs."""
        if report.error is not None and report.error.code == "answer_word":
            self._screen.say(f"{report.error.message} /prompts shows what waits.", "yellow")
        if (spent := usage_text(report.usage)) is not None:
            self._screen.say(f"- {spent}", "dim")

    # --- prompts

    async def _ask(self, approval: "ApprovalReport") -> None:
        from holdfast.cli.commands.chat import prompts as chat_prompts

        self._shown = approval.id
        try:
            chat_prompts.show_prompt(self._screen, approval)
            choice = await chat_prompts.ask(self._screen, self._keyboard, approval)
        finally:
            self._shown = None
        if choice.option == chat_prompts.LATER:
            self._postponed.add(approval.id)
        elif choice.option == chat_prompts.CANCEL:
            await self._cancel(approval.turn, session=approval.session)
        else:
            await self._answer(
                approval, choice.option, reason=choice.reason, arguments=choice.arguments
            )

    async def _answer(
        self, approval: "ApprovalReport", option: str, *, reason: str | None, arguments: Any
    ) -> None:
        person = self._who
        report = await self._do(
            self._service.answer(
                approval.id,
                option,
                by=person.person,
                digest=approval.digest,
                reason=reason,
                arguments=arguments,
                asserted_by=person.asserted_by,
                way=way_of_answer(),
            )
        )
        if report is None:
            await self._do(
                self._service.resume(self._session, by=person.person)
            )  # drive the work that the refusal left owed, and report what blocks it
        elif report.result == "deferred":
            self._screen.say("- Saved. Nothing runs before the other prompts are answered.", "dim")
        elif report.result == "handed_on":
            self._screen.say(
                "- Saved. It runs when a process that has the agent and the tools goes on.", "dim"
            )

    # --- work

    async def _drive_on(self) -> None:
        """
        Drive the session if it owes work and has no driver: somebody else answered or asked, or a
        job reported.
        """
        await self._do(self._service.drive_all(self._name))

    async def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """
        Await the work while Ctrl-C means cancel. A refusal is shown and the chat continues. An
        Untrusted error ends the chat.
        """
        from holdfast.errors import HoldfastError, Untrusted

        loop = asyncio.get_running_loop()
        self._cancels = 0
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        result, refused = None, None
        ticker = loop.create_task(self._tick())
        try:
            result = await work
        except Untrusted:
            raise
        except HoldfastError as exc:
            if exc.code == "sealed":
                raise
            refused = exc
        finally:
            ticker.cancel()
            loop.remove_signal_handler(signal.SIGINT)
        await self._heard_all()  # records appended before a refusal are shown before it
        if refused is not None:
            self._screen.say(
                refused.message + (f"\n  {refused.hint}" if refused.hint else ""),
                "yellow",
            )
        return result

    async def _tick(self) -> None:
        """Show each second that the model or a tool is at work."""
        while True:
            await asyncio.sleep(1)
            self._screen.tick()

    async def _heard_all(self) -> None:
        """Wait until the follower has shown every appended record."""
        if self._follower is None:
            return
        async with self._service.live.use(self._name) as ledger:
            head = ledger.state.seq
            ledger.wake_watchers()
            while self._shown_seq < head:
                self._showed_more.clear()
                await self._showed_more.wait()

    def _interrupted(self) -> None:
        self._cancels += 1
        if self._group is not None and self._cancels == 1:
            self._group.create_task(self._cancel_running())
        else:
            self._screen.say(
                "- cancelled already; a call that has started ends with its real outcome, or in "
                "doubt",
                "dim",
            )

    async def _cancel_running(self) -> None:
        """Cancel the running turn, or the next one. Leave turns that wait for an answer alone."""
        async with self._service.live.use(self._name) as ledger:
            state = ledger.state
            turn = state.running or (state.queued[0].turn if state.queued else None)
        if turn is not None:
            await self._cancel(turn)

    async def _cancel(self, turn: "TurnId | None" = None, *, session: str | None = None) -> None:
        """Cancel durably. Without a turn, cancel everything that is open."""
        from holdfast.errors import HoldfastError

        try:
            cancelled = self._follower is not None and await self._service.cancel(
                session or self._session, by=self._who.person, turn=turn, may_all=self._who.may_all
            )
        except HoldfastError as exc:
            self._screen.say(exc.message, "yellow")
        else:
            if not cancelled:
                self._screen.say("- nothing is open here", "dim")


def _innermost(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
