"""What every `InteractionProvider` promises. A provider's own test file subclasses this and says how to make one."""

from typing import Any, get_args

import pytest

from interlock.domain.call import Answer, Question
from interlock.domain.errors import InterlockError
from interlock.interaction.interface import Fallback, InteractionProvider


def make_question(kind: str = "approval") -> Question:
    return Question(
        action_id="act_1",
        run_id="run_1",
        call_id="call_1",
        tool_name="bash",
        kind="input" if kind == "input" else "approval",
        prompt="Run it?",
        arguments={"command": "ls"},
        payload_hash="sha256:0",
        target_arg="command" if kind == "input" else "",
    )


class ProviderConformance:
    def make(self, **settings: Any) -> InteractionProvider:
        raise NotImplementedError

    def test_the_wait_is_five_minutes_and_then_the_answer_is_no(self) -> None:
        provider = self.make()

        assert provider.approval_timeout_s == 300.0
        assert provider.approval_fallback == "deny"

    def test_the_wait_and_what_comes_after_it_are_settings(self) -> None:
        provider = self.make(approval_timeout_s=1.5, approval_fallback="wait")

        assert (provider.approval_timeout_s, provider.approval_fallback) == (1.5, "wait")
        assert self.make(approval_timeout_s=None).approval_timeout_s is None

    def test_an_unknown_fallback_is_refused(self) -> None:
        with pytest.raises(InterlockError, match="deny, approve or wait, not 'perhaps'"):
            self.make(approval_fallback="perhaps")

    def test_it_says_whether_a_person_is_there(self) -> None:
        assert isinstance(self.make().interactive, bool)

    @pytest.mark.parametrize("kind", ["approval", "input"])
    @pytest.mark.parametrize("fallback", get_args(Fallback))
    async def test_an_answer_is_an_answer_or_none_and_says_who_gave_it(self, kind: str, fallback: Fallback) -> None:
        answer = await self.make(approval_fallback=fallback).ask(make_question(kind))

        assert answer is None or (isinstance(answer, Answer) and answer.by and not answer.expired)

    async def test_an_input_is_never_granted_without_a_value(self) -> None:
        answer = await self.make(approval_fallback="approve").ask(make_question("input"))

        assert answer is None or not answer.approved or answer.value is not None

    async def test_the_same_provider_answers_again(self) -> None:
        provider = self.make()

        assert await provider.ask(make_question()) == await provider.ask(make_question())
