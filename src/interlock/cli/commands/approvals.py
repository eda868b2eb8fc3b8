"""`interlock approvals`: what runs ask people, and the answers, from any terminal."""

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from ..config.logs import LogFile, complete_run, has_log, named_run, opened
from ..display.output import say, say_json, say_table
from ..display.questions import (
    Found,
    complete_question,
    find_question,
    open_questions,
    plain_question,
    row,
    say_question,
)
from ..exit_codes import ExitCode, exits
from ..options import Json

_EXITS = exits(
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

_QuestionName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A question: its id as `list` shows it. To answer fewer letters of it, or `last`: add --hash, or confirm.",
        show_default=False,
        autocompletion=complete_question,
    ),
]
_By: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Who answers. Default: your login name.", show_default=False)
]
_Reason: TypeAlias = Annotated[
    str, typer.Option(metavar="TEXT", help="Why. The log has it, and after a no the model.", show_default=False)
]
_Hash: TypeAlias = Annotated[
    str,
    typer.Option(
        "--hash",
        metavar="HASH",
        help="First 4 or more characters of the payload hash shown by `show`.",
        show_default=False,
    ),
]
_Resume: TypeAlias = Annotated[bool, typer.Option("--resume", help="When no process has the run, go on with it here.")]


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
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """List the open questions of all runs, the oldest first."""
    found = asyncio.run(_open(log, run)) if has_log(log) else []
    now = time.time_ns()
    if as_json:
        say_json([plain_question(each) for each in found])
    elif found:
        titles = ("ID", "RUN", "TOOL", "AGE", "EXPIRES", "RISK", "WHAT")
        say_table(titles, [row(each.question, now) for each in found])
    else:
        say("No question is open.")


@app.command(epilog=_EXITS)
def show(question: _QuestionName, log: LogFile = None, as_json: Json = False) -> None:
    """Show a question in full: what would run, who asks and why, the risk, what changed, and the hash."""
    found = asyncio.run(_find(log, question))
    if as_json:
        say_json(plain_question(found))
    else:
        say_question(found, time.time_ns(), log)


@app.command(epilog=_EXITS)
def approve(  # noqa: PLR0913 - one for each option
    question: _QuestionName,
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
    shown_hash: _Hash = "",
    reason: _Reason = "",
    by: _By = "",
    resume: _Resume = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Let the call run, as it was asked or with other arguments.

    Where the risk is high, --hash has to say what you looked at.
    """
    given = {"scope": scope, "rule": rule, "edit": edit, "changes": change or [], "shown_hash": shown_hash}
    _decide("approve", question, given, reason=reason, by=by, resume=resume, log=log, as_json=as_json)


@app.command(epilog=_EXITS)
def reject(  # noqa: PLR0913 - one for each option
    question: _QuestionName,
    *,
    shown_hash: _Hash = "",
    reason: _Reason = "",
    by: _By = "",
    resume: _Resume = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Do not let the call run. The model is told, with the reason."""
    _decide(
        "reject", question, {"shown_hash": shown_hash}, reason=reason, by=by, resume=resume, log=log, as_json=as_json
    )


@app.command(epilog=_EXITS)
def answer(  # noqa: PLR0913 - one for each option
    question: _QuestionName,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Text as it is, or = and JSON for anything else.", show_default=False)
    ],
    *,
    shown_hash: _Hash = "",
    reason: _Reason = "",
    by: _By = "",
    resume: _Resume = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Give the value that a call asks for. That lets it run."""
    given = {"value": value, "shown_hash": shown_hash}
    _decide("answer", question, given, reason=reason, by=by, resume=resume, log=log, as_json=as_json)


def _decide(how: str, question: str, given: dict[str, Any], **around: Any) -> None:
    import_module("interlock.cli.session.decide").decide(how, question, given, **around)


async def _open(log: Path | None, run: str) -> list[Found]:
    async with opened(log) as there:
        return await open_questions(there, await named_run(there, run) if run else "")


async def _find(log: Path | None, wanted: str) -> Found:
    async with opened(log) as there:
        return await find_question(there, wanted)
