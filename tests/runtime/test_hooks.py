"""What a developer puts around a handler: pre-hooks, middleware and post-hooks, and what each may do."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from interlock import BatchResult, PolicyEvent, Rule, RulePolicy, ToolContext, ToolRuntime, tool
from interlock.domain.tool import CallNext
from tests.patience import HANG_SECONDS
from tests.support import call

Arguments = dict[str, Any]


async def run(definition: Any, policy: RulePolicy | None = None, **arguments: object) -> BatchResult:
    """One call of one tool."""
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[definition], policy=policy or RulePolicy()) as runtime:
        return await runtime.execute([call("c1", definition.name, **arguments)])


def output(result: BatchResult) -> Any:
    return result.tool_executions[0].output


def returning(value: Any) -> Callable[[Arguments], Any]:
    """A hook that returns this, whatever it gets."""

    def hook(_: Arguments) -> Any:
        return value

    return hook


@pytest.mark.requirement("R055", "R056", "R057", "R069")
async def test_the_chain_is_validation_pre_hooks_middleware_handler_post_hooks() -> None:
    trace: list[str] = []

    class Text(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _seen(cls, text: str) -> str:
            trace.append("validation")
            return text

    def pre(name: str) -> Callable[[Arguments], Arguments]:
        def hook(arguments: Arguments) -> Arguments:
            trace.append(name)
            return arguments

        return hook

    def around(name: str) -> Any:
        async def middleware(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
            trace.append(f"{name} in")
            result = await call_next(arguments, ctx)
            trace.append(f"{name} out")
            return result

        return middleware

    def post(name: str) -> Callable[[Arguments], Any]:
        def hook(result: Arguments) -> Any:
            trace.append(name)
            return result["output"]

        return hook

    @tool(
        args_model=Text,
        pre_hooks=[pre("pre 1"), pre("pre 2")],
        middleware=[around("outer"), around("inner")],
        post_hooks=[post("post 1"), post("post 2")],
    )
    async def echo(text: str) -> str:
        trace.append("handler")
        return text

    result = await run(echo, text="hello")

    assert trace == [
        "validation",
        *("pre 1", "pre 2"),
        *("outer in", "inner in", "handler", "inner out", "outer out"),
        *("post 1", "post 2"),
    ]
    assert (result.tool_executions[0].success, output(result)) == (True, "hello")


def _sync(arguments: Arguments) -> Arguments:
    return {**arguments, "text": arguments["text"] + "!"}


def _sync_with_context(arguments: Arguments, ctx: ToolContext) -> Arguments:
    return {**arguments, "text": f"{arguments['text']} from {ctx.call_id}"}


async def _async(arguments: Arguments) -> Arguments:
    return {**arguments, "text": arguments["text"] + "?"}


async def _async_with_context(arguments: Arguments, ctx: ToolContext) -> Arguments:
    return {**arguments, "text": f"{arguments['text']} by {ctx.tool_name}"}


@pytest.mark.requirement("R066")
@pytest.mark.parametrize(
    ("hook", "seen"),
    [
        (_sync, "hello!"),
        (_sync_with_context, "hello from c1"),
        (_async, "hello?"),
        (_async_with_context, "hello by echo"),
    ],
)
async def test_a_pre_hook_takes_the_arguments_with_or_without_the_context_and_may_change_them(
    hook: Any, seen: str
) -> None:
    @tool(pre_hooks=[hook])
    async def echo(text: str) -> str:
        return text

    assert output(await run(echo, text="hello")) == seen


@pytest.mark.requirement("R056", "R066")
async def test_a_pre_hook_gets_what_the_one_before_it_returned() -> None:
    @tool(pre_hooks=[_sync, _async, _sync])
    async def echo(text: str) -> str:
        return text

    assert output(await run(echo, text="hello")) == "hello!?!"


@pytest.mark.requirement("R066")
@pytest.mark.parametrize("layer", ["pre-hook", "middleware"])
async def test_a_change_deep_inside_the_arguments_reaches_the_handler(layer: str) -> None:
    def add(arguments: Arguments) -> Arguments:
        arguments["tags"].append("added")
        return arguments

    async def add_around(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
        return await call_next(add(arguments), ctx)

    @tool(
        pre_hooks=[add] if layer == "pre-hook" else [],
        middleware=[add_around] if layer == "middleware" else [],
    )
    async def label(tags: list[str]) -> list[str]:
        return tags

    assert output(await run(label, tags=["sent"])) == ["sent", "added"]


@pytest.mark.requirement("R075")
@pytest.mark.parametrize("returned", [None, "text", ["text"], 1, True])
async def test_a_pre_hook_that_returns_anything_but_a_dict_stops_the_call_before_the_handler(returned: object) -> None:
    ran: list[str] = []

    @tool(pre_hooks=[returning(returned)])
    async def echo(text: str) -> None:
        ran.append(text)

    [observation] = (await run(echo, text="hello")).observations

    assert (observation.ok, observation.code, ran) == (False, "hook_failed", [])
    assert type(returned).__name__ in observation.summary
    assert observation.side_effects == ()


@pytest.mark.requirement("R076")
@pytest.mark.parametrize("changed", [{"text": 1}, {}, {"text": "hello", "more": 1}, {"text": object()}])
async def test_what_a_pre_hook_returns_is_validated_again_and_stops_the_call_if_it_does_not_fit(
    changed: Arguments,
) -> None:
    ran: list[str] = []

    @tool(pre_hooks=[returning(changed)])
    async def echo(text: str) -> None:
        ran.append(text)

    [observation] = (await run(echo, text="hello")).observations

    assert (observation.ok, observation.code, ran) == (False, "hook_failed", [])
    assert observation.side_effects == ()


@pytest.mark.requirement("R004", "R076")
@pytest.mark.parametrize("layer", ["pre-hook", "middleware"])
async def test_arguments_that_a_hook_made_up_pass_the_gate_again(layer: str) -> None:
    ran: list[str] = []

    async def redirect(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
        return await call_next({"path": "/etc/shadow"}, ctx)

    @tool(
        pre_hooks=[returning({"path": "/etc/shadow"})] if layer == "pre-hook" else [],
        middleware=[redirect] if layer == "middleware" else [],
    )
    async def read(path: str) -> None:
        ran.append(path)

    def is_system_file(event: PolicyEvent) -> bool:
        return event.arguments["path"].startswith("/etc/")

    forbid = Rule(id="no-etc", verdict="deny", tools="read", when=is_system_file)
    [observation] = (await run(read, RulePolicy([forbid]), path="notes.txt")).observations

    assert (observation.ok, ran) == (False, [])


@pytest.mark.requirement("R067")
async def test_middleware_that_does_not_go_on_answers_in_place_of_the_handler() -> None:
    ran: list[str] = []

    async def cache(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
        return "cached" if arguments["text"] == "old" else await call_next(arguments, ctx)

    @tool(middleware=[cache])
    async def echo(text: str) -> str:
        ran.append(text)
        return text

    assert output(await run(echo, text="old")) == "cached"
    assert ran == []
    assert output(await run(echo, text="new")) == "new"
    assert ran == ["new"]


@pytest.mark.requirement("R067")
async def test_middleware_may_change_what_goes_in_and_what_comes_out() -> None:
    async def shout(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
        return (await call_next({"text": arguments["text"].upper()}, ctx)) + "!"

    @tool(middleware=[shout])
    async def echo(text: str) -> str:
        return f"<{text}>"

    assert output(await run(echo, text="hello")) == "<HELLO>!"


@pytest.mark.requirement("R068")
async def test_a_post_hook_gets_output_and_tool_name_and_what_it_returns_is_what_the_model_sees() -> None:
    given: list[Arguments] = []

    def mask(result: Arguments) -> str:
        given.append(result)
        return "number ends in 4242"

    @tool(post_hooks=[mask])
    async def card() -> dict[str, str]:
        return {"number": "5555 5555 5555 4242"}

    result = await run(card)

    assert given == [{"output": {"number": "5555 5555 5555 4242"}, "tool_name": "card"}]
    assert output(result) == "number ends in 4242"
    assert "number ends in 4242" in result.messages[0]["content"]
    assert "5555" not in result.messages[0]["content"]


@pytest.mark.requirement("R056", "R068")
async def test_a_post_hook_gets_what_the_one_before_it_returned() -> None:
    async def double(result: Arguments, ctx: ToolContext) -> Any:
        return result["output"] * 2

    def add_one(result: Arguments) -> Any:
        return result["output"] + 1

    @tool(post_hooks=[double, add_one, double])
    async def three() -> int:
        return 3

    assert output(await run(three)) == 14


@pytest.mark.requirement("R077", "R074")
async def test_a_post_hook_that_fails_ends_the_chain_and_makes_the_result_a_failure() -> None:
    ran: list[str] = []

    def fail(result: Arguments) -> Any:
        raise ValueError("cannot mask this")

    def second(result: Arguments) -> None:
        ran.append("second post-hook")

    @tool(post_hooks=[fail, second])
    async def work() -> str:
        ran.append("handler")
        return "secret result"

    result = await run(work)

    [observation] = result.observations
    assert (observation.ok, observation.code, observation.side_effects) == (False, "post_hook_failed", "unknown")
    assert ran == ["handler"]
    assert "cannot mask this" in result.messages[0]["content"]
    assert "secret result" not in result.messages[0]["content"]


@pytest.mark.requirement("R074")
async def test_an_exception_in_a_pre_hook_is_an_execution_error_and_the_handler_does_not_run() -> None:
    ran: list[str] = []

    def fail(arguments: Arguments) -> Arguments:
        raise ValueError("no quota left")

    def second(arguments: Arguments) -> None:
        ran.append("second pre-hook")

    @tool(pre_hooks=[fail, second])
    async def work() -> None:
        ran.append("handler")

    result = await run(work)

    [observation] = result.observations
    assert (observation.ok, observation.code, observation.side_effects) == (False, "hook_failed", ())
    assert "no quota left" in result.messages[0]["content"]
    assert ran == []


@pytest.mark.requirement("R074")
async def test_an_exception_in_middleware_is_an_execution_error() -> None:
    async def fail(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
        raise ValueError("the cache is broken")

    @tool(middleware=[fail])
    async def work() -> None: ...

    result = await run(work)

    assert result.observations[0].code == "tool_failed"
    assert "the cache is broken" in result.messages[0]["content"]


async def _hang(*_: object) -> Any:
    await asyncio.Event().wait()


async def _hang_before(arguments: Arguments) -> Arguments:
    return await _hang()


async def _hang_around(call_next: CallNext, arguments: Arguments, ctx: ToolContext) -> Any:
    return await _hang()


@pytest.mark.requirement("R058", "R073")
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        ("pre-hook", {"pre_hooks": [_hang_before]}),
        ("middleware", {"middleware": [_hang_around]}),
        ("handler", {}),
        ("post-hook", {"post_hooks": [_hang_before]}),
    ],
)
async def test_a_timeout_holds_in_every_layer(layer: str, options: dict[str, Any]) -> None:
    async def work() -> str:
        return await _hang() if layer == "handler" else "done"

    [observation] = (await run(tool(work, timeout_seconds=0.5, **options))).observations

    assert (observation.ok, observation.code) == (False, "timed_out")
    assert observation.failure is not None
    assert observation.failure.details == {"layer": layer}
    assert observation.side_effects == (() if layer == "pre-hook" else "unknown")


@pytest.mark.requirement("R058")
@pytest.mark.parametrize("layer", ["pre_hooks", "post_hooks"])
async def test_a_timeout_holds_in_a_hook_that_blocks_its_thread(layer: str) -> None:
    released = threading.Event()

    def block(value: Arguments) -> Any:
        released.wait(HANG_SECONDS)
        return value

    async def work() -> None: ...

    hooks: dict[str, Any] = {layer: [block]}
    try:
        [observation] = (await run(tool(work, timeout_seconds=0.02, **hooks))).observations
    finally:
        released.set()

    assert observation.code == "timed_out"
