"""Stage 3: does the input fit the schema, and can it be done now? Both before anybody is asked for permission."""

from typing import TYPE_CHECKING

from .. import lazy_module
from ..domain.call import KnownCall, ValidCall
from ..domain.outcome import Failure
from ..domain.suggestions import find_near_name
from ..domain.tool import CheckProblem, ToolContext, ToolDefinition
from ..rendering.text import describe_error, end_sentence, quote_value
from .parts import Parts

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import ErrorDetails
else:
    pydantic = lazy_module("pydantic")

_MAX_ERRORS = 20
_MAX_ECHO_CHARS = 80


def validate(known: KnownCall, arguments_json: bytes) -> ValidCall | Failure:
    """Return the call with these arguments: those the model sent, or those that a hook or a person changed."""
    model = known.tool.args_model
    try:
        checked = model.__pydantic_validator__.validate_json(arguments_json)
        arguments = model.__pydantic_serializer__.to_python(checked, mode="json", by_alias=True)
    except pydantic.ValidationError as error:
        return _misfit(known.tool, error)
    except Exception as error:
        return _precondition(f"A validator of {known.tool.name} failed: {describe_error(error)}.")
    return ValidCall(known, known.accepted.intent.call_id, known.tool, checked, arguments)


async def check_state(valid: ValidCall, context: ToolContext, parts: Parts) -> Failure | None:
    """Return the tool's own runtime check: read before edit, unique match, inside the workspace. None means doable."""
    check = valid.tool.check
    if check is None:
        return None
    try:
        problem: object = await parts.check(check, valid.copy_arguments(), context)
    except Exception as error:
        return _precondition(f"The check of {valid.tool.name} failed: {describe_error(error)}.")
    match problem:
        case None:
            return None
        case CheckProblem():
            return Failure.from_code(problem.code, f"{end_sentence(problem.message)} Nothing was executed.")
        case _:
            return _precondition(f"The check of {valid.tool.name} returned {type(problem).__name__}.")


def _precondition(message: str) -> Failure:
    return Failure.from_code("runtime_precondition_failed", f"{message} Nothing was executed.")


def _misfit(tool: ToolDefinition, error: "pydantic.ValidationError") -> Failure:
    found = error.errors(include_url=False, include_context=False)
    fields = list(tool.spec.parameters_schema["properties"])
    errors = [_field_message(detail, fields) for detail in found[:_MAX_ERRORS]]
    if len(found) > _MAX_ERRORS:
        errors.append(f"and {len(found) - _MAX_ERRORS} more")
    message = f"The arguments do not fit {tool.name}: {'; '.join(errors)}. Nothing was executed."
    return Failure.from_code("schema_invalid", message, details={"errors": errors})


def _field_message(detail: "ErrorDetails", fields: list[str]) -> str:
    """Format a problem, such as `input.path is required` or `input.count: Input should be greater than 0 (got -1)`."""
    field = ".".join(("input", *(str(part) for part in detail["loc"])))
    match detail["type"]:
        case "missing":
            return f"{field} is required"
        case "extra_forbidden":
            near = find_near_name(str(detail["loc"][0]), fields) if len(detail["loc"]) == 1 else None
            return f"{field} is not a known field" + (f" (did you mean {near}?)" if near else "")
        case _:
            return f"{field}: {detail['msg']} (got {quote_value(detail['input'], _MAX_ECHO_CHARS)})"
