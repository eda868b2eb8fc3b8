"""`tool` turns a function into a `ToolDefinition`.

Invalid declarations are rejected here with a message, not when a model first calls the tool.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, get_args, overload

import msgspec

from .. import lazy_module
from ..domain import json
from ..domain.effect import check_template
from ..domain.errors import ToolDeclarationError
from ..domain.tool import (
    CAPABILITY_ARGUMENT,
    CallContext,
    Concurrency,
    Consent,
    Diagnose,
    EffectKey,
    ErrorFormatter,
    Guardrail,
    Isolation,
    JsonObject,
    Middleware,
    NormalizedOutput,
    PostHook,
    PreHook,
    Reconcile,
    Repeat,
    ResourceKeys,
    ResourceKind,
    Risk,
    RuntimeCheck,
    SandboxScope,
    TimeoutBehavior,
    ToolDefinition,
    ToolOrigin,
    ToolSpec,
    Visibility,
)
from ..domain.trial import TrialRunner
from ..rendering.question_title import check_key_facts, check_title

if TYPE_CHECKING:
    from pydantic import BaseModel

    from . import docstring
    from . import signature as signatures
else:
    docstring = lazy_module(".docstring", __package__)
    # It loads pydantic, which a program needs that declares a tool.
    signatures = lazy_module(".signature", __package__)

Function: TypeAlias = Callable[..., Any]
#: From the arguments to the name or names of what the call uses.
KeyFunction: TypeAlias = Callable[[JsonObject], str | Iterable[str]]


class ToolOptions(TypedDict, total=False):
    """Options of a tool. The meanings are those of `ToolDefinition`'s fields."""

    #: Default: the function's name.
    name: str
    #: Default: the docstring without its sections.
    description: str
    #: Default: a digest of what the tool declares.
    version: str
    #: Default: made from the function's parameters.
    args_model: "type[BaseModel]"
    #: Default: none, which is a plain tool.
    risk: str | Iterable[str]
    #: Default: true when the only risk is `read`.
    read_only: bool
    idempotent: bool
    #: Default: `keyed` with keys; else `exclusive` when it may write, execute or delegate; else `safe`.
    concurrency: Concurrency
    read_keys: KeyFunction
    write_keys: KeyFunction
    timeout_seconds: float
    #: Another word for `timeout_seconds`.
    default_timeout: float
    max_output_chars: int
    isolation: Isolation
    #: With `isolation="process"`: its process reaches only hosts that egress rules of the policy allow.
    egress: bool
    origin: ToolOrigin
    source: str
    #: The operation as operators know it, such as method and path, with arguments in braces: `"POST /refunds/{order}"`.
    capability: str
    #: The title of questions about its calls, with arguments in braces: `"Refund {amount} for {order}"`.
    title: str
    #: The arguments to show first in a question, at most six: `("amount", "order")`.
    key_facts: Sequence[str]
    #: Which arguments name a `path`, a `host` or a `command`: `{"file": "path", "url": "host"}`.
    resources: Mapping[str, ResourceKind]
    #: What the tool needs of the user that the run acts for: `Consent(provider="mail", scopes=("mail.read",))`.
    consent: Consent
    #: What identifies the effect of a call: `"refund:{order}"`, or a function of the arguments. It happens once.
    effect: EffectKey
    #: What happens to a call whose effect happened before: `deny`, `ask` (the default) or `allow`.
    repeat: Repeat
    #: How its calls are tried where policy asks `after`: a `TrialRunner`.
    trial: TrialRunner
    #: What a call can access, for tools that restrict themselves.
    reach: Callable[[JsonObject, CallContext], SandboxScope]
    visible: Visibility
    check: RuntimeCheck
    authorize: Callable[[JsonObject, CallContext], Any]
    normalize: Callable[[Any], NormalizedOutput]
    reconcile: Reconcile
    #: Reports on what a successful call changed: `await diagnose(arguments, facts, context)`.
    diagnose: Diagnose
    pre_hooks: Iterable[PreHook]
    middleware: Iterable[Middleware]
    post_hooks: Iterable[PostHook]
    input_guardrails: Iterable[Guardrail]
    output_guardrails: Iterable[Guardrail]
    raise_on_error: bool
    #: What the model reads when the tool raised. None makes nothing of it: the exception reaches the caller.
    failure_error_function: ErrorFormatter | None
    timeout_behavior: TimeoutBehavior
    timeout_error_function: ErrorFormatter


