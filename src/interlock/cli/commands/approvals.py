"""`interlock approvals`: what runs ask people, and the answers, from any terminal."""

import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from ...domain.tool import Risk
from ...policy.files.values import parse_duration
from ...storage.event_log import EventLog
from ..config.logs import complete_run, has_log, resolve_run, run_with_log
from ..display.output import echo_json, echo_list
from ..display.questions import (
    FoundQuestion,
    QuestionFilter,
    complete_question,
    echo_question,
    find_question,
    format_question_row,
    list_open_questions,
    question_to_json,
    sort_questions,
)
from ..exit_codes import format_exit_codes
from ..options import JsonOption, LogOption, argument, create_app, option

_EXITS = format_exit_codes(
    ok="done, and the answer was accepted",
    failed="already answered, or the run is over; with --resume also: the run failed",
    usage="bad usage, or the answer is not valid",
    waiting="not applied yet, or asked again; with --resume also: the run waits for a person",
    refused="with --resume: the last call of the run was refused",
    interrupted="interrupted",
)

app = create_app(_EXITS, is_group=True)

_QuestionArgument: TypeAlias = Annotated[
    str,
    argument(
        "ID",
        "Id of a question, as listed by `approvals list`. A shorter id, or `last`, needs --hash or a confirmation.",
        complete_question,
    ),
]
_ByOption: TypeAlias = Annotated[
    str, option("Name of the person who answers. Default: your login name.", metavar="NAME")
]
_ReasonOption: TypeAlias = Annotated[
    str, option("Reason for the log. After a rejection the model sees it, too.", metavar="TEXT")
]
_HashOption: TypeAlias = Annotated[
    str, option("First 4 or more characters of the payload hash shown by `show`.", "--hash", metavar="HASH")
]
_ResumeOption: TypeAlias = Annotated[bool, typer.Option("--resume", help="Resume the run here when no process has it.")]


@app.callback()
def approvals() -> None:
    """Answer what runs ask, from any terminal.

    The first answer to a question counts, wherever it comes from. An approval is for exactly what `show` shows.
    """


@app.command("list", epilog=_EXITS)
def list_(  # noqa: PLR0913 - one for each option
    *,
    run: Annotated[str, option("Only questions of this run.", metavar="RUN", autocompletion=complete_run)] = "",
    search: Annotated[
        str, option("Words in the title or the arguments, and bounds of numbers: 'mia amount>=500'.", metavar="TEXT")
    ] = "",
    agent: Annotated[str, option("Only questions of this agent.", metavar="NAME")] = "",
    requester: Annotated[str, option("Only questions of runs that act for this person.", metavar="NAME")] = "",
    tool: Annotated[str, option("Only questions about this tool.", metavar="NAME")] = "",
    risk: Annotated[Risk | None, typer.Option(help="Only questions with this risk.")] = None,
    rule: Annotated[str, option("Only questions that this policy rule asks.", metavar="RULE")] = "",
    older_than: Annotated[str, option("Only questions that wait this long: 30m, 8h, 2d.", metavar="TIME")] = "",
    sort: Annotated[
        Literal["oldest", "newest", "deadline"], typer.Option(help="Order: by age, or the next deadline first.")
    ] = "oldest",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the open questions of all runs, the oldest first."""
    now = time.time_ns()
    asked_before = now - round((parse_duration(older_than) or 0) * 1e9) if older_than else 0
    wanted = QuestionFilter(
        search=search,
        agent=agent,
        requester=requester,
        tool=tool,
        risk=risk or "",
        rule=rule,
        asked_before=asked_before,
    )

    async def load(event_log: EventLog) -> list[FoundQuestion]:
        return await list_open_questions(event_log, await resolve_run(event_log, run) if run else "")

    listed = run_with_log(log, load) if has_log(log) else []
    found = sort_questions([each for each in listed if wanted.matches(each)], sort)
    echo_list(
        as_json,
        [question_to_json(each) for each in found] if as_json else (),
        ("ID", "RUN", "TOOL", "AGE", "EXPIRES", "RISK", "WHAT"),
        [format_question_row(each.question, now) for each in found],
        empty="No open question matches." if listed else "No open questions.",
    )


@app.command(epilog=_EXITS)
def show(question: _QuestionArgument, log: LogOption = None, as_json: JsonOption = False) -> None:
    """Show a question in full: what would run, who asks and why, the risk, what changed, and the hash."""
    found = run_with_log(log, lambda event_log: find_question(event_log, question))
    if as_json:
        echo_json(question_to_json(found))
    else:
        echo_question(found, time.time_ns(), log)


@app.command(epilog=_EXITS)
def approve(  # noqa: PLR0913 - one for each option
    question: _QuestionArgument,
    *,
    scope: Annotated[
        Literal["once", "run", "rule"],
        typer.Option(help="Approve this call once, identical calls until the run ends, or save a rule."),
    ] = "once",
    rule: Annotated[
        str, option("With --scope rule: a narrower rule to save. Default: the suggested one.", metavar="RULE")
    ] = "",
    edit: Annotated[
        Path | None, option("JSON file with edited arguments to run it with; - reads standard input.", metavar="FILE")
    ] = None,
    change: Annotated[
        list[str] | None,
        option("Argument to change: text, or = and JSON (n==3). Repeatable.", "--set", metavar="NAME=VALUE"),
    ] = None,
    shown_hash: _HashOption = "",
    reason: _ReasonOption = "",
    by: _ByOption = "",
    resume: _ResumeOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the call run, as it was asked or with other arguments.

    Where the risk is high, --hash has to say what you looked at.
    """
    given = {"scope": scope, "rule": rule, "edit": edit, "changes": change or [], "shown_hash": shown_hash}
    _answer_question("approve", question, given, reason=reason, by=by, resume=resume, log=log, as_json=as_json)


@app.command(epilog=_EXITS)
def reject(  # noqa: PLR0913 - one for each option
    question: _QuestionArgument,
    *,
    shown_hash: _HashOption = "",
    reason: _ReasonOption = "",
    by: _ByOption = "",
    resume: _ResumeOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do not let the call run. The model receives the reason."""
    given = {"shown_hash": shown_hash}
    _answer_question("reject", question, given, reason=reason, by=by, resume=resume, log=log, as_json=as_json)


@app.command(epilog=_EXITS)
def answer(  # noqa: PLR0913 - one for each option
    question: _QuestionArgument,
    value: Annotated[str, argument("VALUE", "Text, or = followed by JSON for other values.")],
    *,
    shown_hash: _HashOption = "",
    reason: _ReasonOption = "",
    by: _ByOption = "",
    resume: _ResumeOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the value that a call asks for. That lets it run."""
    given = {"value": value, "shown_hash": shown_hash}
    _answer_question("answer", question, given, reason=reason, by=by, resume=resume, log=log, as_json=as_json)


def _answer_question(command: str, question: str, values: dict[str, Any], **options: Any) -> None:
    import_module("interlock.cli.session.answers").answer_question(command, question, values, **options)
