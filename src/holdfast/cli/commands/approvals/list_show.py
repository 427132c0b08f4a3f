"""`holdfast approvals list | show`: the open prompts, in full."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.approvals import answer
from holdfast.cli.output.busy_output import busy_fields, tell_busy
from holdfast.cli.output.call_text import in_brief
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import id_argument
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import looking_service, run
from holdfast.errors import Refused
from holdfast.state_words import answer_words, state_words

if TYPE_CHECKING:
    from holdfast.runtime.reports.types import ApprovalReport


def register(app: typer.Typer) -> None:
    approvals = group(
        "approvals",
        "Calls that wait for an answer: list, show or answer them.",
        example="holdfast approvals list\nholdfast approvals answer a-7kq2 approve_once",
    )
    app.add_typer(approvals)

    @command(
        approvals, "list", example="holdfast approvals list\nholdfast --json approvals list --all"
    )
    def list_(
        ctx: typer.Context,
        everything: Annotated[
            bool, typer.Option("--all", help="Also those that were answered or closed.")
        ] = False,
        for_: Annotated[
            str | None,
            typer.Option("--for", metavar="WHO", help="Only what this person may answer."),
        ] = None,
    ) -> None:
        """List the prompts that wait for an answer, in every session."""
        options = options_of(ctx)
        run(lambda: _list(options, for_, everything=everything))

    @command(approvals, "show", example="holdfast approvals show a-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def show(
        ctx: typer.Context,
        approval: Annotated[
            str,
            id_argument("prompt", completing.approvals),
        ],
    ) -> None:
        """
        Show one prompt, exactly as it was shown: what would run, for whom, and what each option
        covers.
        """
        options = options_of(ctx)
        run(lambda: _show(options, approval))

    answer.register(approvals)


async def _list(options: Options, for_: str | None, *, everything: bool) -> int:
    async with looking_service(options) as service:
        patience = service.patience() if service is not None else None
        if service is not None and options.out.json and for_ is None and not everything:
            options.out.object(
                {
                    "approvals": await service.approvals_json(patience=patience),
                    **busy_fields(patience),
                }
            )
            return 0
        found = (
            await service.approvals(for_=for_, everything=everything, patience=patience)
            if service is not None
            else ()
        )
    if options.out.json:
        options.out.object({"approvals": found, **busy_fields(patience)})
    elif not found:
        options.out.text(
            "nothing waits for an answer" if not everything else "nothing was ever asked"
        )
    else:
        options.out.table(
            ("ID", "SESSION", "TOOL", "STATE", "MAY ANSWER", "EXPIRES", "WHAT"),
            [_row(each) for each in found],
        )
    tell_busy(options, patience)
    return 0


def _row(approval: "ApprovalReport") -> tuple[str, ...]:
    if approval.closed_as:
        state = state_words().calls.get(approval.closed_as, approval.closed_as)
    elif approval.answered_by:
        state = answer_words(approval.answered_by, approval.option)
    else:
        state = "waits"
    return (
        approval.id,
        approval.session,
        approval.tool,
        state,
        ", ".join(approval.may_answer),
        approval.expires_at[:16],
        in_brief(approval.arguments)[:60],
    )


async def _show(options: Options, approval: str) -> int:
    from holdfast.cli.output.prompt_text import approval_text
    from holdfast.cli.shared.id_prefix import whole_approval
    from holdfast.ids import ApprovalId

    async with looking_service(options) as service:
        if service is None:
            raise unknown(approval)
        found = await service.approval(ApprovalId(await whole_approval(service, approval)))
    options.out.result(found, approval_text(options, found))
    return 0


def unknown(approval: str) -> Refused:
    return Refused(
        f"no approval {approval}",
        code="unknown",
        hint="`holdfast approvals list` shows the prompts that wait",
    )
