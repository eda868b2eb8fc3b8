"""Random interleavings of people and processes around one question, in one process and on a clock of its own.

People approve, reject and cancel, the question expires, another runner takes the run over, and the one that has it
stops as if it was killed. Whatever the order: nothing is lost, nothing happens twice, and everybody is told the truth.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from random import Random

from interlock import Answer, Clock, Inbox, MemoryLog, Rule, RulePolicy, Runner, tool
from interlock.domain.errors import DecisionConflictError, LogError, RunEndedError
from interlock.domain.event import TERMINAL_EVENTS, ApprovalExpired, ApprovalGranted, ApprovalRejected
from tests.patience import HANG_SECONDS

from .support import agent_of, calls, facts

RUN = "run"
WITHIN_SECONDS = 100
ASK = Rule(id="ask", verdict="ask", tools="change", answer_within_seconds=WITHIN_SECONDS)


class _Step:
    """Lets everything else go one step further."""

    def __await__(self) -> Generator[None]:
        yield


class Scene:
    """One run that asks one question, and what everybody was told about it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = MemoryLog()
        self.now = 1_700_000_000_000_000_000
        self.effects = 0
        self.answers: dict[str, str] = {}
        self.runners: list[Runner] = []

    def runner(self) -> Runner:
        @tool(risk="write")
        async def change() -> str:
            self.effects += 1
            await _Step()
            return "changed"

        agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change], policy=RulePolicy([ASK]))
        self.runners.append(runner := Runner(agent, log=self.log, clock=Clock(now=lambda: self.now)))
        return runner

    async def play(self) -> None:
        await (await self.runner().start("Do it.", run_id=RUN)).result()
        async with Inbox(self.log, app=self.runners[0].app) as inbox:
            (question,) = await inbox.pending()
            self.action_id = question.action_id
            actors = [self.approve, self.approve, self.reject, self.cancel, self.expire, self.take_over, self.kill]
            chosen = self.random.sample(actors, self.random.randint(2, len(actors)))
            await asyncio.gather(*(self.act(actor, number) for number, actor in enumerate(chosen)))
        await self.finish()
        for runner in self.runners:
            await runner.close()
        await self.check()

    async def act(self, actor: Callable[[str], Awaitable[None]], number: int) -> None:
        for _ in range(self.random.randint(0, 60)):
            await _Step()
        await actor(f"p{number}")

    async def approve(self, name: str) -> None:
        await self.answer(name, approved=True)

    async def reject(self, name: str) -> None:
        await self.answer(name, approved=False)

    async def answer(self, name: str, *, approved: bool) -> None:
        async with Inbox(self.log, app=self.random.choice(self.runners).app) as inbox:
            try:
                delivery = await inbox.deliver(RUN, self.action_id, Answer(approved=approved, by=name))
                self.answers[name] = name if delivery == "recorded" else "queued"
            except DecisionConflictError as conflict:
                self.answers[name] = conflict.by or "no one"
            except RunEndedError:
                self.answers[name] = "over"

    async def cancel(self, name: str) -> None:
        async with Inbox(self.log, app=self.random.choice(self.runners).app) as inbox:
            try:
                await inbox.cancel(RUN, by=name)
            except (RunEndedError, DecisionConflictError):
                return

    async def expire(self, name: str) -> None:
        self.now += (WITHIN_SECONDS + 1) * 1_000_000_000
        await self.take_over(name)

    async def take_over(self, name: str) -> None:
        try:
            await (await self.runner().open(RUN, force=True)).result()
        except (LogError, RunEndedError):  # it was taken over in turn, or was over
            return

    async def kill(self, name: str) -> None:
        for runner in list(self.runners):
            for handle in runner.list_live_handles():
                await handle.stop()

    async def finish(self) -> None:
        """Let the run go on, as a process that starts later would, until it is over or waits."""
        for _ in range(3):
            for handle in await self.runner().recover():
                await handle.result()

    async def check(self) -> None:
        recorded = await facts(self.log, RUN)
        answers = [fact for fact in recorded if isinstance(fact, ApprovalGranted | ApprovalRejected | ApprovalExpired)]
        assert len(answers) <= 1
        approved = any(isinstance(fact, ApprovalGranted) for fact in answers)
        assert self.effects <= approved, "it ran twice, or without an approval"
        first = answers[0].answer.by if answers else "no one"
        assert sum(isinstance(fact, TERMINAL_EVENTS) for fact in recorded) <= 1
        ended = any(isinstance(fact, TERMINAL_EVENTS) for fact in recorded)
        for name, told in self.answers.items():
            if told == "queued":  # it counts, unless the run was cancelled before
                assert first == name or (ended and not answers)
                continue
            assert told in (first, "over", "no one"), f"{name} was told {told}, and the log has {first}"
            assert told != name or name == first, f"{name} was told that the answer counts"
        assert await self.log.queued_commands(RUN) == []


def play(seed: int) -> None:
    asyncio.run(asyncio.wait_for(Scene(seed).play(), HANG_SECONDS))
