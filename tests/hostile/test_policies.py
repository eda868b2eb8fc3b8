"""Policies, checks, opinions, keys and people that misbehave: whatever is not a clear yes is a no."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    CheckProblem,
    Limits,
    LogError,
    LogWriteError,
    MemoryLog,
    Question,
    ToolContext,
    ToolRuntime,
    tool,
)
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import LogEntry
from interlock.storage.event_log import Lease
from tests.hostile.runs import (
    NoText,
    Unprintable,
    answering,
    hanging,
    making,
    outcome,
    raising,
    saying,
    sibling,
    survives,
)
from tests.patience import HANG_SECONDS
from tests.support import call

ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def work(x: int) -> str:
    ran.append(x)
    return "fine"


class Policy:
    """Says something odd about `work` and allows the rest."""

    def __init__(self, says: Any) -> None:
        self._says = says

    def evaluate(self, event: Any) -> Any:
        if event.tool.name == "work":
            return self._says(event)
        return Decision(verdict=Verdict.ALLOW, reason="Harmless.")


def _allow(**fields: Any) -> Decision:
    given: dict[str, Any] = {"verdict": Verdict.ALLOW, "reason": "Fine.", **fields}
    return Decision(**given)


POLICIES: dict[str, Any] = {
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "None": saying(None),
    "True": saying(True),
    "str": saying("allow"),
    "verdict alone": saying(Verdict.ALLOW),
    "dict": saying({"verdict": "allow"}),
    "class": saying(Decision),
    "async None": answering(None),
    "async str": answering("allow"),
    "hangs": hanging,
    "unknown verdict": making(lambda: _allow(verdict="maybe")),
    "no verdict": making(lambda: _allow(verdict=None)),
    "reason": making(lambda: _allow(reason=object())),
    "rule ids": making(lambda: _allow(rule_ids=5)),
    "layer": making(lambda: _allow(layer=["a"])),
    "risk": making(lambda: _allow(risk="write")),
    "input without a target": making(lambda: _allow(verdict=Verdict.REQUEST_INPUT)),
}


@pytest.mark.parametrize("says", POLICIES.values(), ids=POLICIES)
async def test_a_policy_that_gives_no_clear_yes_refuses(says: Any) -> None:
    # Short for the one that hangs, but the policy answers for the sibling within it on a busy machine.
    limits = Limits(check_seconds=0.5) if says is hanging else Limits()
    observation = await outcome(tool(work), policy=Policy(says), limits=limits)

    assert ran == []
    assert observation.code in {"policy_denied", "approval_unavailable"}


@pytest.mark.parametrize("verdict", list(Verdict))
async def test_words_of_a_policy_that_are_no_unicode_are_survived(verdict: Verdict) -> None:
    said = _allow(verdict=verdict, reason="\ud800", rule_ids=("\ud800",), target_arg="x", prompt="\ud800")
    observation = await outcome(tool(work), policy=Policy(saying(said)))

    assert observation.ok == (verdict is Verdict.ALLOW)


async def test_a_policy_that_edits_the_arguments_changes_neither_what_is_shown_nor_what_runs() -> None:
    def edit(event: Any) -> Decision:
        event.arguments["x"] = 500
        return Decision(verdict=Verdict.ASK, reason="Large.")

    asked: list[Question] = []
    people = CallbackInteractionProvider(lambda question: asked.append(question) or True)
    await outcome(tool(work), policy=Policy(edit), interaction=people)

    assert [question.arguments for question in asked] == [{"x": 1}]
    assert ran == [1]


AUTHORIZE: dict[str, Any] = {
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "True": saying(True),
    "str": saying("allow"),
    "unknown verdict": making(lambda: _allow(verdict="maybe")),
    "fields": making(lambda: _allow(verdict=Verdict.DENY, reason=5)),
}


@pytest.mark.parametrize("opinion", AUTHORIZE.values(), ids=AUTHORIZE)
async def test_an_opinion_of_a_tool_that_is_none_refuses(opinion: Any) -> None:
    observation = await outcome(tool(work, authorize=opinion))

    assert ran == []
    assert observation.code == "policy_denied"


CHECKS: dict[str, Any] = {
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "True": saying(True),
    "False": saying(False),
    "str": saying("no"),
    "async str": answering("no"),
    "class": saying(CheckProblem),
    "unknown code": making(lambda: CheckProblem(message="no", code="bogus")),  # pyright: ignore
    "code of a success": making(lambda: CheckProblem(message="no", code="ok")),  # pyright: ignore
    "code of an execution": making(lambda: CheckProblem(message="no", code="tool_failed")),  # pyright: ignore
    "message": making(lambda: CheckProblem(message=NoText())),  # pyright: ignore
    "surrogate": making(lambda: CheckProblem(message="\ud800")),
    "hangs": hanging,
}


@pytest.mark.requirement("R198", "R205")
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_a_check_that_gives_no_clear_yes_is_a_failed_precondition(check: Any) -> None:
    observation = await outcome(tool(work, check=check), limits=Limits(check_seconds=0.02))

    assert ran == []
    assert observation.code == "runtime_precondition_failed"


@pytest.mark.parametrize(
    "visible", [raising(OSError("gone")), raising(Unprintable()), saying(None), saying(1), saying(NoText())]
)
async def test_a_tool_that_cannot_tell_whether_it_is_visible_is_not(visible: Any) -> None:
    observation = await outcome(tool(work, visible=visible))

    assert ran == []
    assert observation.code == "tool_not_visible"


@pytest.mark.parametrize(
    "keys", [raising(OSError("gone")), saying(None), saying(5), saying([["unhashable"]]), saying([object()])]
)
async def test_keys_that_cannot_be_computed_claim_everything_and_the_call_runs(keys: Any) -> None:
    observation = await outcome(tool(work, write_keys=keys))

    assert observation.ok
    assert ran == [1]


ANSWERS: dict[str, Any] = {
    "no in words": lambda: Answer(approved="no"),  # pyright: ignore
    "false in words": lambda: Answer(approved="false"),  # pyright: ignore
    "number": lambda: Answer(approved=1),  # pyright: ignore
    "object": lambda: Answer(approved=object()),  # pyright: ignore
    "str": "yes",
    "number alone": 1,
    "class": Answer,
    "list": [True],
    "raises": Unprintable(),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_only_a_clear_yes_of_a_person_is_a_yes(answer: Any) -> None:
    def ask(_: Question) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) and answer is not Answer else answer

    observation = await outcome(tool(work, risk="write"), interaction=CallbackInteractionProvider(ask))

    assert ran == []
    assert observation.code == "user_denied"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: Answer(approved=False, reason=object()),  # pyright: ignore
        lambda: Answer(approved=True, by=["ada"]),  # pyright: ignore
        lambda: Answer(approved=False, reason="\ud800", by="\ud800"),
        lambda: Answer(approved=True, value=object()),
        lambda: Answer(approved=False, expired="yes"),  # pyright: ignore
    ],
    ids=["reason", "by", "surrogates", "value", "expired"],
)
async def test_nonsense_beside_an_answer_does_not_reach_the_log(answer: Callable[[], Answer]) -> None:
    observation = await outcome(tool(work, risk="write"), interaction=CallbackInteractionProvider(making(answer)))

    assert observation.call_id == "c1"


class Provider:
    """A provider of somebody else, whose answers nobody checked."""

    approval_timeout_s: Any = 5.0
    approval_fallback: Any = "deny"
    interactive = True

    def __init__(self, says: Any) -> None:
        self.ask = says


@pytest.mark.parametrize(
    "says",
    [
        answering("yes"),
        answering(True),
        making(lambda: Answer(approved="no")),  # pyright: ignore
        raising(OSError("gone")),
        raising(Unprintable()),
        saying(True),
    ],
)
async def test_a_provider_that_gives_no_clear_yes_has_refused(says: Any) -> None:
    observation = await outcome(tool(work, risk="write"), interaction=Provider(says))

    assert ran == []
    assert observation.code == "user_denied"


class FailingLog(MemoryLog):
    """Takes a number of appends and then no more."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self._left = appends

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> Any:
        self._left -= 1
        if self._left < 0:
            raise LogWriteError("the disk is full")
        return super().append(run_id, entries, lease)


