"""Validation: the shape and the state, both before anybody is asked, in words that name field and rule."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from interlock import (
    ERROR_CODES,
    CallbackInteractionProvider,
    CheckProblem,
    NormalizedOutput,
    Phase,
    Question,
    ToolRuntime,
    tool,
)
from interlock.domain.event import CallValidated, PolicyEvaluated
from tests.support import call, facts

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def resize(
    path: str,
    percent: Annotated[int, Field(gt=0, le=400)] = 100,
    filter: Literal["nearest", "cubic"] = "cubic",
    tags: list[str] | None = None,
) -> str:
    ran.append(path)
    return "resized"


FITTING: dict[str, Any] = {"path": "a.png"}


@pytest.mark.requirement("R197", "R206")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": ...}, "input.path is required"),
        ({"path": 5}, "input.path: Input should be a valid string (got 5)"),
        ({"path": None}, "input.path: Input should be a valid string (got None)"),
        ({"percent": "a lot"}, "input.percent: Input should be a valid integer"),
        ({"percent": 1.5}, "input.percent: Input should be a valid integer"),
        ({"percent": 0}, "input.percent: Input should be greater than 0 (got 0)"),
        ({"percent": 401}, "input.percent: Input should be less than or equal to 400 (got 401)"),
        ({"filter": "sharp"}, "input.filter: Input should be 'nearest' or 'cubic' (got 'sharp')"),
        ({"tags": ["a", 5]}, "input.tags.1: Input should be a valid string (got 5)"),
        ({"tags": "a"}, "input.tags: Input should be a valid array"),
        ({"force": True}, "input.force is not a known field"),
        ({"fitler": "cubic"}, "input.fitler is not a known field (did you mean filter?)"),
    ],
    ids=str,
)
async def test_an_input_that_does_not_fit_says_which_field_breaks_which_rule(
    change: dict[str, Any], words: str
) -> None:
    given = {**FITTING, **change}
    arguments = {name: value for name, value in given.items() if value is not ...}
    result = await ToolRuntime(tools=[resize]).execute([call("c1", "resize", **arguments)])

    failure = result.observations[0].failure
    assert failure is not None
    assert (failure.code, failure.phase, failure.retryable) == ("schema_invalid", Phase.VALIDATE, True)
    assert words in failure.message
    assert len(failure.details["errors"]) == 1
    assert ran == []


@pytest.mark.requirement("R197")
async def test_every_wrong_field_is_named_at_once() -> None:
    result = await ToolRuntime(tools=[resize]).execute([call("c1", "resize", percent=0, filter="x", force=1)])

    failure = result.observations[0].failure
    assert failure is not None
    assert [error.split(" ")[0].rstrip(":") for error in failure.details["errors"]] == [
        "input.path",
        "input.percent",
        "input.filter",
        "input.force",
    ]


async def test_a_thousand_wrong_fields_are_counted_and_not_all_listed() -> None:
    extra = {f"field{number}": number for number in range(1000)}
    result = await ToolRuntime(tools=[resize]).execute([call("c1", "resize", path="p", **extra)])

    failure = result.observations[0].failure
    assert failure is not None
    assert failure.details["errors"][-1] == "and 980 more"
    assert len(failure.message) < 2_000


@pytest.mark.requirement("R199", "R205", "P03")
@pytest.mark.parametrize(
    ("arguments", "code"), [({"path": 5}, "schema_invalid"), ({"path": "unread"}, "runtime_precondition_failed")]
)
async def test_both_checks_come_before_policy_and_before_any_question(arguments: dict[str, Any], code: str) -> None:
    asked: list[Question] = []

    @tool(
        risk="write",
        check=lambda arguments, _: CheckProblem(message="Read it first.") if arguments["path"] == "unread" else None,
    )
    async def edit(path: str) -> None:
        ran.append(path)

    runtime = ToolRuntime(tools=[edit], interaction=CallbackInteractionProvider(lambda q: asked.append(q) or True))
    result = await runtime.execute([call("c1", "edit", **arguments)])

    assert result.observations[0].code == code
    assert (asked, ran) == ([], [])
    assert not [fact for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]


@pytest.mark.requirement("R198")
async def test_a_runtime_check_sees_the_state_of_that_moment() -> None:
    known: set[str] = set()

    @tool(check=lambda arguments, _: None if arguments["path"] in known else CheckProblem(message="It was not read."))
    async def edit(path: str) -> str:
        return f"edited {path}"

    runtime = ToolRuntime(tools=[edit])
    before = await runtime.execute([call("c1", "edit", path="a")])
    known.add("a")
    after = await runtime.execute([call("c2", "edit", path="a")])

    assert before.observations[0].summary == "It was not read. Nothing was executed."
    assert after.observations[0].ok


@pytest.mark.requirement("R198", "R207")
async def test_an_asynchronous_check_is_waited_for() -> None:
    async def look(arguments: dict[str, Any], _: object) -> CheckProblem | None:
        return CheckProblem(message="The branch is gone.", code="stale_file_baseline")

    @tool(check=look)
    async def push() -> None:
        ran.append("push")

    result = await ToolRuntime(tools=[push]).execute([call("c1", "push")])

    assert result.observations[0].code == "stale_file_baseline"
    assert ran == []


SIX = (
    "unknown_tool",
    "tool_not_visible",
    "schema_invalid",
    "runtime_precondition_failed",
    "ambiguous_target",
    "stale_file_baseline",
)


@pytest.mark.requirement("R200", "R201", "R205", "R207")
@pytest.mark.parametrize("code", SIX)
async def test_each_of_the_six_codes_comes_out_of_a_run_with_nothing_done(code: Any) -> None:
    def check(arguments: dict[str, Any], _: object) -> CheckProblem | None:
        return CheckProblem(message="Not now.", code=code) if arguments["path"] == "checked" else None

    @tool(check=check, visible=lambda _: code != "tool_not_visible")
    async def edit(path: str) -> None:
        ran.append(path)

    name = "nobody" if code == "unknown_tool" else "edit"
    path = 5 if code == "schema_invalid" else "checked"
    result = await ToolRuntime(tools=[edit]).execute([call("c1", name, path=path)])

    [observation] = result.observations
    assert observation.code == code
    assert observation.failure is not None
    assert (observation.failure.retryable, observation.side_effects) == (True, ())
    assert observation.failure.phase == ERROR_CODES[code].phase
    assert "Nothing was executed." in observation.summary
    assert ran == []


@pytest.mark.requirement("R205")
async def test_a_failed_precondition_is_neither_a_denial_nor_a_failed_execution() -> None:
    @tool(check=lambda _arguments, _context: CheckProblem(message="Three places match.", code="ambiguous_target"))
    async def edit() -> None: ...

    result = await ToolRuntime(tools=[edit]).execute([call("c1", "edit")])

    text = result.messages[0]["content"]
    assert '"phase":"validate"' in text
    assert "denied" not in text.lower()
    assert result.tool_executions[0].latency_ms is None


@pytest.mark.requirement("R206", "R261")
async def test_every_validation_is_on_record_with_its_errors() -> None:
    runtime = ToolRuntime(tools=[resize])
    await runtime.execute([call("c1", "resize", path=5), call("c2", "resize", path="b")])

    validated = {fact.call_id: fact for fact in await facts(runtime) if isinstance(fact, CallValidated)}
    assert not validated["c1"].ok
    assert validated["c1"].errors == ("input.path: Input should be a valid string (got 5)",)
    assert (validated["c2"].ok, validated["c2"].errors) == (True, ())
    assert ran == ["b"]


async def test_a_validator_of_the_developer_that_raises_is_a_failed_precondition() -> None:
    class Odd(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            def broken(value: Any) -> Any:
                raise OSError("the disk is gone")

            return {"type": "function-plain", "function": {"type": "no-info", "function": broken}}

        @classmethod
        def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
            return {"type": "string"}

    @tool(normalize=lambda _: NormalizedOutput())
    async def work(value: Odd) -> None:
        ran.append("work")

    result = await ToolRuntime(tools=[work]).execute([call("c1", "work", value="x")])

    assert result.observations[0].code == "runtime_precondition_failed"
    assert ran == []
