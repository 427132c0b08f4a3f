"""`holdfast approvals answer`: record a person's answer and drive the turn on."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.output.exit_codes import EXIT_OF_OUTCOME, exit_code_of
from holdfast.cli.output.result import error_fields, is_sealed
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import acting_as, id_argument, json_object
from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import driving_service, home_of, run
from holdfast.errors import HoldfastError, Unusable
from holdfast.session.authority.approvals import KEYS

if TYPE_CHECKING:
    from holdfast.runtime.reports.types import AnswerReport
    from holdfast.runtime.service import Service

_EXIT_OF_RESULT = {"handed_on": 0, "deferred": 3}
_OPTION_OF_KEY = {key: option for option, key in KEYS.items()}


def register(approvals: typer.Typer) -> None:
    @command(
        approvals,
        "answer",
        example="holdfast approvals answer a-7kq2c5x3jz4mw6n8p9r0s1t2vb approve_once",
    )
    def answer(
        ctx: typer.Context,
        approval: Annotated[
            str,
            id_argument("prompt", completing.approvals),
        ],
        option: Annotated[
            str,
            typer.Argument(
                metavar="OPTION",
                help="An option that the prompt offers, by its name or its key: 1 to 5, d to deny.",
                autocompletion=completing.options,
            ),
        ],
        as_: Annotated[str | None, acting_as("Answer as this person")] = None,
        reason: Annotated[
            str | None,
            typer.Option(
                "--reason",
                metavar="R",
                help="Why; the model gets it. For a question: your answer.",
            ),
        ] = None,
        arguments: Annotated[
            str | None,
            typer.Option(
                "--arguments", metavar="JSON", help="With edit: the new arguments, whole."
            ),
        ] = None,
        digest: Annotated[
            str | None,
            typer.Option(
                "--digest", metavar="D", help="Refuse if the prompt's digest is another than this."
            ),
        ] = None,
        answer_id: Annotated[
            str | None,
            typer.Option(
                "--answer-id", metavar="A", help="The same id and answer again is the same answer."
            ),
        ] = None,
        no_wait: Annotated[
            bool,
            typer.Option(
                "--no-wait", help="Return at once; the server or `holdfast resume` runs it."
            ),
        ] = False,
    ) -> None:
        """
        Answer one prompt, and drive its turn on.

        Exits as `send` does; 6 when the answer is refused (the prompt then stands as it was), 3
        when other prompts of the turn still wait.
        """
        options = options_of(ctx)
        refuse_blank(answer_id=answer_id)
        run(
            lambda: _answer(
                options,
                approval,
                option,
                as_,
                reason,
                arguments,
                digest,
                answer_id,
                wait=not no_wait,
            )
        )


async def _answer(
    options: Options,
    approval: str,
    option: str,
    asserted: str | None,
    reason: str | None,
    arguments: str | None,
    digest: str | None,
    answer_id: str | None,
    *,
    wait: bool,
) -> int:
    from holdfast.cli.commands.approvals.list_show import unknown
    from holdfast.cli.output.turn_output import tell_doubts, waits_shown
    from holdfast.cli.shared.consent import way_of_answer
    from holdfast.cli.shared.id_prefix import whole_approval
    from holdfast.cli.shared.identity import refuse_tools, who
    from holdfast.ids import ApprovalId

    options.speaks_as = asserted
    edited = json_object(arguments, name="--arguments")
    async with driving_service(options) as service:
        try:
            refuse_tools("answering")
            me = who(home_of(options), asserted)
            if service is None:
                raise unknown(approval)
            approval = await whole_approval(service, approval)
            session = await service.live.known_session_of(ApprovalId(approval))
            async with waits_shown(options, service, session):
                report = await service.answer(
                    ApprovalId(approval),
                    _OPTION_OF_KEY.get(option, option),
                    by=me.person,
                    digest=digest,
                    reason=reason,
                    arguments=edited,
                    answer_id=answer_id,
                    asserted_by=me.asserted_by,
                    way=way_of_answer(),
                    wait=wait,
                )
        except Unusable:
            raise
        except HoldfastError as exc:
            return await _failed(options, service, approval, exc)
        await tell_doubts(options, service, report.turn)
    return _print_result(options, report)


def _print_result(options: Options, report: "AnswerReport") -> int:
    from holdfast.cli.output.prompt_text import turn_text
    from holdfast.cli.output.turn_output import fields_of

    code = _exit_code(report)
    if options.out.json:
        options.out.object(
            {**fields_of(report.turn), "result": report.result, "reason": report.reason}
        )
        return code
    if code == 0 and report.result == "handed_on":
        options.out.text(_handed_on(options, report))
        return code
    if report.result == "deferred":
        options.out.note(
            "Your answer is saved. Nothing runs before the other prompts are answered."
        )
    options.out.text(turn_text(options, report.turn))
    if report.turn.error is not None:
        options.out.print_error(report.turn.error.message, report.turn.error.hint)
    return code


def _handed_on(options: Options, report: "AnswerReport") -> str:
    """Say that the answer is saved, and which process goes on with the turn."""
    from holdfast.cli.shared.gateway_client import served

    error = report.turn.error
    if error is None:
        return "Your answer is saved. Another process goes on with it."
    address = served(options)  # it may lack the same as this process
    there = f", such as the server at {address} if nothing is missing there"
    such_as = "" if address is None else there
    why = f"{error.message} ({error.hint})" if error.hint else error.message
    return f"Your answer is saved. It runs when another process goes on{such_as}; {why}."


def _exit_code(report: "AnswerReport") -> int:
    """
    Return success for an answer that was recorded and handed on. Return 4 or 5 if a seal, the disk
    or a takeover stopped the turn after the answer was recorded.
    """
    turn = report.turn
    if (
        turn.error is not None
        and turn.outcome in {"running", "waiting", "sealed"}
        and turn.error.code != "cannot_drive"
    ):
        return 4 if turn.outcome == "sealed" else 5
    return _EXIT_OF_RESULT.get(report.result, EXIT_OF_OUTCOME[turn.outcome])


async def _failed(
    options: Options, service: "Service | None", approval: str, error: HoldfastError
) -> int:
    """Report a refused answer: its reason, and the turn's present state."""
    if options.out.json:
        fields = await _standing(service, approval, error)
        options.out.failure(
            {**fields, "error": error_fields(error), "result": "failed", "reason": error.code}
        )
    else:
        options.out.error(error)
    return exit_code_of(error)


async def _standing(
    service: "Service | None", approval: str, error: HoldfastError
) -> dict[str, Any]:
    from holdfast.cli.output.turn_output import fields_of, no_turn
    from holdfast.ids import ApprovalId

    unknown = no_turn(None, "sealed" if is_sealed(error) else "failed")
    if service is None:
        return unknown
    if is_sealed(error):
        return {**unknown, "session": await service.live.known_session_of(ApprovalId(approval))}
    try:
        asked = await service.approval(ApprovalId(approval))
        return fields_of(await service.turn(asked.session, asked.turn))
    except HoldfastError:
        return unknown