@pytest.mark.requirement("P15")
@pytest.mark.parametrize("appends", range(4))
async def test_a_log_that_fails_ends_a_batch_of_many_in_time(appends: int) -> None:
    runtime = ToolRuntime(tools=[tool(work, concurrency="safe"), sibling], log=FailingLog(appends))

    async def four_batches() -> None:
        for batch in range(4):
            await runtime.execute([call(f"{batch}-{number}", "work", x=number) for number in range(20)])

    with pytest.raises(LogError):
        await asyncio.wait_for(four_batches(), HANG_SECONDS)


async def test_a_stage_that_breaks_leaves_no_place_in_line_taken() -> None:
    """Whatever the fault, the next batch of the run is not blocked by the one before."""

    @tool(concurrency="exclusive")
    async def spoil(ctx: ToolContext) -> None:
        ctx.effects.append(object())  # pyright: ignore

    @tool(concurrency="exclusive")
    async def after() -> str:
        return "done"

    runtime = ToolRuntime(tools=[spoil, after, sibling])
    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(runtime.execute([call("c1", "spoil"), call("c2", "after")]), return_exceptions=True)
        result = await runtime.execute([call("c3", "after")])

    assert result.observations[0].ok


async def test_calls_of_all_kinds_side_by_side_each_get_what_is_theirs() -> None:
    tools = [
        tool(work, name="denied", authorize=making(lambda: _allow(verdict=Verdict.DENY))),
        tool(work, name="hidden", visible=saying(False)),
        tool(work, name="blocked", check=saying(CheckProblem(message="no"))),
        tool(_broken, name="broken"),
        sibling,
    ]
    runtime = ToolRuntime(tools=tools)
    result = await survives(
        runtime,
        call("c1", "denied", x=1),
        call("c2", "hidden", x=1),
        call("c3", "blocked", x=1),
        call("c4", "broken"),
        call("c5", "sibling"),
        call("c6", "nobody"),
    )

    assert [observation.code for observation in result.observations] == [
        "policy_denied",
        "tool_not_visible",
        "runtime_precondition_failed",
        "tool_failed",
        "ok",
        "unknown_tool",
    ]
    assert ran == []


async def _broken() -> None:
    raise OSError("gone")