#: The same, once inside.
ToolOptionMap: TypeAlias = Mapping[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_EXCLUSIVE_RISKS = {Risk.WRITE, Risk.EXECUTE, Risk.DELEGATE}
_CHOICES = {
    "concurrency": get_args(Concurrency),
    "isolation": get_args(Isolation),
    "origin": get_args(ToolOrigin),
    "repeat": get_args(Repeat),
    "timeout_behavior": get_args(TimeoutBehavior),
}
#: Options that are one function, and how many arguments it is called with.
_FUNCTIONS = {
    "reach": 2,
    "visible": 1,
    "check": 2,
    "authorize": 2,
    "normalize": 1,
    "reconcile": 1,
    "diagnose": 3,
    "read_keys": 1,
    "write_keys": 1,
    "failure_error_function": 2,
    "timeout_error_function": 2,
}
_HOOKS = ("pre_hooks", "post_hooks", "input_guardrails", "output_guardrails")
_PASSED_THROUGH = (
    "idempotent",
    "max_output_chars",
    "isolation",
    "egress",
    "origin",
    "source",
    "capability",
    "title",
    "resources",
    "consent",
    "effect",
    "repeat",
    "trial",
    "reach",
    "visible",
    "check",
    "authorize",
    "normalize",
    "reconcile",
    "diagnose",
    "raise_on_error",
    "propagate_errors",
    "failure_error_function",
    "timeout_behavior",
    "timeout_error_function",
)


@overload
def tool(handler: Function, /, **options: Unpack[ToolOptions]) -> ToolDefinition: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], ToolDefinition]: ...
def tool(
    handler: Function | None = None, /, **options: Unpack[ToolOptions]
) -> ToolDefinition | Callable[[Function], ToolDefinition]:
    """Declare a tool: `@tool`, `@tool(...)` or `tool(function, ...)`."""
    if handler is None:
        return lambda decorated: _declare_named(decorated, _normalize_options(dict(options)))
    return _declare_named(handler, _normalize_options(dict(options)))


def _normalize_options(options: dict[str, Any]) -> ToolOptionMap:
    if options.get("failure_error_function", True) is None:
        del options["failure_error_function"]
        options["propagate_errors"] = True
    return options


def check_name(name: str) -> None:
    """Check that model providers accept the name."""
    if not _NAME.fullmatch(name):
        raise ToolDeclarationError(f"a tool cannot be called {name!r}: 1 to 64 letters, digits, '_' or '-'")


def derive_version(definition: ToolDefinition) -> str:
    """Return the version of a tool without one: a digest of its declaration."""
    declared: dict[str, Any] = {
        "spec": definition.spec,
        "risk": sorted(definition.risk),
        "read_only": definition.read_only,
        "idempotent": definition.idempotent,
        "concurrency": definition.concurrency,
        "isolation": definition.isolation,
        "timeout_seconds": definition.timeout_seconds,
        "timeout_behavior": definition.timeout_behavior,
        "max_output_chars": definition.max_output_chars,
        "origin": definition.origin,
        "source": definition.source,
        "resources": definition.resources,
        "raise_on_error": definition.raise_on_error or definition.propagate_errors,
    }
    if definition.capability:
        declared["capability"] = definition.capability
    if definition.title:
        declared["title"] = definition.title
    if definition.key_facts:
        declared["key_facts"] = definition.key_facts
    if definition.consent is not None:
        declared["consent"] = definition.consent
    if definition.effect is not None:
        key = definition.effect if isinstance(definition.effect, str) else "function"
        declared |= {"effect": key, "repeat": definition.repeat}
    if definition.egress:
        declared["egress"] = True
    if definition.trial is not None:
        declared["trial"] = True
    return "sha256:" + sha256(json.encode_sorted(declared)).hexdigest()[:16]


def _declare_named(handler: Function, options: ToolOptionMap) -> ToolDefinition:
    name = options.get("name", getattr(handler, "__name__", ""))
    try:
        return _declare(handler, name, options)
    except ToolDeclarationError as error:
        raise ToolDeclarationError(f"Tool {name!r}: {error}") from error.__cause__


