"""The provider for runs without a person."""

from typing import Any

import msgspec
import pytest

from interlock.domain.call import Answer
from interlock.domain.decision import RECOVERY_LAYER
from interlock.interaction.interface import Fallback, InteractionProvider
from interlock.interaction.providers import HeadlessInteractionProvider
from interlock.testing.conformance.interaction import make_question
from tests.pipeline.approval.provider_suite import ProviderSuite


class TestHeadless(ProviderSuite):
    def make(self, **settings: Any) -> InteractionProvider:
        return HeadlessInteractionProvider(**settings)


@pytest.mark.requirement("R030")
async def test_the_answer_is_no_unless_configured_otherwise() -> None:
    refused = Answer(approved=False, reason="No person is available to ask.", by="headless")
    approved = Answer(approved=True, reason="No person is available to ask.", by="headless")

    assert await HeadlessInteractionProvider().ask(make_question()) == refused
    assert await HeadlessInteractionProvider("deny").ask(make_question()) == refused
    assert await HeadlessInteractionProvider("approve").ask(make_question()) == approved


async def test_with_wait_the_question_stays_open() -> None:
    assert await HeadlessInteractionProvider("wait").ask(make_question()) is None
    assert await HeadlessInteractionProvider("wait").ask(make_question("input")) is None


async def test_a_value_that_nobody_can_give_is_refused_even_with_approve() -> None:
    answer = await HeadlessInteractionProvider("approve").ask(make_question("input"))

    assert answer == Answer(approved=False, reason="No person is available to ask.", by="headless")


@pytest.mark.parametrize("fallback", ["approve", "deny"])
async def test_nobody_says_that_something_may_happen_twice_even_with_approve(fallback: Fallback) -> None:
    again = msgspec.structs.replace(make_question(), layer=RECOVERY_LAYER)

    answer = await HeadlessInteractionProvider(fallback).ask(again)

    assert answer == Answer(approved=False, reason="No person is available to ask.", by="headless")


def test_nobody_is_there() -> None:
    assert HeadlessInteractionProvider().interactive is False
