"""End a run from outside, whichever process has it."""

from pathlib import Path

import typer

from ...domain.errors import RunEndedError
from ..config.logs import named_run, opened, short
from ..display.output import say, say_json, say_wrong
from ..exit_codes import ExitCode
from .deliver import How, at_desk, give_cancel, name_of_person

_SAID: dict[How, str] = {
    "recorded": "cancelled. No process had it.",
    "taken": "cancelled by the process that has it.",
    "left": "to be cancelled. The process that has it did not do so yet; it will when it looks.",
}


async def cancel(named: Path | None, wanted: str, reason: str, by: str, as_json: bool) -> None:
    message = f"Cancelled by {name_of_person(by)}{f': {reason}' if reason else '.'}"
    async with opened(named) as log, at_desk(log) as desk:
        run_id = await named_run(log, wanted)
        try:
            how = await give_cancel(log, desk, run_id, message)
        except RunEndedError as error:
            say_wrong(error)
            raise typer.Exit(ExitCode.FAILED) from None
    if as_json:
        say_json({"run_id": run_id, "how": how, "message": message})
    else:
        say(f"{short(run_id)} is {_SAID[how]}")
    if how == "left":
        raise typer.Exit(ExitCode.WAITING)
