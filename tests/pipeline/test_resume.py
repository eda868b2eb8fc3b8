"""What resuming does with a call, by the last event that a killed process left of it."""

import asyncio
from typing import Any

import msgspec
import pytest
from opentelemetry.trace import NoOpTracerProvider

from interlock import (
    Answer,
    BatchResult,
    CallbackInteractionProvider,
    Decision,
    FailSafeConfig,
    HeadlessInteractionProvider,
    Limits,
    MemoryArtifacts,
    MemoryLog,
    Observation,
    PolicyEngine,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolDefinition,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import CallProposed, Fact, PolicyEvaluated, decode_event
from interlock.telemetry.otel import OtelTelemetry
from tests.patience import eventually
from tests.pipeline.batch.stage import Stage
from tests.support import call, facts

RUN = "run"
STARTED, COMPLETED, PERMISSION = "tool.invocation.started", "tool.invocation.completed", "tool.permission"
CALL = call("c1", "work", name="a")


def policy(verdict: str) -> RulePolicy:
    return RulePolicy([Rule(id="all", verdict=verdict, tools="*")])


class Jobs:
    """A tool that notes what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tool(self, **options: Any) -> ToolDefinition:
        async def work(name: str) -> str:
            self.done.append(name)
            return f"did {name}"

        declared: dict[str, Any] = {"risk": "write", **options}
        return tool(work, **declared)


def runtime_on(log: MemoryLog, tools: list[ToolDefinition], **options: Any) -> ToolRuntime:
    declared: dict[str, Any] = {"policy": policy("allow"), **options}
    return ToolRuntime(tools=tools, log=log, run_id=RUN, **declared)


async def killed_after(kind: str, tools: list[ToolDefinition], *intents: Any, **options: Any) -> MemoryLog:
    """The log of a run whose process died right after the last event of this type."""
    log = MemoryLog()
    async with runtime_on(log, tools, **options) as runtime:
        await runtime.execute(list(intents) or [CALL])
    return await cut_after(kind, log)


async def cut_after(kind: str, log: MemoryLog) -> MemoryLog:
    entries, kept = await log.read(RUN), MemoryLog()
    last = max(place for place, entry in enumerate(entries) if decode_event(entry).type == kind)
    kept.append(RUN, entries[: last + 1])
    return kept


async def resume(log: MemoryLog, tools: list[ToolDefinition], **options: Any) -> tuple[BatchResult, list[Fact]]:
    async with runtime_on(log, tools, **options) as runtime:
        result = await runtime.resume()
        assert (await runtime.verify()).ok
        return result, await facts(runtime)


def only(result: BatchResult) -> Observation:
    (observation,) = result.observations
    return observation


def decisions(recorded: list[Fact]) -> int:
    return sum(isinstance(fact, PolicyEvaluated) for fact in recorded)


def repeats(recorded: list[Fact]) -> int:
    return sum(isinstance(fact, CallProposed) and fact.duplicate for fact in recorded)


class TestStarted:
    async def test_a_read_runs_again(self) -> None:
        jobs = Jobs()
        reads = [jobs.tool(risk="read")]
        seen = only((await resume(await killed_after(STARTED, reads), reads))[0])

        assert (seen.ok, jobs.done) == (True, ["a", "a"])

    @pytest.mark.requirement("D15")
    async def test_an_idempotent_call_runs_again_without_its_approval(self) -> None:
        jobs = Jobs()
        tools = [jobs.tool(idempotent=True)]
        yes = CallbackInteractionProvider(lambda question: True)
        seen = only((await resume(await killed_after(STARTED, tools, policy=policy("ask"), interaction=yes), tools))[0])

        assert (seen.ok, jobs.done) == (True, ["a", "a"])

    async def test_without_its_tool_the_outcome_stays_unknown(self) -> None:
        seen = only((await resume(await killed_after(STARTED, [Jobs().tool()]), []))[0])

        assert seen.code == "outcome_unknown"
        assert "the tool is not available now" in seen.summary

    async def test_what_the_tool_says_was_done_is_reported_as_done(self) -> None:
        def was_done(arguments: dict[str, Any]) -> bool:
            return arguments == {"name": "a"}

        jobs = Jobs()
        tools = [jobs.tool(reconcile=was_done)]
        seen = only((await resume(await killed_after(STARTED, tools), tools))[0])

        assert (seen.call_id, seen.tool, seen.ok, seen.side_effects) == ("c1", "work", True, "unknown")
        assert seen.summary == "work had been done before the run stopped; its output was not recorded."
        assert jobs.done == ["a"]

    async def test_an_edit_of_another_call_does_not_matter(self) -> None:
        def edit(question: Question) -> Answer:
            is_first = question.arguments["name"] == "a"
            return Answer(approved=True, arguments={"name": "edited"} if is_first else None)

        jobs = Jobs()
        tools = [jobs.tool(idempotent=True)]
        interaction = CallbackInteractionProvider(edit)
        calls = [CALL, call("c2", "work", name="b")]
        log = await killed_after(STARTED, tools, *calls, policy=policy("ask"), interaction=interaction)
        result, _ = await resume(log, tools)

        assert jobs.done == ["edited", "b", "b"]
        assert [seen.ok for seen in result.observations] == [True]

    async def test_an_approval_for_the_run_does_not_repeat_it(self) -> None:
        jobs, asked = Jobs(), list[Question]()
        grant = CallbackInteractionProvider(lambda question: Answer(approved=True, scope="run"))
        calls = [call("c1", "work", name="a"), call("c2", "work", name="a")]
        log = await killed_after(
            STARTED, [jobs.tool()], *calls, policy=policy("ask"), interaction=grant, fail_safe=_ASKS
        )

        def note(question: Question) -> bool:
            asked.append(question)
            return False

        interaction = CallbackInteractionProvider(note)
        result, _ = await resume(log, [jobs.tool()], policy=policy("ask"), interaction=interaction, fail_safe=_ASKS)

        assert [question.call_id for question in asked] == ["c2"]
        assert (only(result).code, jobs.done) == ("outcome_unknown", ["a", "a"])

    async def test_the_question_has_the_policy_and_its_paths(self) -> None:
        class Says(PolicyEngine):
            digest = "sha256:one"

            def evaluate(self, event: PolicyEvent) -> Decision:
                return Decision(verdict=Verdict.ALLOW, reason="", policy_digest=self.digest, paths=("notes.txt",))

        log = await killed_after(STARTED, [Jobs().tool()])
        _, recorded = await resume(log, [Jobs().tool()], policy=Says(), fail_safe=_ASKS, interaction=_WAITS)

        decision = [fact.decision for fact in recorded if isinstance(fact, PolicyEvaluated)][-1]
        assert decision.rule_ids == ("interlock:unknown-outcome",)
        assert (decision.policy_digest, decision.paths) == ("sha256:one", ("notes.txt",))

    async def test_a_policy_that_denies_it_now_ends_the_question(self) -> None:
        jobs = Jobs()
        tools = [jobs.tool()]
        log = await killed_after(STARTED, tools)
        async with runtime_on(log, tools, fail_safe=_ASKS, interaction=_WAITS) as runtime:
            assert len((await runtime.resume()).questions) == 1

        async with runtime_on(log, tools, fail_safe=_ASKS, policy=policy("deny")) as runtime:
            seen = only(await runtime.resume())
            assert await runtime.state() is RunState.RUNNING
        assert (seen.code, jobs.done) == ("outcome_unknown", ["a"])
        assert "and policy does not let it run again" in seen.summary

    async def test_an_edited_repeat_needs_another_person(self) -> None:
        jobs, limits = Jobs(), Limits(four_eyes="high_risk")
        tools = [jobs.tool()]
        log = await killed_after(STARTED, tools)
        async with runtime_on(log, tools, fail_safe=_ASKS, interaction=_WAITS, limits=limits) as runtime:
            (question,) = (await runtime.resume()).questions
            await runtime.decide(question.action_id, approved=True, arguments={"name": "b"}, by="ada")
            (again,) = (await runtime.resume()).questions

        assert (again.edited_by, again.arguments, jobs.done) == ("ada", {"name": "b"}, ["a"])


_ASKS = FailSafeConfig(unknown_outcome_policy="ask")
_WAITS = HeadlessInteractionProvider("wait")


class TestEnded:
    async def test_what_was_done_is_reported_as_done(self) -> None:
        jobs = Jobs()
        seen = only((await resume(await killed_after(COMPLETED, [jobs.tool()]), [jobs.tool()]))[0])

        assert (seen.call_id, seen.tool, seen.ok, jobs.done) == ("c1", "work", True, ["a"])
        assert seen.summary == "work had been done before the run stopped; its output was not recorded."

    async def test_what_failed_has_an_unknown_outcome(self) -> None:
        def work(name: str) -> str:
            jobs.done.append(name)
            raise ValueError(name)

        jobs, tools = Jobs(), [tool(work, risk="read")]
        seen = only((await resume(await killed_after(COMPLETED, tools), tools))[0])

        assert (seen.code, jobs.done) == ("outcome_unknown", ["a"])
        assert "ended, and the run stopped before its result was recorded" in seen.summary

    async def test_another_call_that_was_done_says_nothing_about_it(self) -> None:
        stage, measured, log = Stage(), Measured(), MemoryLog()
        tools = [tool(each, risk="write", concurrency="safe") for each in (stage.play, stage.act)]
        calls = [call("c1", "play", name="a"), call("c2", "act", name="b")]
        async with runtime_on(log, tools, telemetry=measured) as runtime:
            running = asyncio.create_task(runtime.execute(calls))
            await stage.started("a")
            await eventually(lambda: measured.calls == [("act", "success", "execute")])
            running.cancel()
            await asyncio.wait([running])

        assert only((await resume(log, tools))[0]).code == "outcome_unknown"


class TestRefused:
    async def test_a_denied_call_stays_denied(self) -> None:
        jobs = Jobs()
        log = await killed_after(PERMISSION, [jobs.tool()], policy=policy("deny"))
        seen = only((await resume(log, [jobs.tool()]))[0])

        assert (seen.code, seen.summary) == ("policy_denied", "work was refused before. Nothing was executed.")
        assert jobs.done == []

    async def test_without_its_tool_it_says_so(self) -> None:
        log = await killed_after(PERMISSION, [Jobs().tool()], policy=policy("deny"))

        assert only((await resume(log, []))[0]).code == "unknown_tool"


class TestPermitted:
    async def test_the_same_decision_is_not_recorded_again(self) -> None:
        jobs = Jobs()
        log = await killed_after(PERMISSION, [jobs.tool()])
        result, recorded = await resume(log, [jobs.tool()])

        assert (only(result).ok, decisions(recorded), repeats(recorded)) == (True, 1, 1)

    async def test_another_decision_is_recorded_and_counts(self) -> None:
        jobs = Jobs()
        log = await killed_after(PERMISSION, [jobs.tool()])
        result, recorded = await resume(log, [jobs.tool()], policy=policy("deny"))

        assert (only(result).code, decisions(recorded), jobs.done) == ("policy_denied", 2, ["a"])

    async def test_another_reason_is_recorded_as_well(self) -> None:
        jobs = Jobs()
        log = await killed_after(PERMISSION, [jobs.tool()])
        other = RulePolicy([Rule(id="other", verdict="allow")])
        result, recorded = await resume(log, [jobs.tool()], policy=other)

        assert (only(result).ok, decisions(recorded)) == (True, 2)

    async def test_an_older_question_does_not_permit_it(self) -> None:
        """It was asked about, then allowed; now the policy asks as it did at first."""
        jobs, log = Jobs(), MemoryLog()
        tools = [jobs.tool()]
        for verdict in ("ask", "allow"):
            async with runtime_on(log, tools, policy=policy(verdict), interaction=_WAITS) as runtime:
                await (runtime.execute([CALL]) if verdict == "ask" else runtime.resume())
        result, _ = await resume(await cut_after(PERMISSION, log), tools, policy=policy("ask"), interaction=_WAITS)

        assert ([question.call_id for question in result.questions], jobs.done) == (["c1"], ["a"])

    async def test_without_its_tool_it_is_refused(self) -> None:
        log = await killed_after(PERMISSION, [Jobs().tool()])

        assert only((await resume(log, []))[0]).code == "unknown_tool"

    async def test_a_check_runs_again(self) -> None:
        def check(arguments: dict[str, Any], context: Any) -> str | None:
            return "no more" if jobs.done else None

        jobs = Jobs()
        tools = [jobs.tool(check=check)]
        log = await killed_after(PERMISSION, tools)

        assert only((await resume(log, tools))[0]).code == "runtime_precondition_failed"
        assert jobs.done == ["a"]


class TestObserved:
    @pytest.mark.parametrize(("name", "result"), [("a", "success"), ("", "error")])
    async def test_a_repeat_is_measured_as_a_replay(self, name: str, result: str) -> None:
        def work(name: str) -> str:
            if not name:
                raise ValueError("no name")
            return name

        measured = Measured()
        async with ToolRuntime(tools=[work], policy=policy("allow"), telemetry=measured) as runtime:
            first, second = [await runtime.execute([call("c1", "work", name=name)]) for _ in range(2)]
            recorded = await facts(runtime)

        assert first.observations == second.observations
        assert measured.calls == [("work", result, "execute"), ("work", result, "replay")]
        assert repeats(recorded) == 1

    async def test_a_repeat_of_what_never_started_is_not_measured(self) -> None:
        measured = Measured()
        async with ToolRuntime(tools=[], telemetry=measured) as runtime:
            for _ in range(2):
                await runtime.execute([CALL])

        assert measured.calls == []


class Measured(OtelTelemetry):
    """Telemetry that notes calls."""

    def __init__(self) -> None:
        super().__init__(tracer_provider=NoOpTracerProvider())
        self.calls: list[tuple[str, str, str]] = []

    def call_finished(self, tool_name: str, result: str, source: str, latency_ms: float) -> None:
        assert latency_ms >= 0
        self.calls.append((tool_name, result, source))


class TestLostArguments:
    """A secret is not written down, so a call that had one in its arguments cannot be resumed."""

    secret = "hunter2-0b71f-swordfish"

    async def killed(self, kind: str, **options: Any) -> MemoryLog:
        return await killed_after(
            kind, [Jobs().tool()], call("c1", "work", name=self.secret), secrets={"key": self.secret}, **options
        )

    async def resumed(self, log: MemoryLog, **options: Any) -> Observation:
        return only((await resume(log, [Jobs().tool()], secrets={"key": self.secret}, **options))[0])

    @pytest.mark.parametrize("kind", [STARTED, COMPLETED])
    async def test_after_its_start_the_outcome_is_unknown(self, kind: str) -> None:
        seen = await self.resumed(await self.killed(kind))

        assert seen.code == "outcome_unknown"
        assert "its arguments are not in the log as the model wrote them" in seen.summary

    async def test_before_its_start_it_is_refused(self) -> None:
        seen = await self.resumed(await self.killed("tool.intent"))

        assert (seen.code, seen.side_effects) == ("payload_changed", ())

    async def test_an_open_question_is_refused_as_well(self) -> None:
        log = await self.killed("approval.requested", policy=policy("ask"), interaction=_WAITS)

        assert (await self.resumed(log)).code == "payload_changed"

    async def test_a_rejection_stays_a_rejection(self) -> None:
        reject = CallbackInteractionProvider(lambda question: Answer(approved=False, reason="too late"))
        log = await self.killed("approval.rejected", policy=policy("ask"), interaction=reject)
        seen = await self.resumed(log)

        assert seen.code == "user_denied"
        assert "too late" in seen.summary

    async def test_the_model_itself_can_send_it_again(self) -> None:
        jobs, sent = Jobs(), call("c1", "work", name=self.secret)
        options: dict[str, Any] = {"policy": policy("ask"), "interaction": _WAITS, "secrets": {"key": self.secret}}
        async with runtime_on(MemoryLog(), [jobs.tool()], **options) as runtime:
            (question,) = (await runtime.execute([sent])).questions
            await runtime.decide(question.action_id, approved=True, by="ada")
            assert only(await runtime.execute([sent])).ok

        assert jobs.done == [self.secret]


async def test_a_waiting_call_keeps_its_rules_and_risk() -> None:
    options: dict[str, Any] = {"policy": policy("ask"), "interaction": _WAITS}
    log = await killed_after("run.paused", [Jobs().tool()], **options)
    (waiting,) = (await resume(log, [Jobs().tool()], **options))[0].waiting

    assert waiting.question is not None
    assert (waiting.decision.rule_ids, waiting.decision.risk) == (("all",), waiting.question.risk)


async def test_the_reason_of_the_model_is_recorded_again() -> None:
    log = await killed_after("tool.intent", [Jobs().tool()], msgspec.structs.replace(CALL, reason="To be sure."))
    _, recorded = await resume(log, [Jobs().tool()])

    assert [fact.reason for fact in recorded if isinstance(fact, CallProposed)] == ["To be sure."] * 2


async def test_arguments_in_a_lost_artifact_are_refused() -> None:
    jobs = Jobs()
    large = call("c1", "work", name="a" * 100_000)
    log = await killed_after("tool.intent", [jobs.tool()], large, artifacts=MemoryArtifacts())
    seen = only((await resume(log, [jobs.tool()], artifacts=MemoryArtifacts()))[0])

    assert seen.code == "payload_changed"
    assert len(jobs.done) == 1


async def test_edited_arguments_of_a_tool_that_is_gone_are_refused() -> None:
    edit = CallbackInteractionProvider(lambda question: Answer(approved=True, arguments={"name": "b"}))
    jobs = Jobs()
    log = await killed_after("approval.granted", [jobs.tool()], policy=policy("ask"), interaction=edit)

    assert only((await resume(log, []))[0]).code == "unknown_tool"
    assert jobs.done == ["b"]
