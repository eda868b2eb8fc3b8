"""What every interaction provider promises."""

from typing import Literal, get_args

import pytest

from ...domain.call import Answer, Question
from ...interaction.interface import Fallback, InteractionProvider
from .suite import ConformanceSuite


def make_question(kind: Literal["approval", "input"] = "approval") -> Question:
    """Return a question about a command: may it run, or which command is it."""
    return Question(
        action_id="act_1",
        run_id="run_1",
        call_id="call_1",
        tool_name="bash",
        kind=kind,
        prompt="Run it?",
        arguments={"command": "ls"},
        payload_hash="sha256:0",
        target_arg="command" if kind == "input" else "",
    )


class InteractionProviderConformance(ConformanceSuite):
    """Define the fixture `provider`: one that answers by itself or leaves questions open, so that no test waits."""

    def test_properties_have_valid_values(self, provider: InteractionProvider) -> None:
        timeout = provider.approval_timeout_s

        assert timeout is None or timeout > 0
        assert provider.approval_fallback in get_args(Fallback)
        assert isinstance(provider.interactive, bool)

    @pytest.mark.parametrize("kind", ["approval", "input"])
    async def test_answer_names_who_gave_it(
        self, provider: InteractionProvider, kind: Literal["approval", "input"]
    ) -> None:
        answer = await provider.ask(make_question(kind))

        assert answer is None or (isinstance(answer, Answer) and answer.by and not answer.expired)

    async def test_input_is_never_granted_without_a_value(self, provider: InteractionProvider) -> None:
        answer = await provider.ask(make_question("input"))

        assert answer is None or not answer.approved or answer.value is not None

    async def test_provider_answers_again(self, provider: InteractionProvider) -> None:
        await provider.ask(make_question())

        answer = await provider.ask(make_question())

        assert answer is None or isinstance(answer, Answer)
