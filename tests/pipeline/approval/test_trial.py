"""A call that is tried first: a person approves what it does, and exactly that is applied."""

import asyncio
from typing import Any

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    Inbox,
    MemoryLog,
    Rule,
    RulePolicy,
    ToolContext,
    ToolDefinition,
    ToolRuntime,
    tool,
)
from interlock.domain.call import Question
from interlock.domain.event import CallTried, decode_event
from interlock.domain.payload import BindingChange
from interlock.domain.trial import AskTime, Trial, TriedChange
from tests.support import call

RUN = "run"
CALL = call("c1", "shell", command="make")


class Trials:
    """Tries calls of a tool that writes one file, and remembers what was applied."""

    def __init__(self, *, obstacle: str = "", effects: int = 1, error: Exception | None = None) -> None:
        self.obstacle, self.effects, self.error = obstacle, effects, error
        self.drift: list[tuple[BindingChange, ...]] = []
        self.tried = 0
        self.applied: list[str] = []
        self.discarded: list[str] = []
        self.under_way = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    def find_obstacle(self, arguments: dict[str, Any], situation: Any) -> str:
        return self.obstacle

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Trial:
        self.under_way.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.tried += 1
        changes = (TriedChange("a.txt", "modified", "+1 -1"),)[: self.effects]
        return Trial(
            digest=f"effect-{self.tried}", outcome="exit code 0", changes=changes, change_count=len(changes), diff="+x"
        )

    def find_drift(self, digest: str) -> tuple[BindingChange, ...]:
        return self.drift.pop(0) if self.drift else ()

    def was_applied(self, digest: str) -> bool | None:
        return digest in self.applied

    def discard(self, digest: str) -> None:
        self.discarded.append(digest)


def shell(trials: Trials) -> ToolDefinition:
    async def shell(context: ToolContext, command: str) -> str:
        """Run a command."""
        trials.applied.append(context.trial or f"ran {command}")
        return "done"

    return tool(shell, risk="execute", trial=trials)


