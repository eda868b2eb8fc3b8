"""The fakes of `interlock.testing`, and what is said where pytest is missing."""

import subprocess
import sys

import pytest

from interlock import Answer, InteractionProvider
from interlock.testing import FakeClock, ScriptedInteractionProvider
from interlock.testing.conformance import InteractionProviderConformance
from interlock.testing.conformance.interaction import make_question


def test_clock_moves_only_by_advance() -> None:
    clock, other = FakeClock(), FakeClock()
    start = clock.now()

    clock.advance(1.5)

    assert (clock.now() - start, clock.elapsed()) == (1_500_000_000, 1_500_000_000)
    assert (other.now(), other.elapsed()) == (start, 0)


class TestScriptedInteractionProvider(InteractionProviderConformance):
    @pytest.fixture(params=[(True, False), (None, None), ()], ids=["answers", "open", "no answers"])
    def provider(self, request: pytest.FixtureRequest) -> InteractionProvider:
        return ScriptedInteractionProvider(request.param)


async def test_answers_are_given_in_order() -> None:
    named = Answer(approved=True, by="ada")
    provider = ScriptedInteractionProvider([True, named, "ls -l"])
    questions = [make_question(), make_question(), make_question("input"), make_question()]

    answers = [await provider.ask(question) for question in questions]

    assert provider.questions == questions
    assert answers[1] == Answer(approved=True, by="ada", channel="callback")
    assert [(answer.approved, answer.value) for answer in answers if answer] == [
        (True, None),
        (True, None),
        (True, "ls -l"),
        (False, None),
    ]
    assert answers[-1] == Answer(
        approved=False, reason="The script has no answer to question 4, about bash.", by="script", channel="callback"
    )


@pytest.mark.parametrize("module", ["conformance", "pytest_plugin"])
@pytest.mark.parametrize("missing", ["pytest", "pytest_asyncio"])
def test_missing_pytest_names_the_extra(module: str, missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import interlock.testing, interlock.testing.{module}"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert run.stderr.rstrip().endswith("pip install 'interlock[testing]'")
    assert "ConfigurationError" in run.stderr
