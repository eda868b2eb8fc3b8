"""Hooks, middleware, guardrails and normalisers that misbehave: the call stops where it must and says where."""

import asyncio
from typing import Any

import pytest

from interlock import Limits, NormalizedOutput, Rule, RulePolicy, SideEffect, ToolContext, ToolRuntime, tool
from interlock.registry.decorator import ToolOptions
from tests.hostile.runs import (
    NoText,
    Odd,
    Unprintable,
    answering,
    hanging,
    making,
    outcome,
    raising,
    saying,
    sibling,
    survives,
)
from tests.support import call

ran: list[int] = []
RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def work(x: int) -> str:
    ran.append(x)
    return "fine"


PRE_HOOKS: dict[str, Any] = {
    "None": saying(None),
    "list": saying([("x", 1)]),
    "str": saying('{"x": 1}'),
    "missing field": saying({}),
    "extra field": saying({"x": 1, "y": 2}),
    "wrong type": saying({"x": "many"}),
    "not json": saying({"x": object()}),
    "recursive": saying({"x": RECURSIVE}),
    "not text": saying({1: 2}),
    "surrogate": saying({"x": "\ud800"}),
    "huge": saying({"x": 10**400}),
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "exits": raising(SystemExit(1)),
    "async None": answering(None),
    "odd": raising(Odd("odd")),
}


@pytest.mark.requirement("R274")
@pytest.mark.parametrize("hook", PRE_HOOKS.values(), ids=PRE_HOOKS)
async def test_a_pre_hook_that_returns_nonsense_stops_the_call_with_nothing_done(hook: Any) -> None:
    observation = await outcome(tool(work, pre_hooks=[hook]))

    assert ran == []
    assert observation.code == "hook_failed"
    assert observation.side_effects == ()


async def _odd(*_: object) -> Any:
    raise Odd("odd")


@pytest.mark.parametrize("place", ["pre_hooks", "post_hooks", "middleware"])
async def test_a_coroutine_that_raises_no_exception_at_all_ends_the_call_and_not_the_run(place: Any) -> None:
    observation = await outcome(tool(work, **{place: [_odd]}))  # pyright: ignore

    assert not observation.ok


@pytest.mark.requirement("R274")
@pytest.mark.parametrize("hook", [raising(OSError("gone")), raising(Unprintable()), raising(SystemExit(1))])
async def test_a_post_hook_that_raises_is_a_failure_after_the_fact(hook: Any) -> None:
    observation = await outcome(tool(work, post_hooks=[hook]))

    assert ran == [1]
    assert observation.code in {"post_hook_failed", "tool_failed"}
    assert observation.side_effects == "unknown"


@pytest.mark.parametrize("value", [None, object(), NoText(), float("nan"), "\ud800"], ids=lambda v: type(v).__name__)
async def test_whatever_a_post_hook_returns_can_be_shown(value: Any) -> None:
    observation = await outcome(tool(work, post_hooks=[saying(value)]))

    assert observation.ok


async def _never(call_next: Any, arguments: Any, context: Any) -> Any:
    return "instead"


async def _twice(call_next: Any, arguments: Any, context: Any) -> Any:
    await call_next(arguments, context)
    return await call_next(arguments, context)


async def test_middleware_that_never_goes_on_keeps_the_handler_from_running() -> None:
    observation = await outcome(tool(work, middleware=[_never]))

    assert ran == []
    assert observation.content is not None
    assert observation.content.text == "instead"


@pytest.mark.requirement("D15")
async def test_middleware_that_goes_on_twice_cannot_have_the_effect_twice() -> None:
    await outcome(tool(work, middleware=[_twice]))

    assert ran == [1]


@pytest.mark.parametrize("options", [{"idempotent": True}, {"risk": "read"}], ids=str)
async def test_middleware_may_go_on_twice_where_that_does_no_harm(options: Any) -> None:
    observation = await outcome(tool(work, middleware=[_twice], **options))

    assert observation.ok
    assert ran == [1, 1]


def _changing(value: Any) -> Any:
    async def middleware(call_next: Any, arguments: Any, context: Any) -> Any:
        return await call_next({**arguments, "x": value}, context)

    return middleware


def _swallowing(value: Any) -> Any:
    async def middleware(call_next: Any, arguments: Any, context: Any) -> Any:
        try:
            return await call_next({**arguments, "x": value}, context)
        except Exception:
            return "all is well"

    return middleware


NO_LARGE = RulePolicy([Rule(id="small", verdict="deny", when=lambda event: event.arguments.get("x", 0) > 100)])


CHANGING: dict[str, ToolOptions] = {
    "pre-hook": {"pre_hooks": [saying({"x": 500})]},
    "middleware": {"middleware": [_changing(500)]},
    "both": {"pre_hooks": [saying({"x": 5})], "middleware": [_changing(500)]},
    "middleware that hides it": {"middleware": [_swallowing(500)]},
}


@pytest.mark.parametrize("options", CHANGING.values(), ids=CHANGING)
async def test_arguments_changed_to_what_policy_denies_are_refused_as_changed(options: ToolOptions) -> None:
    observation = await outcome(tool(work, **options), policy=NO_LARGE)

    assert ran == []
    assert observation.code == "payload_changed"


async def test_arguments_changed_to_what_needs_asking_are_refused_as_changed() -> None:
    ask = RulePolicy([Rule(id="large", verdict="ask", when=lambda event: event.arguments.get("x", 0) > 100)])
    observation = await outcome(tool(work, middleware=[_changing(500)]), policy=ask)

    assert ran == []
    assert observation.code == "payload_changed"


