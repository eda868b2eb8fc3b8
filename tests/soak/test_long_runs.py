"""The properties of batches and intents, over many more examples than a normal run of the tests has time for."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import FailSafeConfig, Limits, ToolRuntime
from tests.hostile.runs import survives
from tests.hostile.test_intents import hidden, intents, ran, work
from tests.pipeline.batch.test_properties import OUTCOMES, Spec, check_batch, check_ending, specs

from .budget import Budget

pytestmark = pytest.mark.soak

_POLICIES = st.sampled_from(["continue", "degrade", "fail"])
#: Of a round.
_EXAMPLES = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@_EXAMPLES
@given(batch=specs(OUTCOMES), cap=st.integers(1, 4), repeats=st.lists(st.integers(0, 6), max_size=2), answers=st.data())
def check_batches(batch: list[Spec], cap: int, repeats: list[int], answers: st.DataObject) -> None:
    asyncio.run(check_batch(batch, cap, [number for number in repeats if number < len(batch)], answers))


@_EXAMPLES
@given(
    batch=specs(["ok", "ok", "raise", "hang", "deny", "yes", "no"]),
    cap=st.integers(1, 4),
    failure=_POLICIES,
    denial=_POLICIES,
)
def check_endings(batch: list[Spec], cap: int, failure: Any, denial: Any) -> None:
    fail_safe = FailSafeConfig(tool_failure_policy=failure, approval_denial_policy=denial)
    asyncio.run(check_ending(batch, cap, fail_safe))


@_EXAMPLES
@given(st.lists(intents, max_size=6))
def check_intents(garbage: list[Any]) -> None:
    asyncio.run(only_valid_ones_run(garbage))


async def only_valid_ones_run(garbage: list[Any]) -> None:
    ran.clear()
    runtime = ToolRuntime(tools=[work, hidden], limits=Limits(max_calls_per_batch=5))

    answered = (await survives(runtime, *garbage)).observations

    assert len(ran) <= sum(observation.ok and observation.tool == "work" for observation in answered)


def test_batches_keep_the_rules(budget: Budget) -> None:
    for _ in budget.rounds():
        check_batches()


def test_batches_that_may_end_the_run_give_every_call_one_outcome(budget: Budget) -> None:
    for _ in budget.rounds():
        check_endings()


def test_no_intents_raise_and_only_valid_ones_run(budget: Budget) -> None:
    for _ in budget.rounds():
        check_intents()