def _declare(handler: Function, name: str, options: ToolOptionMap) -> ToolDefinition:
    _check_options(name, options)
    signature = signatures.read_signature(handler, options.get("args_model"))
    doc = docstring.parse_docstring(handler.__doc__)
    spec = ToolSpec(
        name=name,
        description=options.get("description", doc.description),
        parameters_schema=signatures.arguments_schema(signature.args_model, doc.parameters),
    )
    return _define(handler, spec, signature, options)


def declare_by_schema(
    handler: Function, spec: ToolSpec, args_model: "type[BaseModel]", options: ToolOptionMap
) -> ToolDefinition:
    """Declare a tool whose schema is given. Its handler takes `arguments`, checked by the model, and `context`."""
    try:
        options = _normalize_options(dict(options))
        _check_options(spec.name, options)
        return _define(handler, spec, signatures.Signature(args_model, "arguments", "context"), options)
    except ToolDeclarationError as error:
        raise ToolDeclarationError(f"Tool {spec.name!r}: {error}") from error.__cause__


def _define(
    handler: Function, spec: ToolSpec, signature: "signatures.Signature", options: ToolOptionMap
) -> ToolDefinition:
    is_async = signatures.is_coroutine_function(handler)
    if options.get("isolation") == "process":
        _check_process(handler, is_async)
    elif options.get("egress"):
        raise ToolDeclarationError('egress needs isolation="process": only a process can have its own network')
    if "effect" in options or "repeat" in options:
        _check_effect(options, spec.parameters_schema["properties"])
    capability = options.get("capability", "")
    if not isinstance(capability, str):
        raise ToolDeclarationError(f'capability is {capability!r}; it must be text like "POST /refunds/{{order}}"')
    for argument in CAPABILITY_ARGUMENT.findall(capability):
        if argument not in spec.parameters_schema["properties"]:
            raise ToolDeclarationError(f"capability names {{{argument}}}, and there is no such argument")
    if "title" in options or "key_facts" in options:
        _check_question_texts(options, spec.parameters_schema["properties"])
    definition = ToolDefinition(
        spec=spec,
        version=options.get("version", ""),
        handler=handler,
        is_async=is_async,
        args_model=signature.args_model,
        args_parameter=signature.args_parameter,
        context_parameter=signature.context_parameter,
        key_facts=tuple(options.get("key_facts", ())),
        **_limits(options),
        **_functions(options),
        **{key: options[key] for key in _PASSED_THROUGH if key in options},
    )
    if definition.version:
        return definition
    return msgspec.structs.replace(definition, version=derive_version(definition))


def _check_options(name: str, options: ToolOptionMap) -> None:
    unknown = set(options) - set(ToolOptions.__annotations__) - {"propagate_errors"}
    if unknown:
        raise ToolDeclarationError(f"there is no option {', '.join(sorted(unknown))}")
    check_name(name)
    for key, choices in _CHOICES.items():
        if key in options and options[key] not in choices:
            raise ToolDeclarationError(f"{key} is {options[key]!r}; it must be one of {', '.join(choices)}")
    for key, argument_count in _FUNCTIONS.items():
        if key in options:
            _check_function(key, options[key], argument_count)
    for argument, kind in options.get("resources", {}).items():
        if kind not in get_args(ResourceKind):
            raise ToolDeclarationError(f"{argument} is no {kind!r}; it names a {', '.join(get_args(ResourceKind))}")


def _check_effect(options: ToolOptionMap, arguments: Iterable[str]) -> None:
    effect = options.get("effect")
    if effect is None:
        raise ToolDeclarationError('repeat needs an effect, such as effect="refund:{order}"')
    if not isinstance(effect, str):
        _check_function("effect", effect, 1)
        return
    try:
        check_template(effect, list(arguments))
    except ValueError as error:
        raise ToolDeclarationError(f"effect {effect[:200]!r}: {error}") from None


def _check_question_texts(options: ToolOptionMap, arguments: Iterable[str]) -> None:
    title, key_facts, known = options.get("title", ""), options.get("key_facts", ()), list(arguments)
    if not isinstance(title, str):
        raise ToolDeclarationError(f'title is {title!r}; it must be text like "Refund {{amount}} for {{order}}"')
    if isinstance(key_facts, str) or not all(isinstance(name, str) for name in key_facts):
        raise ToolDeclarationError(f'key_facts is {key_facts!r}; it must be names like ("amount", "order")')
    try:
        if title:
            check_title(title, known)
        check_key_facts(list(key_facts), known)
    except ValueError as error:
        raise ToolDeclarationError(f"title or key_facts: {error}") from None


