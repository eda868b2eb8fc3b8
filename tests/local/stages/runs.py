"""Whole runs with the real local tools, for all tests here: the folder, the runtime, and what the log has of it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from interlock import (
    Answer,
    BatchResult,
    CommandLimits,
    HeadlessInteractionProvider,
    LocalTools,
    Observation,
    Question,
    ToolRuntime,
)
from interlock.domain.event import (
    CallObserved,
    Fact,
    InvocationCompleted,
    InvocationStarted,
    PolicyEvaluated,
    WarningRaised,
)
from tests.patience import HANG_SECONDS
from tests.pipeline.batch.stage import others_ran
from tests.support import call, facts

#: Nothing here takes long; what does has a bug.
PATIENCE = HANG_SECONDS
OPEN = HeadlessInteractionProvider("wait")
QUICK = CommandLimits(grace_seconds=0.1)

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Fact)
Calls = tuple[str, Mapping[str, object]]


class LocalRun:
    """`await run.do("bash", command="ls")`; call ids are c1, c2, ..."""

    def __init__(self, root: Path, box: LocalTools, runtime: ToolRuntime, first_call: int = 1) -> None:
        self.root = root
        self.box = box
        self.runtime = runtime
        self._ids = count(first_call)

    async def do(self, tool_name: str, /, **arguments: object) -> Observation:
        [observation] = (await self.propose((tool_name, arguments))).observations
        return observation

    async def propose(self, *calls: Calls) -> BatchResult:
        """All calls of one model turn."""
        intents = [call(f"c{next(self._ids)}", name, **arguments) for name, arguments in calls]
        return await asyncio.wait_for(self.runtime.execute(intents), PATIENCE)

    async def bash(self, command: str, **arguments: object) -> Observation:
        return await self.do("bash", command=command, **arguments)

    async def text_of_artifact(self, artifact_id: str, **arguments: object) -> str:
        return text_of(await self.do("read_artifact", artifact_id=artifact_id, **arguments)).partition("\n")[2]

    async def facts(self, kind: type[_F], call_id: str = "") -> list[_F]:
        """What the log has of this kind, of one call or of all."""
        found = [fact for fact in await facts(self.runtime) if isinstance(fact, kind)]
        return [fact for fact in found if not call_id or _call_of(fact) == call_id]

    async def started(self, call_id: str) -> InvocationStarted:
        [fact] = await self.facts(InvocationStarted, call_id)
        return fact

    async def begins(self, call_id: str) -> None:
        """A call that only reads is in the log with the next commit, which this asks for."""
        async with asyncio.timeout(PATIENCE):
            while not await self.facts(InvocationStarted, call_id):
                await others_ran()

    async def completed(self, call_id: str) -> InvocationCompleted:
        [fact] = await self.facts(InvocationCompleted, call_id)
        return fact

    async def judged(self, call_id: str) -> PolicyEvaluated:
        return (await self.facts(PolicyEvaluated, call_id))[-1]

    async def warnings(self, call_id: str) -> list[str]:
        return [fact.message for fact in await self.facts(WarningRaised, call_id)]


def _call_of(fact: Fact) -> str:
    return fact.observation.call_id if isinstance(fact, CallObserved) else str(getattr(fact, "call_id", ""))


@asynccontextmanager
async def local_run(
    root: Path, *, box: Mapping[str, Any] | None = None, first_call: int = 1, **options: Any
) -> AsyncGenerator[LocalRun]:
    """A trusted run, unless told otherwise: what is not refused runs. `box` has options of `LocalTools`."""
    of_box: dict[str, Any] = {"limits": QUICK, **(box or {})}
    local = LocalTools(root, **of_box)
    given: dict[str, Any] = {"mode": "trusted", **options}
    async with ToolRuntime(tools=local, **given) as runtime:
        yield LocalRun(root, local, runtime, first_call)


class Person:
    """Says yes, unless told otherwise, and remembers what they were asked."""

    approval_timeout_s: float | None = 5.0
    approval_fallback: Any = "deny"
    interactive = True

    def __init__(self, approves: bool = True) -> None:
        self.asked: list[Question] = []
        self._approves = approves

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question)
        return Answer(approved=self._approves, by="ada")


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content is not None else ""


def message_of(result: BatchResult, call_id: str = "") -> str:
    """What the model reads of the only call, or of this one, in full."""
    wanted = call_id or result.observations[0].call_id
    return next(str(message["content"]) for message in result.messages if message["tool_call_id"] == wanted)


async def soon(work: Any) -> Any:
    return await asyncio.wait_for(work, PATIENCE)
