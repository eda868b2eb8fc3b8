"""Tools by JSON Schema: arguments are checked, and a hostile schema does no harm."""

from time import process_time
from typing import Any

import pytest

from interlock import ToolContext, ToolDeclarationError, ToolDefinition, ToolIntent, ToolRuntime, tool_from_schema
from tests.each import each

ORDER = {
    "type": "object",
    "properties": {
        "order": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}},
    },
    "required": ["order"],
    "additionalProperties": False,
}


async def echo(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {"call": context.call_id, **arguments}


def declare(schema: Any, **options: Any) -> ToolDefinition:
    return tool_from_schema("look_up", "Find an order.", schema, echo, **options)


async def call(tool: ToolDefinition, arguments: Any) -> Any:
    async with ToolRuntime(tools=[tool]) as runtime:
        intent = ToolIntent(call_id="c1", tool_name="look_up", arguments=arguments)
        (observation,) = (await runtime.execute([intent])).observations
    return observation.content.text if observation.content else observation.failure and observation.failure.message


async def test_fitting_arguments_reach_the_handler_as_they_are() -> None:
    assert await call(declare(ORDER, risk="read"), {"order": 1, "tags": ["aa"]}) == (
        '{"call":"c1","order":1,"tags":["aa"]}'
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"order": "x"}, 'input.order: "x" is not of type "integer"'),
        ({"order": 1, "tags": ["b"]}, "input.tags.0:"),
        ({}, '"order" is a required property'),
        ({"order": 1, "odrer": 2}, "'odrer' was unexpected"),
    ],
)
async def test_what_does_not_fit_is_told_with_its_path(arguments: dict[str, Any], told: str) -> None:
    assert told in await call(declare(ORDER), arguments)


@each(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"pattern": "(a{1000}){1000}"}}},
        {"type": "object", "properties": {"a": {"type": "nothing known"}}},
        {"type": "object", "description": "x" * 300_000},
        {"type": "object", "default": object()},
        [],
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any) -> None:
    with pytest.raises(ToolDeclarationError, match="look_up"):
        declare(schema)


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}

    with pytest.raises(ToolDeclarationError, match="nested deeper"):
        declare(schema)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+$)(a|aa)+b$"])
async def test_no_pattern_can_hang(pattern: str) -> None:
    tool = declare({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    began = process_time()

    assert "input.a" in await call(tool, {"a": "a" * 50_000 + "!"})
    assert process_time() - began < 5


def test_options_are_those_of_other_tools() -> None:
    tool = declare(ORDER, risk="write", effect="order:{order}")

    assert (tool.effect, tool.concurrency, tool.spec.parameters_schema) == ("order:{order}", "exclusive", ORDER)
    with pytest.raises(ToolDeclarationError, match="customer"):
        declare(ORDER, effect="order:{customer}")


async def test_a_reference_inside_the_schema_is_followed() -> None:
    tool = declare(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/name"}}, "$defs": {"name": {"maxLength": 3}}}
    )

    assert "input.a" in await call(tool, {"a": "long"})
    assert await call(tool, {"a": "abc"}) == '{"call":"c1","a":"abc"}'