async def test_arguments_changed_to_what_does_not_fit_are_refused() -> None:
    observation = await outcome(tool(work, middleware=[_changing("many")]))

    assert ran == []
    assert observation.code == "hook_failed"


async def test_a_pre_hook_that_edits_in_place_is_judged_by_what_it_made() -> None:
    def add(arguments: dict[str, Any]) -> dict[str, Any]:
        arguments["paths"].append("/etc/passwd")
        return arguments

    opened: list[str] = []

    @tool(pre_hooks=[add])
    async def read(paths: list[str]) -> None:
        opened.extend(paths)

    rule = Rule(id="etc", verdict="deny", when=lambda event: "/etc/passwd" in event.arguments["paths"])
    runtime = ToolRuntime(tools=[read], policy=RulePolicy([rule]))
    result = await survives(runtime, call("c1", "read", paths=["a"]))

    assert opened == []
    assert result.observations[0].code == "payload_changed"


async def test_middleware_that_hands_on_another_context_does_not_speak_for_another_call() -> None:
    async def forging(call_next: Any, arguments: Any, context: ToolContext) -> Any:
        return await call_next(arguments, None)

    observation = await outcome(tool(work, middleware=[forging]))

    assert observation.call_id == "c1"


GUARDS: dict[str, Any] = {
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "no text": saying(NoText()),
    "True": saying(True),
    "False": saying(False),
    "empty": saying(""),
    "list": saying([]),
    "async reason": answering("no"),
    "hangs": hanging,
    "surrogate": saying("\ud800"),
}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
async def test_an_input_guardrail_that_does_not_clearly_pass_refuses(guard: Any) -> None:
    observation = await outcome(tool(work, input_guardrails=[guard]), limits=Limits(check_seconds=0.02))

    assert ran == []
    assert observation.code == "guardrail_refused"


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
async def test_an_output_guardrail_that_does_not_clearly_pass_withholds(guard: Any) -> None:
    observation = await outcome(tool(work, output_guardrails=[guard]), limits=Limits(check_seconds=0.02))

    assert observation.code == "output_refused"
    assert observation.content is None


SHAPES: dict[str, Any] = {
    "raises": raising(OSError("gone")),
    "unprintable": raising(Unprintable()),
    "None": saying(None),
    "str": saying("text"),
    "dict": saying({"ok": True}),
    "class": saying(NormalizedOutput),
    "text": making(lambda: NormalizedOutput(text=5)),  # pyright: ignore
    "bytes": making(lambda: NormalizedOutput(text=b"x")),  # pyright: ignore
    "ok": making(lambda: NormalizedOutput(ok="yes")),  # pyright: ignore
    "code": making(lambda: NormalizedOutput(ok=False, code=5)),  # pyright: ignore
    "summary": making(lambda: NormalizedOutput(summary=object())),  # pyright: ignore
    "user text": making(lambda: NormalizedOutput(user_text=b"x")),  # pyright: ignore
    "exit code": making(lambda: NormalizedOutput(exit_code="one")),  # pyright: ignore
    "huge exit code": making(lambda: NormalizedOutput(exit_code=2**80)),
    "format": making(lambda: NormalizedOutput(text="x", format="exe")),  # pyright: ignore
    "effects": making(lambda: NormalizedOutput(side_effects=("x",))),  # pyright: ignore
    "effects word": making(lambda: NormalizedOutput(side_effects="none")),  # pyright: ignore
    "effect field": making(lambda: NormalizedOutput(side_effects=(SideEffect(kind=5, target=object()),))),  # pyright: ignore
    "retryable": making(lambda: NormalizedOutput(ok=False, retryable="x")),  # pyright: ignore
    "facts list": making(lambda: NormalizedOutput(facts=[1])),  # pyright: ignore
    "facts recursive": making(lambda: NormalizedOutput(facts={"a": RECURSIVE})),
    "facts object": making(lambda: NormalizedOutput(facts={"a": object(), "b": float("nan"), "c": 2**80})),
    "facts deep": making(lambda: NormalizedOutput(facts={"a": [[[[[[[[[[1]]]]]]]]]]})),
    "surrogates": making(
        lambda: NormalizedOutput(summary="\ud800", text="\ud800", user_text="\ud800", facts={"\ud800": 1})
    ),
}


@pytest.mark.requirement("R274")
@pytest.mark.parametrize("normalize", SHAPES.values(), ids=SHAPES)
async def test_whatever_a_normaliser_returns_the_log_can_be_read_afterwards(normalize: Any) -> None:
    observation = await outcome(tool(work, normalize=normalize))

    assert ran == [1]
    assert observation.call_id == "c1"


async def test_hooks_that_block_do_not_block_the_other_calls() -> None:
    arrived = asyncio.Event()

    async def waits(arguments: dict[str, Any]) -> dict[str, Any]:
        await arrived.wait()
        return arguments

    @tool
    async def opener() -> None:
        arrived.set()

    runtime = ToolRuntime(tools=[tool(work, pre_hooks=[waits]), opener, sibling])
    result = await survives(runtime, call("c1", "work", x=1), call("c2", "opener"), call("c3", "sibling"))

    assert [observation.ok for observation in result.observations] == [True, True, True]


async def test_a_hook_that_hangs_is_a_timeout_that_names_its_layer() -> None:
    observation = await outcome(tool(work, pre_hooks=[hanging], timeout_seconds=0.02))

    assert ran == []
    assert (observation.code, observation.side_effects) == ("timed_out", ())
    assert "(in its pre-hook)" in observation.summary
