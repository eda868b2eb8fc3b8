"""What holds for every batch, whatever its calls need, how they end and who answers."""

import asyncio
import re
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import (
    AgentExecutionError,
    Answer,
    BatchResult,
    CallbackInteractionProvider,
    Decision,
    FailSafeConfig,
    PolicyEvent,
    Question,
    RunState,
    ToolDefinition,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import InvocationCompleted, InvocationStarted
from tests.pipeline.batch.stage import PATIENCE, others_ran, walk
from tests.support import call, facts

Outcome = Literal["ok", "raise", "hang", "deny", "yes", "no", "open"]
CODES = {
    "ok": "ok",
    "raise": "tool_failed",
    "hang": "timed_out",
    "deny": "policy_denied",
    "yes": "ok",
    "no": "user_denied",
}
#: The facts about a call. That it was proposed again is left out, and a call that waits stops before its start; one
#: that stayed behind a waiting call is validated and judged again when its turn comes.
LIFECYCLE = re.compile(
    r"tool\.intent (tool\.validation tool\.permission )+"
    r"(approval\.requested (approval\.(granted|rejected|voided) )?)?"
    r"(tool\.invocation\.started tool\.invocation\.completed )?"
    r"(tool\.observation )?"
)


class Spec(msgspec.Struct, frozen=True):
    """A call to come: what it needs to itself, how it ends, and after how many turns of the loop."""

    concurrency: Literal["safe", "keyed", "exclusive"]
    reads: frozenset[str]
    writes: frozenset[str]
    outcome: Outcome
    turns: int

    def conflicts(self, other: "Spec") -> bool:
        if "exclusive" in (self.concurrency, other.concurrency):
            return True
        if "safe" in (self.concurrency, other.concurrency):
            return False
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


KEYS = st.frozensets(st.sampled_from("pq"), max_size=2)
OUTCOMES: list[Outcome] = ["ok", "ok", "raise", "hang", "deny", "yes", "no", "open"]


def specs(outcomes: list[Outcome]) -> st.SearchStrategy[list[Spec]]:
    classes = st.sampled_from(["safe", "keyed", "keyed", "exclusive"])
    return st.lists(st.builds(Spec, classes, KEYS, KEYS, st.sampled_from(outcomes), st.integers(0, 4)), max_size=7)


class World:
    """Where the calls run; it notices what must never happen."""

    def __init__(self, batch: list[Spec], cap: int, fail_safe: FailSafeConfig | None = None) -> None:
        self.batch = batch
        self.running: set[int] = set()
        self.most_running = 0
        self.overlaps: list[tuple[int, int]] = []
        self.starts: list[int] = []
        self.runtime = ToolRuntime(
            tools=[self._declare(number) for number in range(len(batch))],
            policy=self,
            interaction=CallbackInteractionProvider(self._answer),
            max_concurrency=cap,
            fail_safe=fail_safe or FailSafeConfig(),
        )

    def evaluate(self, event: PolicyEvent) -> Decision:
        match self.batch[int(event.tool_name[1:])].outcome:
            case "deny":
                return Decision(verdict=Verdict.DENY, reason="No.")
            case "yes" | "no" | "open":
                return Decision(verdict=Verdict.ASK, reason="Somebody must say.")
            case _:
                return Decision(verdict=Verdict.ALLOW, reason="Fine.")

    async def _answer(self, question: Question) -> Answer | None:
        spec = self.batch[int(question.tool_name[1:])]
        await others_ran(spec.turns)
        return None if spec.outcome == "open" else Answer(approved=spec.outcome == "yes")

    def _declare(self, number: int) -> ToolDefinition:
        spec = self.batch[number]
        keys: dict[str, Any] = {}
        if spec.concurrency == "keyed":
            keys = {"read_keys": lambda arguments: spec.reads, "write_keys": lambda arguments: spec.writes}  # pyright: ignore[reportUnknownLambdaType]

        async def handler() -> str:
            self._enter(number)
            try:
                await self._play(spec)
            finally:
                self.running.discard(number)
            return f"{number} done"

        return tool(
            handler,
            name=f"t{number}",
            concurrency=spec.concurrency,
            timeout_seconds=0.005 if spec.outcome == "hang" else 60,
            **keys,
        )

    def _enter(self, number: int) -> None:
        spec = self.batch[number]
        self.overlaps += [(other, number) for other in self.running if spec.conflicts(self.batch[other])]
        self.running.add(number)
        self.most_running = max(self.most_running, len(self.running))
        self.starts.append(number)

    async def _play(self, spec: Spec) -> None:
        await others_ran(spec.turns)
        if spec.outcome == "raise":
            raise ValueError("asked to")
        if spec.outcome == "hang":
            await asyncio.Event().wait()

    def must_wait(self) -> set[int]:
        """Open questions, and whoever has to stay behind one."""
        waiting: set[int] = set()
        for number, spec in enumerate(self.batch):
            behind = any(spec.conflicts(self.batch[other]) for other in waiting)
            if spec.outcome == "open" or (behind and spec.outcome not in ("deny", "no")):
                waiting.add(number)
        return waiting

    def check_handlers(self, cap: int) -> None:
        assert self.most_running <= cap
        assert self.overlaps == []
        assert len(set(self.starts)) == len(self.starts)

    def check_order_of_starts(self) -> None:
        """Conflicting calls start in model order."""
        pairs = [(one, two) for place, one in enumerate(self.starts) for two in self.starts[place + 1 :]]
        assert not [pair for pair in pairs if pair[0] > pair[1] and self.batch[pair[0]].conflicts(self.batch[pair[1]])]

    async def check_log(self) -> None:
        audit = await self.runtime.verify()
        assert audit.ok, audit.flaw
        for number in range(len(self.batch)):
            first, *later = await walk(self.runtime, f"c{number}")
            steps = "".join(f"{step} " for step in [first, *(step for step in later if step != "tool.intent")])
            assert LIFECYCLE.fullmatch(steps), steps

    async def check_explanations(self) -> None:
        """From the log alone: conflicting calls never overlap, and a call waits only for earlier ones in its way."""
        running: set[int] = set()
        for fact in await facts(self.runtime):
            if isinstance(fact, InvocationStarted):
                number = int(fact.call_id[1:])
                spec = self.batch[number]
                assert [other for other in running if spec.conflicts(self.batch[other])] == []
                waited_for = [int(other[1:]) for other in fact.waited_for if other != "cap"]
                assert all(other < number and spec.conflicts(self.batch[other]) for other in waited_for)
                running.add(number)
            elif isinstance(fact, InvocationCompleted):
                running.remove(int(fact.call_id[1:]))
        assert running == set()


def outcomes(result: BatchResult) -> list[tuple[str, str]]:
    return [(observation.call_id, observation.code) for observation in result.observations]


THOROUGH = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.requirement("R084", "R086", "R097", "R098", "R099", "R106", "R121", "R227")
@THOROUGH
@given(batch=specs(OUTCOMES), cap=st.integers(1, 4), repeats=st.lists(st.integers(0, 6), max_size=2), answers=st.data())
def test_every_batch_keeps_the_rules(batch: list[Spec], cap: int, repeats: list[int], answers: st.DataObject) -> None:
    asyncio.run(check_batch(batch, cap, [number for number in repeats if number < len(batch)], answers))


async def check_batch(batch: list[Spec], cap: int, repeats: list[int], answers: st.DataObject) -> None:
    world = World(batch, cap)
    numbers = [*range(len(batch)), *repeats]

    async with asyncio.timeout(PATIENCE):
        result = await world.runtime.execute([call(f"c{number}", f"t{number}") for number in numbers])

    waiting = world.must_wait()
    done = [number for number in numbers if number not in waiting]
    assert outcomes(result) == [(f"c{number}", CODES[batch[number].outcome]) for number in done]
    assert {waits.valid.call_id for waits in result.waiting} == {f"c{number}" for number in waiting}
    assert result.state is (RunState.PAUSED_APPROVAL if waiting else RunState.RUNNING)
    world.check_handlers(cap)
    world.check_order_of_starts()
    await world.check_log()

    said = {question.call_id: answers.draw(st.booleans()) for question in result.questions}
    for question in result.questions:
        await world.runtime.decide(question.action_id, approved=said[question.call_id])
    async with asyncio.timeout(PATIENCE):
        resumed = await world.runtime.resume()

    expected = {f"c{number}": CODES.get(batch[number].outcome, "") for number in sorted(waiting)}
    expected |= {call_id: "ok" if approved else "user_denied" for call_id, approved in said.items()}
    assert outcomes(resumed) == list(expected.items())
    assert resumed.state is RunState.RUNNING
    world.check_handlers(cap)
    world.check_order_of_starts()
    await world.check_log()
    await world.check_explanations()
    assert len(await world.runtime.tool_executions()) == len(batch)


@pytest.mark.requirement("R102", "R123")
@THOROUGH
@given(
    batch=specs(["ok", "ok", "raise", "hang", "deny", "yes", "no"]),
    cap=st.integers(1, 4),
    failure=st.sampled_from(["continue", "degrade", "fail"]),
    denial=st.sampled_from(["continue", "degrade", "fail"]),
)
def test_every_batch_that_may_end_the_run_gives_every_call_one_outcome(
    batch: list[Spec], cap: int, failure: Any, denial: Any
) -> None:
    fail_safe = FailSafeConfig(tool_failure_policy=failure, approval_denial_policy=denial)
    asyncio.run(check_ending(batch, cap, fail_safe))


async def check_ending(batch: list[Spec], cap: int, fail_safe: FailSafeConfig) -> None:
    world = World(batch, cap, fail_safe)

    async with asyncio.timeout(PATIENCE):
        try:
            observations = (
                await world.runtime.execute([call(f"c{n}", f"t{n}") for n in range(len(batch))])
            ).observations
        except AgentExecutionError as failed:
            observations = failed.observations

    assert [observation.call_id for observation in observations] == [f"c{number}" for number in range(len(batch))]
    codes = [observation.code for observation in observations]
    assert all(
        code in (CODES[spec.outcome], "skipped", "cancelled") for spec, code in zip(batch, codes, strict=True)
    ), codes
    policies = {
        fail_safe.approval_denial_policy if spec.outcome in ("deny", "no") else fail_safe.tool_failure_policy
        for spec, code in zip(batch, codes, strict=True)
        if code == CODES[spec.outcome] != "ok"
    }
    state = await world.runtime.state()
    assert (state is RunState.RUNNING) == (policies <= {"continue"})
    assert state in (RunState.RUNNING, *(_STATES[policy] for policy in policies))
    assert len(await world.runtime.tool_executions()) == len(batch)
    world.check_handlers(cap)
    await world.check_log()


_STATES = {"continue": RunState.RUNNING, "degrade": RunState.DEGRADED, "fail": RunState.FAILED}
