"""One execution, three readers: the model, the log and the user. All three get facts, in one shape."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from interlock import (
    NormalizedOutput,
    Observation,
    RulePolicy,
    SideEffect,
    ToolContext,
    ToolIntent,
    ToolRuntime,
    render_for_user,
    tool,
)
from interlock.domain.event import CallObserved, InvocationCompleted
from tests.support import call, facts


class Ran(BaseModel):
    stdout: str
    exit_code: int
    environment: dict[str, str]


def shaped(ran: Ran) -> NormalizedOutput:
    return NormalizedOutput(
        ok=ran.exit_code == 0,
        code="ok" if ran.exit_code == 0 else "command_failed",
        summary=f"npm test ended with exit code {ran.exit_code}",
        text=ran.stdout,
        user_text="Tests failed (1 of 12)",
        exit_code=ran.exit_code,
        side_effects=(SideEffect(kind="created", target="coverage/"),),
        facts={"failed": 1},
    )


@tool(normalize=shaped)
async def npm_test() -> Ran:
    return Ran(stdout="Expected 4, received 5", exit_code=1, environment={"HOME": "/home/ada"})


def header_of(message: dict[str, Any]) -> dict[str, Any]:
    return json.loads(message["content"].split("\n")[0])


@pytest.mark.requirement("R180", "R238", "R240", "R241")
async def test_the_model_reads_facts_and_quoted_output() -> None:
    result = await ToolRuntime(tools=[npm_test]).execute([call("c1", "npm_test")])

    facts_line, *quoted = result.messages[0]["content"].split("\n")
    told = json.loads(facts_line)
    assert {key: told[key] for key in ("tool", "ok", "phase", "code", "message", "exitCode", "retryable")} == {
        "tool": "npm_test",
        "ok": False,
        "phase": "execute",
        "code": "command_failed",
        "message": "npm test ended with exit code 1",
        "exitCode": 1,
        "retryable": True,
    }
    assert told["sideEffects"] == [{"kind": "created", "target": "coverage/"}]
    assert "| Expected 4, received 5" in quoted


@pytest.mark.requirement("R180", "R242")
async def test_the_log_keeps_invocation_exit_code_duration_and_effects() -> None:
    runtime = ToolRuntime(tools=[npm_test])
    await runtime.execute([call("c1", "npm_test")])

    recorded = await facts(runtime)
    [ended] = [fact for fact in recorded if isinstance(fact, InvocationCompleted)]
    [observed] = [fact for fact in recorded if isinstance(fact, CallObserved)]
    assert observed.invocation_id == ended.invocation_id
    assert (ended.exit, ended.code, ended.side_effects) == (
        "error",
        "command_failed",
        (SideEffect(kind="created", target="coverage/"),),
    )
    assert ended.duration_ms >= 0
    assert (observed.observation.exit_code, observed.observation.facts) == (1, {"failed": 1})


@pytest.mark.requirement("R180", "R241")
async def test_the_user_reads_one_line_of_their_own() -> None:
    result = await ToolRuntime(tools=[npm_test]).execute([call("c1", "npm_test")])

    assert render_for_user(result.observations[0]) == "Tests failed (1 of 12)"
    assert "Tests failed (1 of 12)" not in result.messages[0]["content"]


@pytest.mark.requirement("R238", "R239")
async def test_what_a_tool_keeps_out_of_its_text_is_in_no_projection() -> None:
    runtime = ToolRuntime(tools=[npm_test])
    result = await runtime.execute([call("c1", "npm_test")])

    assert "/home/ada" not in result.messages[0]["content"]
    assert b"/home/ada" not in await runtime.export()


@pytest.mark.requirement("R238")
@pytest.mark.parametrize(
    "raw", ["text", {"a": 1}, ["x"], 5, None, b"bytes", Ran(stdout="", exit_code=0, environment={})]
)
async def test_a_raw_value_never_is_the_models_message(raw: Any) -> None:
    async def work() -> Any:
        return raw

    result = await ToolRuntime(tools=[work]).execute([call("c1", "work")])

    content = result.messages[0]["content"]
    assert isinstance(content, str)
    assert content != raw
    assert header_of(result.messages[0])["type"] == "tool.observation"


@pytest.mark.requirement("R243")
@pytest.mark.parametrize(
    "raw",
    [
        {"stdout": "1 passed", "stderr": "", "exit_code": 0},
        {"path": "a.txt", "bytes": 5, "encoding": "utf-8", "text": "hello"},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}},
        {"url": "http://localhost/", "title": "Home", "links": ["/a"]},
        "a line",
        b"\x89PNG\r\n",
        None,
    ],
    ids=["shell", "file", "mcp", "browser", "text", "binary", "nothing"],
)
async def test_every_kind_of_result_comes_out_as_the_same_kind_of_observation(raw: Any) -> None:
    async def work() -> Any:
        return raw

    runtime = ToolRuntime(tools=[work])
    result = await runtime.execute([call("c1", "work")])

    [observation] = result.observations
    assert type(observation) is Observation
    assert (observation.ok, observation.tool, observation.call_id) == (True, "work", "c1")
    assert observation.content is None or observation.content.trust == "tool_output_untrusted"
    assert set(header_of(result.messages[0])) <= {"type", "tool", "ok", "summary", "sideEffects"}
    assert (await runtime.replay()).observations() == result.observations


@pytest.mark.requirement("R243")
async def test_the_error_of_a_protocol_and_an_exception_have_the_same_shape() -> None:
    def as_failure(reply: dict[str, Any]) -> NormalizedOutput:
        return NormalizedOutput(ok=False, code="method_not_found", summary=reply["error"]["message"], text="")

    @tool(normalize=as_failure)
    async def mcp() -> dict[str, Any]:
        return {"error": {"message": "Method not found"}}

    @tool
    async def broken() -> None:
        raise OSError("Method not found")

    result = await ToolRuntime(tools=[mcp, broken]).execute([call("c1", "mcp"), call("c2", "broken")])

    first, second = (header_of(message) for message in result.messages)
    assert set(first) == set(second)
    assert (first["phase"], second["phase"]) == ("execute", "execute")


@pytest.mark.requirement("R181", "R182")
async def test_nothing_that_the_model_wrote_is_stated_as_a_fact() -> None:
    @tool
    async def run(command: str) -> str:
        return "exit 1"

    claim = "All tests passed; the cause must be sum.ts, edit it now."
    intent = ToolIntent(call_id="c1", tool_name="run", arguments={"command": claim}, reason=claim)
    result = await ToolRuntime(tools=[run]).execute([intent])

    assert claim not in result.messages[0]["content"]
    assert header_of(result.messages[0]) == {"type": "tool.observation", "tool": "run", "ok": True}


@pytest.mark.requirement("R181")
async def test_a_failing_output_is_stated_without_a_cause_or_an_order() -> None:
    @tool(max_output_chars=300)
    async def run() -> str:
        return "ok\n" * 200 + "AssertionError: expected 4, received 5\n" + "ok\n" * 200

    result = await ToolRuntime(tools=[run]).execute([call("c1", "run")])

    told = header_of(result.messages[0])
    assert set(told) == {
        "type", "tool", "ok", "truncated", "omittedBytes", "artifact", "artifacts", "suggestedNextTool", "nextHint",
    }  # fmt: skip
    assert told["nextHint"] == "The output was cut. Read the rest with read_artifact."
    assert told["suggestedNextTool"]["tool"] == "read_artifact"


@pytest.mark.requirement("R182", "R240")
async def test_effects_come_from_what_the_tool_stated_while_it_ran() -> None:
    @tool(risk="write")
    async def edit(ctx: ToolContext) -> str:
        ctx.side_effect("modified", "src/sum.ts", "1 line")
        return "nothing changed, believe me"

    runtime = ToolRuntime(tools=[edit], policy=RulePolicy(default="allow"))
    result = await runtime.execute([call("c1", "edit")])

    effect = SideEffect(kind="modified", target="src/sum.ts", detail="1 line")
    assert result.observations[0].side_effects == (effect,)
    assert header_of(result.messages[0])["sideEffects"] == [
        {"kind": "modified", "target": "src/sum.ts", "detail": "1 line"}
    ]


@pytest.mark.requirement("R240", "D14")
@pytest.mark.parametrize(("risk", "effects"), [((), ()), (("read",), ()), (("write",), "unknown")])
async def test_a_tool_that_states_no_effects_has_none_or_unknown_ones(risk: tuple[str, ...], effects: Any) -> None:
    @tool(risk=risk)
    async def work() -> str:
        return "done"

    runtime = ToolRuntime(tools=[work], policy=RulePolicy(default="allow"))
    result = await runtime.execute([call("c1", "work")])

    assert result.observations[0].side_effects == effects
    [ended] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationCompleted)]
    assert ended.side_effects == effects


@pytest.mark.requirement("D14")
async def test_a_failure_shows_none_unknown_or_the_facts_and_artifacts_are_a_list() -> None:
    @tool
    async def refused(n: int) -> None: ...

    @tool
    async def broken() -> None:
        raise OSError("gone")

    @tool(max_output_chars=300)
    async def long() -> str:
        return "x" * 1000

    result = await ToolRuntime(tools=[refused, broken, long]).execute(
        [call("c1", "refused"), call("c2", "broken"), call("c3", "long")]
    )

    first, second, third = (header_of(message) for message in result.messages)
    assert (first["sideEffects"], second["sideEffects"]) == ("none", "unknown")
    assert isinstance(third["artifacts"], list)
