"""Functions behind a gate, for frameworks to which a tool is just a function.

Such a framework names neither the run nor the call. The run is the one that `gate.run` names; the n-th call of a
function with the same arguments in it is the same call when the program runs again. The framework cannot pause at a
tool, so a call that has to be asked about waits until a person answers, from whichever process.
"""

import functools
import inspect
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..domain.call import ToolIntent
from ..domain.json import encode, encode_sorted
from ..domain.tool import JsonObject
from ..registry.decorator import tool
from ..rendering.values import json_safe

if TYPE_CHECKING:
    from .gate import Gate

_FRAMEWORK = "function"


def guard_function(
    gate: "Gate", function: Callable[..., Any], *, name: str = "", description: str = ""
) -> Callable[..., Any]:
    """Return the function behind the gate: the same signature and docstring, and every call is governed.

    It returns what the function returns, or the text for the model that says why it did not run.
    """
    declared = tool(function, name=name or getattr(function, "__name__", ""))
    name = declared.name
    gate.declare(name, description or declared.spec.description, declared.spec.parameters_schema, source=_FRAMEWORK)
    signature = inspect.signature(function)

    def identify(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ToolIntent]:
        run = gate.current_run()
        arguments: JsonObject = json_safe(dict(signature.bind(*args, **kwargs).arguments))
        key = f"{name}-{sha256(encode_sorted(arguments)).hexdigest()[:16]}"
        run.counts[key] = count = run.counts.get(key, 0) + 1
        return run.run_id, ToolIntent(call_id=f"{key}-{count}", tool_name=name, arguments=arguments)

    def restore(arguments: JsonObject) -> dict[str, Any]:
        """Return what was judged in the types of the signature: JSON has no dates, and one kind of number."""
        return dict(declared.args_model.model_validate_json(encode(arguments)))

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            run_id, intent = identify(args, kwargs)

            async def execute(arguments: JsonObject) -> Any:
                return await function(**restore(arguments))

            return (await gate.call(run_id, intent, execute, waits="inline", framework=_FRAMEWORK)).result

        return guarded_async

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        run_id, intent = identify(args, kwargs)

        def execute(arguments: JsonObject) -> Any:
            return function(**restore(arguments))

        return gate.call_sync(run_id, intent, execute, waits="inline", framework=_FRAMEWORK).result

    return guarded
