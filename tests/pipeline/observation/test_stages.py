"""The way of a call is readable from the files, and each stage's type can only come from the one before."""

from pathlib import Path

import pytest

import interlock
from interlock import Phase, Risk, RulePolicy, ToolRuntime, tool
from interlock.domain import call, decision, event, observation
from interlock.domain import observation as result
from interlock.domain.event import CallObserved, InvocationStarted
from tests.support import call as propose
from tests.support import facts

PIPELINE = Path(interlock.__file__).parent / "pipeline"
STAGES = ("accept", "lookup", "validate", "permit", "schedule", "execute", "normalize", "observe", "record")
OTHERS = {
    "__init__",
    "artifacts",
    "batch",
    "batch_execution",
    "budgets",
    "call",
    "context",
    "effects",
    "events",
    "parts",
    "refusals",
    "resume",
    "tasks",
}


def test_the_phases_are_the_stages_in_their_order() -> None:
    assert tuple(Phase) == STAGES


def test_every_stage_has_a_file_of_its_name_and_nothing_else_looks_like_one() -> None:
    assert {file.stem for file in PIPELINE.glob("*.py")} == {*STAGES, *OTHERS}


def test_the_stage_files_number_themselves_in_order() -> None:
    numbers = [(PIPELINE / f"{stage}.py").read_text("utf-8").split(":")[0].split(",")[0] for stage in STAGES]

    assert numbers == [f'"""Stage {number}' for number in range(1, 10)]


@pytest.mark.requirement("R174")
def test_every_word_of_the_chain_is_a_type_of_its_own() -> None:
    words = [
        interlock.ToolIntent,
        call.ValidCall,
        decision.Decision,
        call.Invocation,
        result.RawResult,
        result.NormalizedResult,
        interlock.Observation,
        interlock.Event,
        observation.ArtifactRef,
        interlock.ToolRegistry,
    ]

    assert len(set(words)) == len(words)
    assert not [word for word in words for other in words if word is not other and issubclass(word, other)]


@pytest.mark.parametrize(
    ("made", "needs"),
    [
        (call.AcceptedCall, call.ToolIntent),
        (call.KnownCall, call.AcceptedCall),
        (call.ValidCall, call.KnownCall),
        (call.PermittedCall, call.ValidCall),
        (call.Invocation, call.PermittedCall),
        (result.RawResult, call.Invocation),
    ],
)
@pytest.mark.requirement("R174", "R177")
def test_each_type_of_the_chain_is_made_from_the_one_before(made: type, needs: type) -> None:
    assert needs in made.__annotations__.values()


@pytest.mark.requirement("R177")
async def test_an_invocation_has_an_id_tool_input_directory_timeout_and_sandbox() -> None:
    @tool(timeout_seconds=7)
    async def work(n: int = 5) -> int:
        return n

    runtime = ToolRuntime(tools=[work])
    await runtime.execute([propose("c1", "work")])

    [started] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    assert started.invocation_id
    assert (started.tool, started.arguments, started.timeout_seconds) == ("work", {"n": 5}, 7.0)
    assert (started.sandbox, started.cwd) == ("none", "")


@pytest.mark.requirement("R175", "R177", "R233")
@pytest.mark.parametrize(
    "arguments",
    [{"n": "not a number"}, {"n": 1}],
    ids=["invalid", "denied"],
)
async def test_no_invocation_exists_for_a_call_that_is_not_valid_and_permitted(arguments: dict[str, object]) -> None:
    ran: list[int] = []

    async def work(n: int) -> None:
        ran.append(n)

    runtime = ToolRuntime(tools=[work], policy=RulePolicy(default="deny"))
    await runtime.execute([propose("c1", "work", **arguments)])

    assert ran == []
    assert not [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]


@pytest.mark.requirement("R188")
async def test_the_functions_of_a_tool_are_called_in_order_and_its_handler_is_never_first() -> None:
    called: list[str] = []

    def note(word: str, answer: object) -> object:
        called.append(word)
        return answer

    @tool(
        risk=[Risk.READ],
        visible=lambda _: bool(note("visible", True)),
        check=lambda _arguments, _context: note("check", None),  # pyright: ignore[reportArgumentType]
        authorize=lambda _arguments, _situation: note("authorize", None),
        normalize=lambda value: note("normalize", interlock.NormalizedOutput(text=value)),  # pyright: ignore
    )
    async def work() -> str:
        called.append("execute")
        return "done"

    await ToolRuntime(tools=[work]).execute([propose("c1", "work")])

    assert list(dict.fromkeys(called)) == ["visible", "check", "authorize", "execute", "normalize"]
    assert called.count("execute") == 1


@pytest.mark.requirement("R279")
async def test_the_teaching_words_have_their_place() -> None:
    async def greet(name: str) -> str:
        return f"hello {name}"

    runtime = ToolRuntime(tools=[greet])
    content = {"id": "c1", "type": "function", "function": {"name": "greet", "arguments": '{"name": "Ada"}'}}
    result = await runtime.execute([content])

    recorded = await facts(runtime)
    [intent] = [fact for fact in recorded if isinstance(fact, event.CallProposed)]
    assert (intent.call_id, intent.tool, intent.raw_input) == ("c1", "greet", {"name": "Ada"})
    registered = runtime.registry.lookup("greet")
    assert registered is not None
    assert registered.handler is greet
    [observed] = [fact for fact in recorded if isinstance(fact, CallObserved)]
    assert observed.observation == result.observations[0]
    assert [(message["role"], message["tool_call_id"]) for message in result.messages] == [("tool", "c1")]
    kinds = [event.event_type(fact) for fact in recorded]
    assert kinds.index("tool.invocation.started") < kinds.index("tool.invocation.completed")
