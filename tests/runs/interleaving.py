"""Random interleavings of people and processes around one question, in one process and on a clock of its own.

People approve, reject and cancel, the question expires, another runner takes the run over, and the one that has it
stops as if it was killed. Whatever the order: nothing is lost, nothing happens twice, and everybody is told the truth.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from interlock import Answer, Clock, Inbox, MemoryLog, Rule, RulePolicy, Runner, tool
from interlock.domain.errors import DecisionConflictError, LogError, LogFencedError, RunEndedError
from interlock.domain.event import TERMINAL_EVENTS, ApprovalExpired, ApprovalGranted, ApprovalRejected, LogEntry
from interlock.storage.event_log import Lease, QueuedCommand
from tests.patience import HANG_SECONDS

from .support import agent_of, calls, facts

T = TypeVar("T")

RUN = "run"
WITHIN_SECONDS = 100
ASK = Rule(id="ask", verdict="ask", tools="change", answer_within_seconds=WITHIN_SECONDS)


class _Step:
    """Lets everything else go one step further."""

    def __await__(self) -> Generator[None]:
        yield


class QueuedLog(MemoryLog):
    """A log that writes in order, some steps later, as one with a thread does. A lease can begin and end with an
    append.
    """

    immediate = False

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()

    def append(  # pyright: ignore[reportIncompatibleMethodOverride] - it is not done when it returns
        self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None
    ) -> "asyncio.Future[None]":
        return self._write(lambda: MemoryLog.append(self, run_id, entries, lease))

    def append_and_acquire(self, run_id: str, entries: Sequence[LogEntry]) -> "asyncio.Future[Lease]":
        def write() -> Lease:
            if run_id in self._runs:
                raise LogFencedError("it has events")
            MemoryLog.append(self, run_id, entries)
            return _finish(MemoryLog.acquire(self, run_id))

        return self._write(write)

    def append_and_release(self, run_id: str, entries: Sequence[LogEntry], lease: Lease) -> "asyncio.Future[bool]":
        def write() -> bool:
            MemoryLog.append(self, run_id, entries, lease)
            return _finish(MemoryLog.release(self, lease))

        return self._write(write)

    async def acquire(self, run_id: str, *, force: bool = False) -> Lease:
        made: list[Lease] = []

        def write() -> Lease:
            made.append(_finish(MemoryLog.acquire(self, run_id, force=force)))
            return made[0]

        try:
            return await asyncio.shield(self._write(write))
        except asyncio.CancelledError:  # it is acquired all the same, and would never be released
            self._write(lambda: [_finish(MemoryLog.release(self, lease)) for lease in made])
            raise

    async def release(self, lease: Lease) -> bool:
        return await asyncio.shield(self._write(lambda: _finish(MemoryLog.release(self, lease))))

    async def enqueue(self, run_id: str, command: QueuedCommand) -> bool:
        return await asyncio.shield(self._write(lambda: _finish(MemoryLog.enqueue(self, run_id, command))))

    async def ack(self, run_id: str, key: str) -> None:
        return await asyncio.shield(self._write(lambda: _finish(MemoryLog.ack(self, run_id, key))))

    def _write(self, write: Callable[[], Any]) -> "asyncio.Future[Any]":
        self._queue.append((write, future := asyncio.get_running_loop().create_future()))
        if len(self._queue) == 1:
            self._after_steps(self._write_next)
        return future

    def _write_next(self) -> None:
        write, future = self._queue[0]
        try:
            answer = write()
        except LogError as error:
            self._after_steps(partial(self._deliver, future.set_exception, future, error))
        else:
            self._after_steps(partial(self._deliver, future.set_result, future, answer))

    def _deliver(self, set_: Callable[[Any], None], future: "asyncio.Future[Any]", answer: object) -> None:
        if not future.done():
            set_(answer)
        self._queue.popleft()
        if self._queue:
            self._after_steps(self._write_next)

    def _after_steps(self, then: Callable[[], None], count: int = -1) -> None:
        count = self._random.randint(0, 3) if count < 0 else count
        loop = asyncio.get_running_loop()
        loop.call_soon(partial(self._after_steps, then, count - 1) if count else then)


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Scene:
    """One run that asks one question, and what everybody was told about it."""

    def __init__(self, seed: int, *, queued: bool = False) -> None:
        self.random = Random(seed)
        self.queued = queued
        self.log = QueuedLog(self.random) if queued else MemoryLog()
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
        handle = await self.runner().start("Do it.", run_id=RUN)
        await handle.result()
        async with Inbox(self.log, app=self.runners[0].app) as inbox:
            (question,) = await inbox.pending()
            self.action_id = question.action_id
            actors = [self.approve, self.approve, self.reject, self.cancel, self.expire, self.take_over]
            actors += [] if self.queued else [self.kill]  # one that is killed in a release may leave a command behind
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
            is_cancelled = self.queued and ended and not answers  # before the answer that was named was recorded
            assert is_cancelled or told in (first, "over", "no one"), f"{name} was told {told}, and the log has {first}"
            assert told != name or name == first, f"{name} was told that the answer counts"
        assert await self.log.queued_commands(RUN) == []


def play(seed: int, *, queued: bool = False) -> None:
    asyncio.run(asyncio.wait_for(Scene(seed, queued=queued).play(), HANG_SECONDS))