def _check_function(key: str, function: object, argument_count: int) -> None:
    if not callable(function) or not signatures.accepts_arguments(function, argument_count):
        arguments = "1 argument" if argument_count == 1 else f"{argument_count} arguments"
        raise ToolDeclarationError(f"{key} must be a function that takes {arguments}")


def _check_process(handler: Function, is_async: bool) -> None:
    if is_async:
        raise ToolDeclarationError('isolation="process" needs a sync function; an async one runs in the loop')
    if not inspect.isfunction(handler) or "." in handler.__qualname__ or handler.__name__ == "<lambda>":
        raise ToolDeclarationError(
            'isolation="process" needs a function at the top of a module, which the other process can import'
        )


def _limits(options: ToolOptionMap) -> dict[str, Any]:
    """Return the options for scheduling and policy."""
    risk = _risk(options.get("risk", ()))
    read_only = options.get("read_only", risk == frozenset({Risk.READ}))
    if read_only and Risk.WRITE in risk:
        raise ToolDeclarationError("read_only contradicts the risk 'write'")
    if read_only and "effect" in options:
        raise ToolDeclarationError("read_only contradicts effect: what only reads has none")
    if not options.get("max_output_chars", 1) > 0:
        raise ToolDeclarationError("max_output_chars must be positive")
    concurrency = _concurrency(options, risk, read_only)
    return {"risk": risk, "read_only": read_only, **concurrency, **_timeout(options)}


def _risk(words: str | Iterable[str]) -> frozenset[Risk]:
    try:
        return frozenset(Risk(word) for word in ((words,) if isinstance(words, str) else words))
    except ValueError as error:
        raise ToolDeclarationError(f"{error}; a risk is one of {', '.join(Risk)}") from None


def _concurrency(options: ToolOptionMap, risk: frozenset[Risk], read_only: bool) -> dict[str, Any]:
    keys = {key: _as_key_set(options[key]) for key in ("read_keys", "write_keys") if key in options}
    unlocked = "safe" if read_only or not risk & _EXCLUSIVE_RISKS else "exclusive"
    concurrency = options.get("concurrency", "keyed" if keys else unlocked)
    if concurrency == "keyed" and not keys:
        raise ToolDeclarationError('concurrency="keyed" needs read_keys or write_keys')
    if keys and concurrency != "keyed":
        raise ToolDeclarationError(f'{" and ".join(keys)} would be ignored with concurrency="{concurrency}"')
    return {"concurrency": concurrency, **keys}


def _as_key_set(keys_of: KeyFunction) -> ResourceKeys:
    def keys(arguments: JsonObject) -> frozenset[str]:
        found = keys_of(arguments)
        return frozenset((found,)) if isinstance(found, str) else frozenset(found)

    return keys


def _timeout(options: ToolOptionMap) -> dict[str, float]:
    given = [key for key in ("timeout_seconds", "default_timeout") if key in options]
    if not given:
        return {}
    if len(given) > 1:
        raise ToolDeclarationError("timeout_seconds and default_timeout are the same; give one")
    seconds = options[given[0]]
    if not isinstance(seconds, int | float) or not isfinite(seconds) or not seconds > 0:
        raise ToolDeclarationError(f"{given[0]} is {seconds!r}; it must be a number of seconds above 0")
    return {"timeout_seconds": float(seconds)}


def _functions(options: ToolOptionMap) -> dict[str, Any]:
    hooks = {key: tuple(map(signatures.adapt_hook, _function_list(options, key))) for key in _HOOKS}
    middleware = _function_list(options, "middleware")
    for layer in middleware:
        _check_function("middleware", layer, 3)
    return {**hooks, "middleware": middleware}


def _function_list(options: ToolOptionMap, key: str) -> tuple[Function, ...]:
    given: Any = options.get(key, ())
    functions = () if callable(given) else tuple(given)
    if callable(given) or not all(map(callable, functions)):
        raise ToolDeclarationError(f"{key} must be a list of functions")
    return functions
