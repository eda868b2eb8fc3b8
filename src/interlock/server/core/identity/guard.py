"""Whether somebody may do something to a run or a question: found and allowed, or refused and written down.

What they may not see is not there for them. What they see and may not do is refused, and the journal says who tried.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ....domain.call import Question
from ..audit.audit_log import Journal
from ..errors import RefusedError, unknown
from ..index.index import Index
from ..index.rows import ActionRow, RunRow
from .permissions import AboutRun, FourEyes, Operation, four_eyes, may
from .principal import Principal
from .refusals import Refusals


class Guard:
    def __init__(self, index: Index, journal: Journal, four_eyes: FourEyes) -> None:
        self._index = index
        self._journal = journal
        self._refusals = Refusals(journal)
        self.four_eyes: FourEyes = four_eyes

    async def check(self, who: Principal, operation: Operation, about: AboutRun | None = None, name: str = "") -> None:
        """`RefusedError` unless they may."""
        if not may(who, operation, about):
            await self._refusals.note(who.name, operation.value, name)
            roles = f"the role {', '.join(sorted(who.roles))}" if who.roles else "no role"
            about_agent = f" of the agent {about.agent}" if about is not None else ""
            raise RefusedError(
                "not_allowed",
                f"{who.name} has {roles} and may not do this ({operation.value}{about_agent}). Nothing was done.",
                {"operation": operation.value, "by": who.name},
            )

    async def done(self, who: Principal, operation: Operation, name: str, detail: Mapping[str, str]) -> None:
        """Something that no log of a run tells as a whole."""
        await self._journal.add(who.name, operation.value, name, detail=detail)

    async def run(self, who: Principal, run_id: str, operation: Operation = Operation.READ_RUN) -> RunRow:
        row = await self._index.run(run_id)
        if row is None or not may(who, Operation.READ_RUN, row):
            raise unknown("run", run_id)
        if operation is not Operation.READ_RUN:
            await self.check(who, operation, row, run_id)
        return row

    async def action(
        self, who: Principal, action_id: str, operation: Operation = Operation.READ_QUESTION
    ) -> tuple[ActionRow, RunRow]:
        """The question, and the run that it is about."""
        action = await self._index.action(action_id)
        run = None if action is None else await self._index.run(action.run_id)
        if action is None or run is None or not may(who, Operation.READ_RUN, run):
            raise unknown("action", action_id)
        if operation is not Operation.READ_QUESTION or not may(who, operation, run):
            await self.check(who, operation, run, action_id)
        return action, run

    async def second_person(
        self, who: Principal, question: Question, about: AboutRun, risk: Collection[str] = ()
    ) -> None:
        """Raise `RefusedError` where another person has to decide, as the log says and not a list.

        Args:
            risk: What a rule that is to be kept with the answer could allow beyond the call itself.
        """
        all_risk, setting, editor = {*question.risk, *risk}, self.four_eyes, question.edited_by
        why = four_eyes(who, all_risk, question.layer, about, setting, edited_by=editor)
        if why:
            await self._refusals.note(who.name, "decision.four_eyes", question.action_id)
            details = {"requester": about.requester, "created_by": about.created_by}
            raise RefusedError("four_eyes", why, {**details, "edited_by": editor} if editor else details)

    async def refuse(
        self, who: Principal, operation: Operation, name: str, code: str, message: str, **details: Any
    ) -> RefusedError:
        """Write a refusal down, and return it to be raised."""
        await self._refusals.note(who.name, operation.value, name)
        return RefusedError(code, message, {"operation": operation.value, "by": who.name, **details})
