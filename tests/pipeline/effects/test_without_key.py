"""Calls without a key: the same call again, after one with an unknown outcome in the same run."""

from typing import Any

import pytest

from interlock import Limits
from interlock.runs.fork import fork
from tests.support import call

from .scene import APPROVES, OPEN, Bank, no_key

pytestmark = pytest.mark.requirement("P16")
NO_KEY: dict[str, Any] = {"effect": no_key}


@pytest.mark.parametrize("has_function", [True, False])
@pytest.mark.parametrize("resumed", [True, False])
async def test_same_call_asks(resumed: bool, has_function: bool) -> None:
    bank = Bank()
    options: dict[str, Any] = {"declared": NO_KEY} if has_function else {"tools": [bank.plain_tool()]}
    await bank.refund_and_die("run_1", "c1", **options)
    if resumed:
        async with bank.runtime("run_1", **options) as runtime:
            await runtime.resume()

    async with bank.runtime("run_1", interaction=OPEN, **options) as runtime:
        (question,) = (await runtime.execute([call("c2", "refund", order=4711)])).questions

    assert "The same call may have happened before" in question.prompt
    assert "call c1 of run run_1" in question.prompt
    assert question.needs_person
    assert bank.paid == [4711]


async def test_nobody_to_ask_is_a_denial() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", declared=NO_KEY)

    assert await bank.refund("run_1", "c2", declared=NO_KEY) == "approval_unavailable"


async def test_defaults_written_out_are_the_same_call() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", declared=NO_KEY)

    async with bank.runtime("run_1", declared=NO_KEY, interaction=OPEN) as runtime:
        result = await runtime.execute([call("c2", "refund", amount=10, order=4711)])
        assert result.waiting


async def test_fork_asks() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", declared=NO_KEY)

    assert await bank.refund(await fork(bank.log, "run_1"), "c2", declared=NO_KEY, interaction=OPEN) == "waiting"


async def test_timeout_asks() -> None:
    bank = Bank()
    release = bank.hang()
    limits = Limits(drain_seconds=0.01)
    timed_out = await bank.refund("run_1", "c1", declared={**NO_KEY, "timeout_seconds": 0.05}, limits=limits)
    release()

    assert timed_out == "timed_out"
    assert await bank.refund("run_1", "c2", declared=NO_KEY, interaction=OPEN) == "waiting"


def did_not_happen(arguments: dict[str, Any]) -> bool:
    return False


@pytest.mark.parametrize("options", [{"idempotent": True}, {"reconcile": did_not_happen}])
async def test_call_that_may_repeat_is_not_asked_about(options: dict[str, Any]) -> None:
    bank, declared = Bank(), {**NO_KEY, **options}
    await bank.refund_and_die("run_1", "c1", declared=declared)

    assert await bank.refund("run_1", "c2", declared=declared) == "ok"


@pytest.mark.parametrize("place", [{"order": 4712}, {"run_id": "run_2"}])
async def test_other_call_is_not_asked_about(place: dict[str, Any]) -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", declared=NO_KEY)

    assert await bank.refund(**{"run_id": "run_1", "call_id": "c2", **place}, declared=NO_KEY) == "ok"


async def test_known_outcome_ends_the_questions() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", declared=NO_KEY)
    async with bank.runtime("run_1", declared=NO_KEY) as runtime:
        await runtime.resume()

    assert await bank.refund("run_1", "c2", declared=NO_KEY, interaction=APPROVES) == "ok"
    assert await bank.refund("run_1", "c3", declared=NO_KEY) == "ok"
    assert await bank.log.effect_claims("", 1) == []
