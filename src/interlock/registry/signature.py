"""Inspection of function signatures, once when a tool is declared and never while a call runs.

A handler's parameters become a pydantic model of the arguments and its JSON schema. The model is closed and
strict: what comes is JSON, and a wrong type or an unknown field is a mistake to report, not to repair.

A hook's parameters say whether it wants the context. Every hook leaves here as `(value, context)`, so that no
caller has to check again.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from types import UnionType, new_class
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, PydanticUndefined

from ..domain.errors import ToolDeclarationError
from ..domain.tool import JsonObject, ToolContext


class Signature(NamedTuple):
    """The argument model of a handler, and how it is called."""

    args_model: type[BaseModel]
    #: The parameter that takes all arguments as one object; empty when they are passed one by one.
    args_parameter: str
    context_parameter: str


_STRICT_CONFIG = ConfigDict(extra="forbid", strict=True)
_UNSUPPORTED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; arguments are passed by name, so remove the '/'",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments; a model can only send named ones",
    inspect.Parameter.VAR_KEYWORD: "takes any argument; name every one, or pass args_model=",
}


def read_signature(handler: Callable[..., Any], args_model: type[BaseModel] | None) -> Signature:
    """Read the arguments model and the context parameter of a handler."""
    _check_function(handler)
    parameters = _named_parameters(handler)
    hints = _resolve_hints(handler, parameters)
    context = _context_parameter(hints)
    parameters = {name: parameter for name, parameter in parameters.items() if name != context}
    if args_model is None:
        return Signature(_arguments_model(handler, parameters, hints), "", context)
    _check_args_model(args_model)
    whole = _find_args_parameter(parameters, hints, args_model)
    if not whole:
        _check_fields(parameters, args_model)
    return Signature(_make_strict(args_model), whole, context)


def arguments_schema(model: type[BaseModel], descriptions: Mapping[str, str]) -> JsonObject:
    """Return the JSON schema of the arguments for a model. The model's own descriptions win over the docstring's."""
    _check_defaults(model)
    try:
        schema = model.model_json_schema()
    except PydanticUserError as error:
        raise ToolDeclarationError(f"the parameters have no JSON schema: {error}") from error
    if "$ref" in schema:
        # A model that contains itself is only referred to; providers want the object on top.
        schema |= schema["$defs"][schema.pop("$ref").rpartition("/")[2]]
    _drop_titles(schema)
    properties: JsonObject = schema.setdefault("properties", {})
    for name, field in model.model_fields.items():
        shown = properties.get(field.alias or name)
        if shown is not None and name in descriptions:
            shown.setdefault("description", descriptions[name])
    return schema


def adapt_hook(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return the hook as `(value, context)`, a coroutine function when it was one."""
    is_async = is_coroutine_function(hook)
    if _wants_context(hook):
        if not is_async or inspect.iscoroutinefunction(hook):
            return hook

        async def awaited_with_context(value: Any, context: ToolContext) -> Any:
            return await hook(value, context)

        return awaited_with_context
    if is_async:

        async def awaited(value: Any, _context: ToolContext) -> Any:
            return await hook(value)

        return awaited

    def called(value: Any, _context: ToolContext) -> Any:
        return hook(value)

    called.__module__ = getattr(hook, "__module__", "")  # whose code it is decides whether it may block
    return called


