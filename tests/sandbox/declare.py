"""Tools and contexts for the sandbox's tests, made without a registry."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from pydantic import BaseModel

from interlock.domain.tool import CallContext, ToolContext, ToolDefinition, ToolSpec


class NoArguments(BaseModel):
    pass


def declare(handler: Callable[..., Any], args_model: type[BaseModel] = NoArguments, **options: Any) -> ToolDefinition:
    return ToolDefinition(
        spec=ToolSpec(name=handler.__name__, description="", parameters_schema={}),
        version="1",
        handler=handler,
        is_async=iscoroutinefunction(handler),
        args_model=args_model,
        **options,
    )


def context_for(tool: ToolDefinition, on_progress: Callable[[str], None] = lambda _: None) -> ToolContext:
    return ToolContext(
        situation=CallContext(run_id="run_1"),
        call_id="call_1",
        tool_name=tool.name,
        on_progress=lambda _, message: on_progress(message),
    )
