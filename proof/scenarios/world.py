"""
Steps around a turn: answers and cancellations by people, changes of time, settings and the world,
and crashes.
"""

from typing import Any

import msgspec

from holdfast.ids import ApprovalId, TurnId
from holdfast.session.authority.context import Audience
from holdfast.session.authority.plan import Level
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.commands import Cancel, Expire, Recover
from holdfast.session.recovery import CASES
from holdfast.session.results import Answered
from proof.scenarios.steps_reading import BOUNDS, rule_of, span_ms
from proof.scenarios.telling import Telling


class WorldSteps(Telling):
    # --- people

    def step_show(self, approval: str) -> None:
        """Show the prompt as a person sees it."""
        where = self.pure.state.approvals[ApprovalId(self._words.real(approval))]
        call = self.pure.state.open_call(where[0], where[1])
        if call is not None and call.approval is not None:
            asked = call.approval.asked
            self._said.extend(
                f"  {line}"
                for line in (
                    *asked.display.split("\n"),
                    "options: " + " ".join(each.option for each in asked.options),
                )
            )

    def step_answer(
        self,
        approval: str,
        option: str,
        by: str = "alice",
        id: str = "",  # noqa: A002
        **more: str,
    ) -> None:  # the name that people use
        before = len(self.pure.records)
        if id:
            more["answer_id"] = id
        committed = self.pure.answer(ApprovalId(self._words.real(approval)), option, by, **more)
        self._say_events(before)
        decided = committed.decided[-1]
        if decided.refusal is not None:
            self._said.append(f"refused: {decided.refusal.code}")
        elif isinstance(decided.outcome, Answered):
            again = "again, " if decided.outcome.again else ""
            self._said.append(f"{again}deferred" if decided.outcome.waiting else f"{again}goes on")

    def step_revoke(self, grant: str) -> None:
        del self.pure.grants[grant]

    def step_cancel(self, by: str = "alice", turn: str = "", all: str = "no") -> None:  # noqa: A002  # the word people use
        self._do(Cancel(by=by, turn=TurnId(turn) if turn else None, may_all=all == "yes"))

    # --- time, settings, the world

    def step_wait(self, span: str) -> None:
        self.pure.now += span_ms(span)

    def step_clock_back(self, span: str) -> None:
        self.pure.now -= span_ms(span)

    def step_expire(self) -> None:
        self._do(Expire())

    def step_policy(self, **settings: str) -> None:
        """
        `policy personal.delete=deny`, `=ask:bob,carol`, `=ask:bob:only` (the requester may not),
        `=ask:` (nobody); `prompts=1`.
        """
        rules: dict[Audience, dict[str, Rule]] = {
            audience: dict(of) for audience, of in self.pure.policy.rules.items()
        }
        more: dict[str, Any] = {}
        for name, value in settings.items():
            audience, dot, tool = name.partition(".")
            if dot:
                rules.setdefault(Audience(audience), {})[tool] = rule_of(value)
            else:
                more[BOUNDS[name]] = int(value)
        self.pure.policy = msgspec.structs.replace(self.pure.policy, rules=rules, **more)

    def step_policy_reset(self) -> None:
        self.pure.policy = Policy()

    def step_world(
        self,
        identity: str = "",
        level: Level | None = None,
        lacks: str = "",
        changes: str = "",
        grants: str = "",
    ) -> None:
        """
        `identity=` another folder, `level=limited`, `lacks=delete` removes a tool, `changes=delete`
        changes its definition, `grants=lost` makes the home's journal unwritable.
        """
        pure = self.pure
        pure.identity = identity or pure.identity
        pure.level = level or pure.level
        pure.keeps_grants = grants != "lost" if grants else pure.keeps_grants
        if lacks:
            del pure.tools[lacks]
        if changes:
            pure.tools[changes] = msgspec.structs.replace(pure.tools[changes], code="another")

    # --- crashes

    def step_crash(self, losing: str = "0") -> None:
        """`losing=2`: the last two records were not durable yet."""
        self.pure.crash(len(self.pure.records) - int(losing))

    def step_recover(self) -> None:
        before = len(self.pure.records)
        recover = Recover(epoch=self.pure.epoch)
        for turn, letter in self.pure.do(recover).of(recover):
            self._said.append(
                f"{turn} is case {letter}: "
                f"{next(case.sentence for case in CASES if case.letter == letter)}"
            )
        self._say_events(before)

    def step_owes(self) -> None:
        self._said.append(f"owes={self._words.owes(self.pure.state)}")
