"""Every hook is called as `(value, context)`, whatever it takes."""

from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import pytest

from interlock.domain.errors import ToolDeclarationError
from interlock.domain.tool import CallContext, JsonObject, ToolContext
from interlock.registry.decorator import tool


def handler(path: str) -> str:
    return path


def make_context() -> ToolContext:
    return ToolContext(
        situation=CallContext(run_id="run_1"),
        call_id="call_1",
        tool_name="handler",
        on_progress=lambda call_id, message: None,
    )


def test_a_pre_hook_may_take_the_arguments_alone_or_with_the_context() -> None:
    def alone(args: JsonObject) -> JsonObject:
        return {**args, "alone": True}

    def both(args: JsonObject, ctx: ToolContext) -> JsonObject:
        return {**args, "call_id": ctx.call_id}

    first, second = tool(handler, pre_hooks=[alone, both]).pre_hooks

    assert first({"path": "a"}, make_context()) == {"path": "a", "alone": True}
    assert second({"path": "a"}, make_context()) == {"path": "a", "call_id": "call_1"}
    assert second is both


async def test_async_hooks_stay_coroutine_functions_and_sync_ones_do_not() -> None:
    async def alone(value: Any) -> Any:
        return value

    class Counter:
        async def __call__(self, value: Any, ctx: ToolContext) -> Any:
            return value, ctx.call_id

    hooks = tool(handler, post_hooks=[alone, Counter(), partial(max, 1)]).post_hooks

    assert [iscoroutinefunction(hook) for hook in hooks] == [True, True, False]
    assert await hooks[0](5, make_context()) == 5
    assert await hooks[1](5, make_context()) == (5, "call_1")
    assert hooks[2](5, make_context()) == 5


def test_an_optional_second_parameter_gets_the_context_only_when_it_says_so() -> None:
    def named(value: Any, ctx: object = None) -> object:
        return ctx

    def typed(value: Any, about: "ToolContext | None" = None) -> object:
        return about

    def other(value: Any, strict: bool = False) -> object:
        return strict

    def any_number(*values: Any) -> object:
        return len(values)

    context = make_context()
    hooks = tool(handler, pre_hooks=[named, typed, other, any_number]).pre_hooks

    assert [hook("value", context) for hook in hooks] == [context, context, False, 1]


def test_guardrails_and_post_hooks_are_made_uniform_too() -> None:
    def refuse(value: Any) -> str:
        return f"no {value}"

    definition = tool(handler, output_guardrails=(refuse,), post_hooks=(refuse,))

    assert definition.output_guardrails[0]("way", make_context()) == "no way"
    assert definition.post_hooks[0]("way", make_context()) == "no way"


def test_middleware_is_kept_in_order_and_as_it_is() -> None:
    async def outer(call_next: Any, args: JsonObject, ctx: ToolContext) -> Any: ...
    async def inner(call_next: Any, args: JsonObject, ctx: ToolContext) -> Any: ...

    assert tool(handler, middleware=[outer, inner]).middleware == (outer, inner)


def test_a_hook_that_takes_neither_is_refused() -> None:
    def three(a: Any, b: Any, c: Any) -> None: ...

    with pytest.raises(ToolDeclarationError, match=r"hook .*three must take \(value\) or \(value, ctx\)"):
        tool(handler, pre_hooks=[three])
