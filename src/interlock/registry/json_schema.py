"""`tool_from_schema` makes a `ToolDefinition` of a JSON Schema: for tools that other programs declare.

A schema is untrusted, like everything that another program sends: it is limited in size and depth, its references are
never fetched, and its patterns are matched in linear time, or for a bounded number of steps where they look around.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Unpack, cast

import msgspec
from pydantic import RootModel, ValidationError, create_model, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..domain import json
from ..domain.errors import ConfigurationError, ToolDeclarationError
from ..domain.tool import JsonObject, ToolContext, ToolDefinition, ToolSpec
from ..rendering.text import shorten
from .decorator import ToolOptionMap, ToolOptions, declare_by_schema
from .schema_cost import measure_schema
from .signature import is_coroutine_function

_MAX_SCHEMA_BYTES = 256 * 1024
_MAX_ERRORS = 20
_MAX_MESSAGE_CHARS = 200
#: The size of a compiled pattern, and the steps that one with a lookaround may take: a few milliseconds.
_PATTERN_BYTES = 1 << 20
_PATTERN_STEPS = 100_000

#: Called with the arguments as a dictionary and the context of the call.
SchemaHandler = Callable[[JsonObject, ToolContext], Any]


def tool_from_schema(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    handler: SchemaHandler,
    /,
    **options: Unpack[ToolOptions],
) -> ToolDefinition:
    """Declare a tool by the JSON Schema of its arguments.

        look_up = tool_from_schema("look_up", "Find an order.", {"type": "object", ...}, handler, risk="read")

    Args:
        name: The name of the tool.
        description: What a model reads about it.
        schema: A JSON Schema of an object, of any draft. References to other documents are refused.
        handler: Called with the arguments as a dictionary and the `ToolContext`; sync or async.
        **options: The options of `tool`.

    Raises:
        ToolDeclarationError: The schema or an option cannot be used.
    """
    try:
        parameters = _check_schema(schema)
        model = _arguments_model(name, parameters)
    except ToolDeclarationError as error:
        raise ToolDeclarationError(f"Tool {name!r}: {error}") from error.__cause__
    spec = ToolSpec(name=name, description=description, parameters_schema=parameters)
    return declare_by_schema(_unwrap_arguments(handler), spec, model, cast(ToolOptionMap, options))


def _check_schema(schema: Mapping[str, Any]) -> JsonObject:
    try:
        encoded = json.encode(schema)
        json.check_value(copied := cast(object, msgspec.json.decode(encoded)))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolDeclarationError(f"the schema is not JSON: {error}") from None
    if len(encoded) > _MAX_SCHEMA_BYTES:
        raise ToolDeclarationError(f"the schema has {len(encoded):,} bytes; the limit is {_MAX_SCHEMA_BYTES:,}")
    parameters: JsonObject = {"type": "object", "properties": {}}
    if isinstance(copied, dict):
        parameters |= cast(JsonObject, copied)
    if not isinstance(copied, dict) or parameters["type"] != "object":
        raise ToolDeclarationError('the schema must be one of an object, with "type": "object"')
    return parameters


def compile_schema(schema: JsonObject) -> Any:
    """Return a validator of a schema: `is_valid(value)` and `iter_errors(value)`. Nothing is fetched, and patterns take
    a bounded time. Raise `ToolDeclarationError` for a schema that cannot be used.
    """
    try:
        library = import_module("jsonschema_rs")
    except ImportError:
        raise ConfigurationError("Tools by JSON Schema need one more package: pip install 'interlock[gate]'") from None
    patterns = library.FancyRegexOptions(
        backtrack_limit=_PATTERN_STEPS, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
    )
    cost = measure_schema(schema)
    if cost.problem:
        raise ToolDeclarationError(f"the schema cannot be used: {cost.problem}")
    try:
        validator = library.validator_for(schema, pattern_options=patterns, offline=True)
    except Exception as error:  # it raises several types, without a common one
        problem = shorten(str(error).partition("\n")[0], _MAX_MESSAGE_CHARS)
        raise ToolDeclarationError(f"the schema cannot be used: {problem}") from None
    return validator if cost.max_depth >= json.MAX_DEPTH else _DepthLimited(validator, cost.max_depth)


class _TooDeep(NamedTuple):
    """An error as the validator has them."""

    message: str
    instance: Any
    instance_path: tuple[str | int, ...] = ()


class _DepthLimited:
    """A validator of a schema that refers to itself: the work grows with the depth of a value."""

    def __init__(self, validator: Any, max_depth: int) -> None:
        self._validator = validator
        self._max_depth = max_depth

    def is_valid(self, value: Any) -> bool:
        return not _is_deeper(value, self._max_depth) and self._validator.is_valid(value)

    def iter_errors(self, value: Any) -> Iterator[Any]:
        if _is_deeper(value, self._max_depth):
            message = f"nested deeper than {self._max_depth} levels, which is the limit for this recursive schema"
            return iter((_TooDeep(message, None),))
        return self._validator.iter_errors(value)


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (cast(JsonObject, outer).values() if isinstance(outer, dict) else cast(list[Any], outer))
        ]
        if not level:
            return False
    return any(isinstance(inner, dict | list) for inner in level)


def _arguments_model(name: str, schema: JsonObject) -> type[RootModel[dict[str, Any]]]:
    validator = compile_schema(schema)

    def check(self: RootModel[dict[str, Any]]) -> RootModel[dict[str, Any]]:
        if not validator.is_valid(self.root):
            raise _misfit(name, validator, self.root)
        return self

    return create_model(
        f"{name}_arguments",
        __base__=RootModel[dict[str, Any]],
        __validators__={"check": cast(Any, model_validator(mode="after")(check))},
    )


def _misfit(name: str, validator: Any, arguments: dict[str, Any]) -> ValidationError:
    """Return what does not fit, with the path of each place."""
    found: list[InitErrorDetails] = []
    for error in validator.iter_errors(arguments):
        message = shorten(str(error.message), _MAX_MESSAGE_CHARS)
        kind = PydanticCustomError("json_schema", "{message}", {"message": message})
        found.append(InitErrorDetails(type=kind, loc=tuple(error.instance_path), input=error.instance))
        if len(found) > _MAX_ERRORS:
            break
    return ValidationError.from_exception_data(name, found)


def _unwrap_arguments(handler: SchemaHandler) -> Callable[..., Any]:
    if is_coroutine_function(handler):

        async def run_async(arguments: RootModel[dict[str, Any]], context: ToolContext) -> Any:
            return await handler(arguments.root, context)

        return run_async

    def run(arguments: RootModel[dict[str, Any]], context: ToolContext) -> Any:
        return handler(arguments.root, context)

    return run