class People:
    """Answer questions, and remember them."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []

    def provider(self) -> CallbackInteractionProvider:
        async def ask(question: Question) -> Answer:
            self.asked.append(question)
            return Answer(approved=self.answers.pop(0) if self.answers else True, by="ada")

        return CallbackInteractionProvider(ask)


async def run(trials: Trials, people: People, **options: Any) -> Any:
    async with ToolRuntime(tools=[shell(trials)], interaction=people.provider(), **options) as runtime:
        return (await runtime.execute([CALL])).observations[0]


async def test_a_person_approves_the_effect_and_it_is_applied() -> None:
    trials, people = Trials(), People()

    observation = await run(trials, people)

    [question] = people.asked
    assert question.trial is not None
    assert question.trial.changes == (TriedChange("a.txt", "modified", "+1 -1"),)
    assert question.bound.trial == "effect-1"
    assert not question.bound.surroundings.unnamed_code
    assert (observation.ok, trials.applied) == (True, ["effect-1"])


@pytest.mark.requirement("P27")
async def test_a_refusal_applies_nothing_and_discards_the_effect() -> None:
    trials, people = Trials(), People(False)

    observation = await run(trials, people)

    assert observation.code == "user_denied"
    assert (trials.applied, trials.discarded) == ([], ["effect-1"])


async def test_a_call_without_effect_asks_nobody() -> None:
    trials, people = Trials(effects=0), People()

    observation = await run(trials, people)

    assert (observation.ok, people.asked, trials.applied) == (True, [], ["effect-1"])


@pytest.mark.requirement("P27")
async def test_drift_tries_again_and_the_next_question_says_what_changed() -> None:
    trials, people = Trials(), People()
    changed = (BindingChange("file a.txt", "as it was tried", "changed"),)
    trials.drift = [changed]

    observation = await run(trials, people)

    assert [question.bound.trial for question in people.asked] == ["effect-1", "effect-2"]
    assert people.asked[1].changes == changed
    assert (observation.ok, trials.applied) == (True, ["effect-2"])


async def test_what_a_person_wrote_instead_runs_itself() -> None:
    trials = Trials()

    async def edit(question: Question) -> Answer:
        return Answer(approved=True, by="ada", arguments={"command": "other"})

    async with ToolRuntime(tools=[shell(trials)], interaction=CallbackInteractionProvider(edit)) as runtime:
        await runtime.execute([CALL])

    assert trials.applied == ["ran other"]


async def test_what_cannot_be_tried_is_asked_about_before_and_says_why() -> None:
    for trials in (Trials(obstacle="it needs the network"), Trials(error=OSError("no overlay"))):
        people = People()

        await run(trials, people)

        [question] = people.asked
        assert question.trial is None
        assert "It could not be tried first: " in question.reason
        assert trials.applied == ["ran make"]


@pytest.mark.parametrize("method", ["find_obstacle", "run", "find_drift", "discard"])
async def test_a_runner_that_fails_breaks_no_call(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, people = Trials(), People(method != "discard")

    def fail(*_: Any) -> Any:
        monkeypatch.setattr(trials, method, getattr(Trials(), method))
        raise OSError("broken")

    monkeypatch.setattr(trials, method, fail)

    observation = await run(trials, people)

    assert observation.code == ("user_denied" if method == "discard" else "ok")
    told = str(people.asked) if method != "discard" else "broken"
    assert "broken" in told


async def test_a_trial_of_another_type_is_asked_about_before(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, people = Trials(), People()

    async def say(*_: Any) -> str:
        return "done"

    monkeypatch.setattr(trials, "run", say)

    await run(trials, people)

    assert "It could not be tried first: TypeError: the trial returned str." in people.asked[0].reason


async def test_a_rule_asks_before_unless_it_says_after() -> None:
    cases: dict[AskTime, str] = {"before": "ran make", "after": "effect-1"}
    for ask, applied in cases.items():
        trials, people = Trials(), People()
        policy = RulePolicy([Rule(id="look", verdict="ask", tools="shell", ask=ask)])

        await run(trials, people, policy=policy)

        assert trials.applied == [applied]


def waits() -> HeadlessInteractionProvider:
    return HeadlessInteractionProvider(approval_fallback="wait")


async def test_an_open_question_is_answered_by_a_later_process() -> None:
    trials, log = Trials(), MemoryLog()
    options: dict[str, Any] = {"tools": [shell(trials)], "log": log, "run_id": RUN, "interaction": waits()}
    async with ToolRuntime(**options) as runtime:
        await runtime.execute([CALL])

    async with Inbox(log) as inbox:
        [question] = await inbox.pending()
        await inbox.approve(question, by="ada")
    async with ToolRuntime(**options) as runtime:
        [observation] = (await runtime.resume()).observations

    assert (observation.ok, trials.tried, trials.applied) == (True, 1, ["effect-1"])


async def test_calls_that_conflict_are_tried_one_after_another() -> None:
    trials = Trials()
    async with ToolRuntime(tools=[shell(trials)], interaction=waits()) as runtime:
        batch = await runtime.execute([call("c1", "shell", command="a"), call("c2", "shell", command="b")])

    assert [question.call_id for question in batch.questions] == ["c1"]
    assert trials.tried == 1


async def test_a_trial_can_be_cancelled() -> None:
    trials = Trials()
    trials.go_on.clear()
    async with ToolRuntime(tools=[shell(trials)], interaction=waits()) as runtime:
        running = asyncio.ensure_future(runtime.execute([CALL]))
        await trials.under_way.wait()
        runtime.cancel_call("c1")
        [observation] = (await running).observations

    assert observation.code == "cancelled_before_start"
    assert (trials.tried, trials.applied) == (0, [])


@pytest.mark.parametrize("applied", [True, False])
async def test_after_a_kill_the_store_knows_whether_it_was_applied(applied: bool) -> None:
    trials, people, log, left = Trials(), People(), MemoryLog(), MemoryLog()
    await run(trials, people, log=log, run_id=RUN)
    entries = await log.read(RUN)
    started = next(at for at, entry in enumerate(entries) if decode_event(entry).type == "tool.invocation.started")
    left.append(RUN, entries[: started + 1])
    if not applied:
        trials.applied.clear()

    async with ToolRuntime(tools=[shell(trials)], log=left, run_id=RUN, interaction=people.provider()) as runtime:
        [observation] = (await runtime.resume()).observations

    assert observation.ok
    assert trials.applied == (["effect-1"] if applied else ["effect-2"])


async def test_a_store_that_does_not_answer_leaves_the_outcome_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, log, left = Trials(), MemoryLog(), MemoryLog()
    await run(trials, People(), log=log, run_id=RUN)
    entries = await log.read(RUN)
    started = next(at for at, entry in enumerate(entries) if decode_event(entry).type == "tool.invocation.started")
    left.append(RUN, entries[: started + 1])

    def fail(_: str) -> bool:
        raise OSError("gone")

    monkeypatch.setattr(trials, "was_applied", fail)

    async with ToolRuntime(tools=[shell(trials)], log=left, run_id=RUN) as runtime:
        [observation] = (await runtime.resume()).observations

    assert observation.code == "outcome_unknown"


async def test_the_log_says_that_it_was_tried() -> None:
    trials, people, log = Trials(), People(), MemoryLog()
    await run(trials, people, log=log, run_id=RUN)

    facts = [decode_event(entry).fact for entry in await log.read(RUN)]

    [tried] = [fact for fact in facts if isinstance(fact, CallTried)]
    assert (tried.digest, tried.change_count) == ("effect-1", 1)