def accepts_arguments(function: Callable[..., Any], argument_count: int) -> bool:
    """Return True if a function can be called with that many positional arguments."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True  # Some builtins have no signature to look at.
    try:
        signature.bind(*[None] * argument_count)
    except TypeError:
        return False
    return True


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return True for coroutine functions, and objects whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _wants_context(hook: Callable[..., Any]) -> bool:
    if not accepts_arguments(hook, 1):
        if accepts_arguments(hook, 2):
            return True
        raise ToolDeclarationError(f"hook {_callable_name(hook)} must take (value) or (value, ctx)")
    if not accepts_arguments(hook, 2):
        return False
    # Both work. A second parameter with a default is the context only where it says so.
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except ValueError:
        return False
    second = parameters[min(1, len(parameters) - 1)]
    return second.name in ("ctx", "context") or "ToolContext" in str(second.annotation)


def _check_function(handler: Callable[..., Any]) -> None:
    if not inspect.isfunction(handler) and not inspect.ismethod(handler):
        raise ToolDeclarationError(f"a {type(handler).__name__} is not a function; wrap it in one")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ToolDeclarationError("the function yields; a tool returns its whole result")


def _named_parameters(handler: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(handler).parameters)
    for name, parameter in parameters.items():
        if parameter.kind in _UNSUPPORTED:
            raise ToolDeclarationError(f"parameter '{name}' {_UNSUPPORTED[parameter.kind]}")
    return parameters


def _resolve_hints(handler: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Resolve the types of the parameters, but not the return type: it may not exist at runtime."""

    def annotated() -> None: ...

    annotated.__annotations__ = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    namespace = getattr(inspect.unwrap(handler), "__globals__", {})
    try:
        return get_type_hints(annotated, globalns=namespace, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ToolDeclarationError(
            f"a type cannot be resolved: {error}; define it in the module of the function"
        ) from error


def _context_parameter(hints: Mapping[str, Any]) -> str:
    names = [name for name, hint in hints.items() if _is_context(hint)]
    if len(names) > 1:
        raise ToolDeclarationError(f"parameters {_quote_names(names)} are all ToolContext; one is enough")
    return names[0] if names else ""


def _is_context(hint: Any) -> bool:
    if hint is ToolContext:
        return True
    return get_origin(hint) in (Union, UnionType, Annotated) and any(_is_context(part) for part in get_args(hint))


def _arguments_model(
    handler: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> type[BaseModel]:
    missing = [name for name in parameters if name not in hints]
    if missing:
        raise ToolDeclarationError(f"no type for {_quote_names(missing)}; annotate every parameter")
    fields = {name: (hints[name], _default(parameter)) for name, parameter in parameters.items()}
    for name in fields:
        _check_field_name(name)
    config: ConfigDict = {**_STRICT_CONFIG, "protected_namespaces": ()}
    try:
        with warnings.catch_warnings():
            # A parameter may be called `json` or `schema`; the old methods of that name are not used.
            warnings.filterwarnings("ignore", message="Field name .* shadows an attribute", category=UserWarning)
            return cast(Any, create_model)(handler.__name__, __config__=config, __module__=handler.__module__, **fields)
    except (PydanticUserError, TypeError) as error:
        raise ToolDeclarationError(f"the parameters have no schema: {error}") from error


def _default(parameter: inspect.Parameter) -> Any:
    # An empty `Field()` rather than "required": `Annotated[int, Field(default=3)]` says its own default.
    return Field() if parameter.default is inspect.Parameter.empty else parameter.default


def _check_field_name(name: str) -> None:
    if name.startswith("_"):
        raise ToolDeclarationError(f"parameter '{name}' starts with an underscore; a model cannot send it")
    if name.startswith("model_") and hasattr(BaseModel, name):
        raise ToolDeclarationError(f"parameter '{name}' has a name that pydantic uses itself; choose another")


def _check_args_model(args_model: object) -> None:
    if not inspect.isclass(args_model) or not issubclass(args_model, BaseModel) or issubclass(args_model, RootModel):
        raise ToolDeclarationError("args_model must be a pydantic model with named fields")


def _find_args_parameter(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], args_model: type[BaseModel]
) -> str:
    names = list(parameters)
    return names[0] if len(names) == 1 and hints.get(names[0]) is args_model else ""


def _check_fields(parameters: Mapping[str, inspect.Parameter], args_model: type[BaseModel]) -> None:
    fields = args_model.model_fields
    missing = [name for name in fields if name not in parameters]
    if missing:
        raise ToolDeclarationError(
            f"the function does not take {_quote_names(missing)}; name every field of {args_model.__name__} as a"
            " parameter, or annotate a single parameter with the model"
        )
    unfilled = [
        name
        for name, parameter in parameters.items()
        if name not in fields and parameter.default is inspect.Parameter.empty
    ]
    if unfilled:
        raise ToolDeclarationError(f"{args_model.__name__} has no field for {_quote_names(unfilled)}")


def _make_strict(args_model: type[BaseModel]) -> type[BaseModel]:
    """Return the model with extra fields forbidden and strict types, unless it configures these itself."""
    unset: dict[str, Any] = {key: value for key, value in _STRICT_CONFIG.items() if key not in args_model.model_config}
    if not unset:
        return args_model
    namespace = {
        "__module__": args_model.__module__,
        "__qualname__": args_model.__qualname__,
        "__doc__": args_model.__doc__,
        "model_config": unset,
    }
    return new_class(args_model.__name__, (args_model,), exec_body=lambda body: body.update(namespace))


def _check_defaults(model: type[BaseModel]) -> None:
    """Check that defaults survive a round trip through JSON: validated arguments are stored with them."""
    for name, field in model.model_fields.items():
        if field.is_required() or field.default is PydanticUndefined:
            continue
        only = model.model_construct(**{name: field.default})
        try:
            text = only.model_dump_json(include={name}, by_alias=False, warnings=False)
        except PydanticSerializationError as error:
            raise ToolDeclarationError(f"the default of '{name}' has no JSON form: {error}") from error
        try:
            model.model_validate_json(text, by_name=True)
        except ValidationError as error:
            wrong = [found["msg"] for found in error.errors() if found["type"] != "missing"]
            if wrong:
                raise ToolDeclarationError(f"the default of '{name}' does not fit: {wrong[0]}") from error


def _drop_titles(schema: Any) -> None:
    """Remove the titles that pydantic makes from names, wherever a schema can be and never in a value."""
    if not isinstance(schema, dict):
        return
    schema = cast(JsonObject, schema)
    schema.pop("title", None)
    for key in ("properties", "$defs", "patternProperties"):
        for inner in schema.get(key, {}).values():
            _drop_titles(inner)
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for inner in schema.get(key, ()):
            _drop_titles(inner)
    for key in ("items", "additionalProperties", "propertyNames"):
        _drop_titles(schema.get(key))


def _callable_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _quote_names(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
