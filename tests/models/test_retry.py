"""How often, how long between, and when not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError, ModelError
from interlock.models.interface import StreamFinished, StreamRestarted, TextDelta
from interlock.models.provider_factory import with_retries
from interlock.models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn
from tests.models.wire import ASKED, answer


class Sleep:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def busy(retry_after_seconds: float | None = None) -> ScriptedTurn:
    return ScriptedTurn(fault=ScriptedFault(message="Busy.", retryable=True, retry_after_seconds=retry_after_seconds))


async def test_waits_double_up_to_the_longest() -> None:
    sleep = Sleep()
    provider = ScriptedModel([busy()] * 6 + [ScriptedTurn(text="Yes.")])

    await answer(with_retries(provider, 7, first_wait_seconds=1, max_wait_seconds=10, sleep=sleep, random=lambda: 1.0))

    assert sleep.seconds == [1, 2, 4, 8, 10, 10]
    assert with_retries(provider).name == "scripted"


async def test_waits_are_shortened_at_random_by_up_to_half() -> None:
    sleep = Sleep()

    await answer(
        with_retries(ScriptedModel([busy(), ScriptedTurn()]), first_wait_seconds=1, sleep=sleep, random=lambda: 0.0)
    )

    assert sleep.seconds == [0.5]


async def test_the_wait_that_a_server_asks_for_is_respected_up_to_the_longest() -> None:
    sleep = Sleep()
    provider = ScriptedModel([busy(7), busy(1e9), ScriptedTurn()])

    await answer(with_retries(provider, max_wait_seconds=20, sleep=sleep))

    assert sleep.seconds == [7, 20]


async def test_after_the_last_attempt_the_fault_is_told_with_the_number_of_attempts() -> None:
    sleep = Sleep()

    with pytest.raises(ModelError, match=r"Busy\. It was tried 3 times\.") as error:
        await answer(with_retries(ScriptedModel([busy(2)] * 3), 3, sleep=sleep))

    assert (error.value.retryable, error.value.retry_after_seconds, len(sleep.seconds)) == (True, 2, 2)


async def test_what_will_stay_wrong_is_not_tried_again() -> None:
    sleep = Sleep()

    with pytest.raises(ModelError, match=r"^Wrong\.$"):
        await answer(with_retries(ScriptedModel([ScriptedTurn(fault=ScriptedFault(message="Wrong."))]), sleep=sleep))

    assert sleep.seconds == []


async def test_what_was_said_before_a_cut_is_taken_back_before_the_wait() -> None:
    heard: list[object] = []
    cut = ScriptedTurn(text="Half", fault=ScriptedFault(message="Cut.", retryable=True))

    async def sleep(seconds: float) -> None:
        heard.append("slept")

    provider = with_retries(ScriptedModel([cut, busy(), ScriptedTurn(text="Whole.")]), sleep=sleep)
    async for event in provider.stream(ASKED):
        heard.append(event)

    assert heard == [
        TextDelta("Half"),
        StreamRestarted("Cut."),
        "slept",
        "slept",
        TextDelta("Whole."),
        StreamFinished(reason="stop"),
    ]


@given(st.integers(1, 50), st.floats(0, 100), st.floats(0, 100), st.none() | st.floats(0, 1e9))
async def test_no_wait_is_ever_longer_than_the_longest(
    attempts: int, first: float, longest: float, asked: float | None
) -> None:
    sleep = Sleep()
    provider = ScriptedModel([busy(asked)] * attempts)

    with pytest.raises(ModelError):
        await answer(with_retries(provider, attempts, first_wait_seconds=first, max_wait_seconds=longest, sleep=sleep))

    assert len(sleep.seconds) == attempts - 1
    assert all(0 <= seconds <= longest for seconds in sleep.seconds)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_wait_seconds": -1}, {"max_wait_seconds": -1}], ids=str)
def test_limits_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        with_retries(ScriptedModel([]), **wrong)  # pyright: ignore[reportArgumentType]
