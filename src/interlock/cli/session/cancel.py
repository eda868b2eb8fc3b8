"""Cancels a run, whichever process owns it."""

from pathlib import Path

import typer

from ...domain.errors import RunEndedError
from ..config.logs import open_log, resolve_run, shorten_id
from ..display.output import echo, echo_error, echo_json
from ..exit_codes import ExitCode
from .delivery import DeliveryStatus, deliver_cancel, get_person_name, open_inbox

_STATUS_MESSAGES: dict[DeliveryStatus, str] = {
    "recorded": "cancelled. No process had it.",
    "taken": "cancelled by the process that has it.",
    "left": "to be cancelled. The process that has it did not do so yet; it will when it looks.",
}


async def cancel_run(log_path: Path | None, run_ref: str, reason: str, by: str, as_json: bool) -> None:
    message = f"Cancelled by {get_person_name(by)}{f': {reason}' if reason else '.'}"
    async with open_log(log_path) as log, open_inbox(log) as inbox:
        run_id = await resolve_run(log, run_ref)
        try:
            status = await deliver_cancel(log, inbox, run_id, message)
        except RunEndedError as error:
            echo_error(error)
            raise typer.Exit(ExitCode.FAILED) from None
    if as_json:
        echo_json({"run_id": run_id, "how": status, "message": message})
    else:
        echo(f"{shorten_id(run_id)} is {_STATUS_MESSAGES[status]}")
    if status == "left":
        raise typer.Exit(ExitCode.WAITING)
