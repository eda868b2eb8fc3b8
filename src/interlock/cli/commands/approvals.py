"""`interlock approvals`: what runs ask people, and the answers, from any terminal."""

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from ..config.logs import LogOption, complete_run, has_log, open_log, resolve_run
from ..display.output import echo, echo_json, echo_table
from ..display.questions import (
    FoundQuestion,
    complete_question,
    echo_question,
    find_question,
    format_question_row,
    list_open_questions,
    question_to_json,
)
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption

_EXITS = format_exit_codes(
    {
        ExitCode.OK: "done, and the answer stands",
        ExitCode.FAILED: "another answer stands, or the run is over; with --resume also: the run failed",
        ExitCode.USAGE: "bad usage, or it cannot be the answer",
        ExitCode.WAITING: "it was not taken yet, or it is asked again; with --resume also: the run waits",
        ExitCode.INTERRUPTED: "interrupted",
    }
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)

_QuestionArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A question: its id as `list` shows it. To answer fewer letters of it, or `last`: add --hash, or confirm.",
        show_default=False,
        autocompletion=complete_question,
    ),
]
_ByOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Who answers. Default: your login name.", show_default=False)
]
_ReasonOption: TypeAlias = Annotated[
    str, typer.Option(metavar="TEXT", help="Why. The log has it, and after a no the model.", show_default=False)
]
_HashOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--hash",
        metavar="HASH",
        help="First 4 or more characters of the payload hash shown by `show`.",
        show_default=False,
    ),
]
_ResumeOption: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="When no process has the run, go on with it here.")
]


@app.callback()
def approvals() -> None:
    """Answer what runs ask, from any terminal.

    The first answer to a question stands, wherever it comes from. An approval is for exactly what `show` shows.
    """


@app.command("list", epilog=_EXITS)
def list_(
    run: Annotated[
        str,
        typer.Option(metavar="RUN", help="Only of this run.", show_default=False, autocompletion=complete_run),
    ] = "",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the open questions of all runs, the oldest first."""
    found = asyncio.run(_list_open(log, run)) if has_log(log) else []
    now = time.time_ns()
    if as_json:
        echo_json([question_to_json(each) for each in found])
    elif found:
        titles = ("ID", "RUN", "TOOL", "AGE", "EXPIRES", "RISK", "WHAT")
        echo_table(titles, [format_question_row(each.question, now) for each in found])
    else:
        echo("No question is open.")


@app.command(epilog=_EXITS)
def show(question: _QuestionArgument, log: LogOption = None, as_json: JsonOption = False) -> None:
    """Show a question in full: what would run, who asks and why, the risk, what changed, and the hash."""
    found = asyncio.run(_find_question(log, question))
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
        typer.Option(help="This call once, the very same call until the run ends, or also keep a rule for it."),
    ] = "once",
    rule: Annotated[
        str,
        typer.Option(
            metavar="RULE", help="With --scope rule: a narrower rule. Default: the suggested one.", show_default=False
        ),
    ] = "",
    edit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run it with the arguments in this JSON file; - is standard input."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Run it with this argument instead: text, or = and JSON (n==3)."
        ),
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
    """Do not let the call run. The model is told, with the reason."""
    _answer_question(
        "reject", question, {"shown_hash": shown_hash}, reason=reason, by=by, resume=resume, log=log, as_json=as_json
    )


@app.command(epilog=_EXITS)
def answer(  # noqa: PLR0913 - one for each option
    question: _QuestionArgument,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Text as it is, or = and JSON for anything else.", show_default=False)
    ],
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


async def _list_open(log: Path | None, run: str) -> list[FoundQuestion]:
    async with open_log(log) as event_log:
        return await list_open_questions(event_log, await resolve_run(event_log, run) if run else "")


async def _find_question(log: Path | None, question_ref: str) -> FoundQuestion:
    async with open_log(log) as event_log:
        return await find_question(event_log, question_ref)
