"""One run on a terminal: what it is, where it stands, what was said and done, and what to type next."""

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from ..domain.call import Question
from .runs_log import short, with_log
from .runs_picture import Picture
from .runs_rows import Rows
from .runs_story import Told
from .runs_words import StateWord, date_and_time, first_words, for_how_long, state_text, until
from .show import count, say

_MAX_TOLD = 40
_MAX_ARTIFACTS = 10


def say_picture(shown: Picture, now: int, log: Path | None) -> None:
    say("run ", short(shown.run_id), ": ", state_text(shown.state), f", {_since(shown, now)}")
    for label, text in _about(shown):
        say(Text(f"  {label + ':':14}"), text)
    rows = Rows()
    if shown.told:
        say("")
    for told in _middle_cut(shown.told):
        rows.told(told)
    for title, lines in _sections(shown, now):
        say("")
        say(title)
        for line in lines:
            say(f"  {line}")
    say("")
    say("next:")
    for command in next_commands(shown):
        say(f"  {with_log(command, log)}")


def next_commands(shown: Picture) -> list[str]:
    """What may be typed now, the most likely first."""
    name = short(shown.run_id)
    asked = [f"interlock approvals show {short(question.action_id)}" for question in shown.questions[:1]]
    match shown.state:
        case StateWord.WAITING:
            return [*asked, f"interlock runs resume {name}", f"interlock runs cancel {name}"]
        case StateWord.STOPPED:
            return [f"interlock runs resume {name}", f"interlock runs cancel {name}"]
        case StateWord.RUNNING:
            return [f"interlock runs watch {name}", f"interlock runs cancel {name}"]
        case _:
            return [f"interlock replay {name}", f"interlock runs fork {name}", f"interlock audit verify {name}"]


def _since(shown: Picture, now: int) -> str:
    where = f"in {shown.held_by}, " if shown.held_by else ""
    return f"{where}last event {for_how_long(now - shown.changed_at)} ago"


def _about(shown: Picture) -> Iterator[tuple[str, str]]:
    started, usage = shown.started, shown.usage
    yield "id", shown.run_id
    if started.agent or shown.model:
        yield "agent", ", ".join(part for part in (started.agent, shown.model) if part)
    if started.workspace:
        yield "workspace", started.workspace
    if started.requester:
        yield "for", started.requester
    yield "started", f"{date_and_time(shown.started_at)}, {count(shown.events, 'event')}"
    if started.parent_run_id:
        yield "inside of", f"{short(started.parent_run_id)}, call {started.parent_call_id}"
    if started.forked_from:
        yield "fork of", f"{short(started.forked_from)} at event {started.forked_at}"
    if shown.requests:
        cost = f", cost {usage.cost:.4g}" if usage.cost else ""
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        yield "used", f"{count(shown.requests, 'request')}, {count(shown.tool_calls, 'call')}, {tokens}{cost}"
    if shown.message and shown.state is not StateWord.COMPLETED:
        yield "ended with", first_words(shown.message)
    yield "verification", f"{shown.verification.status}: {shown.verification.message}"
    if shown.conflict:
        yield "conflict", shown.conflict


def _middle_cut(told: tuple[Told, ...]) -> Iterator[Told]:
    half = _MAX_TOLD // 2
    if len(told) <= _MAX_TOLD:
        yield from told
        return
    yield from told[:half]
    yield Told("...", f"{len(told) - _MAX_TOLD:,} more; `interlock runs events` has all", style="dim")
    yield from told[-half:]


def _sections(shown: Picture, now: int) -> Iterator[tuple[str, list[str]]]:
    if shown.questions:
        yield "open questions:", [_question(question, shown, now) for question in shown.questions]
    if shown.inside:
        yield "runs inside its calls:", [f"{short(each.run_id)}  {each.state}  {each.agent}" for each in shown.inside]
    if shown.forks:
        yield "forks:", [short(run_id) for run_id in shown.forks]
    if shown.artifacts:
        more = len(shown.artifacts) - _MAX_ARTIFACTS
        lines = [f"{each.id}  {each.kind}, {each.size_bytes:,} bytes" for each in shown.artifacts[:_MAX_ARTIFACTS]]
        yield "artifacts:", [*lines, f"... {more:,} more"] if more > 0 else lines


def _question(question: Question, shown: Picture, now: int) -> str:
    where = "" if question.run_id == shown.run_id else f" in run {short(question.run_id)}"
    asked = f"asked {for_how_long(now - question.asked_at)} ago" if question.asked_at else "asked"
    ends = f", ends {until(question.expires_at, now)}" if question.expires_at else ""
    return f"{short(question.action_id)}  {question.capability or question.tool_name}{where}, {asked}{ends}"
