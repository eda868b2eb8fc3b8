"""What is said when a run is over, waits or was stopped: what was verified, what it used, and what to type next."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from ...domain.call import Question
from ...domain.json import JsonObject
from ...domain.state.lifecycle import RunState
from ...domain.state.verification import Status
from ...runs.result import AgentResult
from ..config.logs import short, with_log
from ..display.formatting import first_words
from ..display.live_text import rows_of
from ..display.output import count, visible_line
from ..exit_codes import ExitCode
from .agent import Prepared

_LABEL_CHARS = 12
_VERIFIED: Mapping[Status, tuple[str, str]] = {
    "passed": ("verified", "green"),
    "failed": ("failed", "red"),
    "stale": ("stale", "yellow"),
    "none": ("unverified", "yellow"),
}
_STATE_STYLES: Mapping[RunState, str] = {RunState.COMPLETED: "green", RunState.FAILED: "red", RunState.CANCELLED: "red"}


def exit_code_of(result: AgentResult, stopped: bool) -> ExitCode:
    if result.state is RunState.COMPLETED:
        return ExitCode.FAILED if result.conflict else ExitCode.OK
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.WAITING if not result.state.is_over else ExitCode.FAILED


def ending(result: AgentResult, prepared: Prepared, width: int, resume: str = "") -> list[Text]:
    """`resume`: what to type to go on, where that is not the usual command."""
    return [line for lines in _ending(result, prepared, width, resume) for line in lines]


def resume_command(run_id: str, prepared: Prepared) -> str:
    """With the same model, as far as it was said on the command line."""
    return with_log(f"interlock runs resume {short(run_id)}{prepared.said}", prepared.named_log)


def verified(result: AgentResult, width: int) -> list[Text]:
    word, style = _VERIFIED[result.verification.status]
    return _fact(word, result.verification.message, width, style)


def as_json(result: AgentResult, code: ExitCode) -> JsonObject:
    """For programs."""
    return {
        "run_id": result.run_id,
        "state": result.state.value,
        "status": result.status,
        "text": result.text,
        "message": result.message,
        "verification": {"status": result.verification.status, "message": result.verification.message},
        "conflict": result.conflict,
        "usage": {name: getattr(result.usage, name) for name in result.usage.__struct_fields__},
        "calls": [_call(record) for record in result.observations],
        "questions": [_question(question) for question in result.questions],
        "exit_code": code.value,
    }


def stopped_as_json(run_id: str, message: str, code: ExitCode) -> JsonObject:
    """For programs: a run that could not be moved on, and is kept."""
    return {"run_id": run_id, "state": "stopped", "text": "", "message": message, "exit_code": code.value}


def _ending(result: AgentResult, prepared: Prepared, width: int, resume: str) -> Iterator[list[Text]]:
    is_over = result.state.is_over
    yield [Text()]
    for question in result.questions:
        yield _fact("waits", f"{question.capability}: {question.reason or question.prompt}", width, "yellow")
    if result.observations and (is_over or result.verification.status != "none"):
        yield verified(result, width)
    if result.conflict:
        yield _fact("conflict", result.conflict, width, "bold red")
    yield _fact("used", _used(result), width)
    if is_over:
        said = result.message if result.state is not RunState.COMPLETED else ""
        yield _fact(result.state.value, said, width, _STATE_STYLES.get(result.state, "yellow"))
    yield [Text(f"  {line}", "dim") for line in _next_commands(result, prepared, resume)]


def _next_commands(result: AgentResult, prepared: Prepared, resume: str) -> Iterator[str]:
    if result.questions:
        question = short(result.questions[0].action_id)
        yield _command(with_log(f"interlock approvals show {question}", prepared.named_log), "see all of it")
        yield _command(with_log(f"interlock approvals approve {question}", prepared.named_log), "or reject")
    if not result.state.is_over:
        yield _command(resume or resume_command(result.run_id, prepared), "go on with the run")
    else:
        yield _command(with_log(f"interlock runs show {short(result.run_id)}", prepared.named_log), "look at the run")


def _command(command: str, about: str) -> str:
    return f"{command:43}  {about}"


def _used(result: AgentResult) -> str:
    usage = result.usage
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out" if usage.input_tokens else ""
    cost = f"cost {usage.cost:,.4f}" if usage.cost else ""
    return "; ".join(part for part in (count(len(result.observations), "call"), tokens, cost) if part)


def _fact(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """A label, and the text beside it in as many rows as it takes."""
    rows = rows_of(visible_line(first_words(text, 1_000)), width - _LABEL_CHARS - 2)
    first = Text("  ").append(f"{label:{_LABEL_CHARS}}" if rows[0] else label, style).append(rows[0])
    return [first, *(Text(" " * (_LABEL_CHARS + 2) + row) for row in rows[1:])]


def _call(seen: Any) -> JsonObject:
    return {"call_id": seen.call_id, "tool": seen.tool, "ok": seen.ok, "code": seen.code, "summary": seen.summary}


def _question(question: Question) -> JsonObject:
    return {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "tool": question.tool_name,
        "capability": question.capability,
        "prompt": question.prompt,
        "reason": question.reason,
    }
