"""The result of a run that is over, waits or was stopped: verification, usage, and suggested commands."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from ...domain.call import Question
from ...domain.json import JsonObject
from ...domain.state.lifecycle import RunState
from ...domain.state.verification import VerificationStatus
from ...rendering.text import pluralize, shorten_line
from ...runs.result import AgentResult
from ..config.logs import add_log_option, shorten_id
from ..display.live_text import wrap_line
from ..display.output import make_visible
from ..exit_codes import ExitCode
from .agent import PreparedRun

_LABEL_CHARS = 12
_VERIFICATION_LABELS: Mapping[VerificationStatus, tuple[str, str]] = {
    "passed": ("verified", "green"),
    "failed": ("failed", "red"),
    "stale": ("stale", "yellow"),
    "none": ("unverified", "yellow"),
}
_STATE_STYLES: Mapping[RunState, str] = {RunState.COMPLETED: "green", RunState.FAILED: "red", RunState.CANCELLED: "red"}


def get_exit_code(result: AgentResult, stopped: bool) -> ExitCode:
    if result.state is RunState.COMPLETED:
        return ExitCode.FAILED if result.conflict else ExitCode.OK
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.WAITING if not result.state.is_over else ExitCode.FAILED


def format_result(result: AgentResult, prepared: PreparedRun, width: int, resume: str = "") -> list[Text]:
    """Format a result. `resume`: the command to resume, where that is not the usual one."""
    return [line for lines in _format_sections(result, prepared, width, resume) for line in lines]


def build_resume_command(run_id: str, prepared: PreparedRun) -> str:
    """Return the command to resume, with the model given on the command line."""
    return add_log_option(f"interlock runs resume {shorten_id(run_id)}{prepared.resume_options}", prepared.log_path)


def format_verification(result: AgentResult, width: int) -> list[Text]:
    label, style = _VERIFICATION_LABELS[result.verification.status]
    return _format_fact(label, result.verification.message, width, style)


def result_to_json(result: AgentResult, code: ExitCode) -> JsonObject:
    """Return a result for JSON output."""
    return {
        "run_id": result.run_id,
        "state": result.state.value,
        "status": result.status,
        "text": result.text,
        "message": result.message,
        "verification": {"status": result.verification.status, "message": result.verification.message},
        "conflict": result.conflict,
        "usage": {name: getattr(result.usage, name) for name in result.usage.__struct_fields__},
        "calls": [_call_to_json(record) for record in result.observations],
        "questions": [_question_to_json(question) for question in result.questions],
        "exit_code": code.value,
    }


def stopped_to_json(run_id: str, message: str, code: ExitCode) -> JsonObject:
    """Return JSON output for a run that could not continue and stays resumable."""
    return {"run_id": run_id, "state": "stopped", "text": "", "message": message, "exit_code": code.value}


def _format_sections(result: AgentResult, prepared: PreparedRun, width: int, resume: str) -> Iterator[list[Text]]:
    is_over = result.state.is_over
    yield [Text()]
    for question in result.questions:
        yield _format_fact("waits", f"{question.capability}: {question.reason or question.prompt}", width, "yellow")
    if result.observations and (is_over or result.verification.status != "none"):
        yield format_verification(result, width)
    if result.conflict:
        yield _format_fact("conflict", result.conflict, width, "bold red")
    yield _format_fact("used", _format_usage(result), width)
    if is_over:
        message = result.message if result.state is not RunState.COMPLETED else ""
        yield _format_fact(result.state.value, message, width, _STATE_STYLES.get(result.state, "yellow"))
    yield [Text(f"  {line}", "dim") for line in _suggest_commands(result, prepared, resume)]


def _suggest_commands(result: AgentResult, prepared: PreparedRun, resume: str) -> Iterator[str]:
    if result.questions:
        question = shorten_id(result.questions[0].action_id)
        yield _format_command(
            add_log_option(f"interlock approvals show {question}", prepared.log_path), "see all of it"
        )
        yield _format_command(add_log_option(f"interlock approvals approve {question}", prepared.log_path), "or reject")
    if not result.state.is_over:
        yield _format_command(resume or build_resume_command(result.run_id, prepared), "go on with the run")
    else:
        yield _format_command(
            add_log_option(f"interlock runs show {shorten_id(result.run_id)}", prepared.log_path), "look at the run"
        )


def _format_command(command: str, about: str) -> str:
    return f"{command:43}  {about}"


def _format_usage(result: AgentResult) -> str:
    usage = result.usage
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out" if usage.input_tokens else ""
    cost = f"cost {usage.cost:,.4f}" if usage.cost else ""
    return "; ".join(part for part in (pluralize(len(result.observations), "call"), tokens, cost) if part)


def _format_fact(label: str, text: str, width: int, style: str = "") -> list[Text]:
    """A label, and the text beside it in as many rows as it takes."""
    rows = wrap_line(make_visible(shorten_line(text, 1_000)), width - _LABEL_CHARS - 2)
    first = Text("  ").append(f"{label:{_LABEL_CHARS}}" if rows[0] else label, style).append(rows[0])
    return [first, *(Text(" " * (_LABEL_CHARS + 2) + row) for row in rows[1:])]


def _call_to_json(record: Any) -> JsonObject:
    return {
        "call_id": record.call_id,
        "tool": record.tool,
        "ok": record.ok,
        "code": record.code,
        "summary": record.summary,
    }


def _question_to_json(question: Question) -> JsonObject:
    return {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "tool": question.tool_name,
        "capability": question.capability,
        "prompt": question.prompt,
        "reason": question.reason,
    }
