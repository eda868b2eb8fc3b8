"""`interlock notices`: try the channels of a server, see what became of notices, and send dead letters again.

`list` and `retry` open the server's own database, also while it runs.
"""

import asyncio
import os
from pathlib import Path
from time import time_ns
from typing import Annotated, TypeAlias

import typer

from ...domain.errors import ConfigurationError
from ...domain.suggestions import suggest_name
from ...server.core.audit_sinks.senders import SendSuccess
from ...server.core.notices.channel_settings import ChannelSettings
from ...server.core.notices.notice import NoticeOutcome
from ...server.core.notices.outbox import Delivery, Outbox
from ...server.core.notices.service import create_sender, send_test
from ...server.core.settings import ServerSettings, read_settings
from ..config.server_files import ServerLogOption
from ..config.user_paths import find_user_paths
from ..display.output import echo, echo_list
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption, create_app
from .server_database import format_iso, format_minute, run_with_database

_EXITS = format_exit_codes(ok="done", failed="the channel did not take the notice, or it is no dead letter")

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Server settings. Default: serve.toml in the config directory."
    ),
]

app = create_app(_EXITS, is_group=True)


@app.callback()
def notices() -> None:
    """Try the channels of notices, and list and retry deliveries."""


@app.command("test", epilog=_EXITS)
def send_test_notice(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Name of the channel in the settings.")],
    config: ConfigOption = None,
) -> None:
    """Send a test notice through a channel of the settings."""
    settings = _read_settings(config)
    chosen = _find_channel(settings, channel)
    outcome = asyncio.run(_send_test(settings, chosen))
    if isinstance(outcome, SendSuccess):
        echo(f"{channel} took the test notice.")
        return
    echo(f"interlock: {channel} did not take the test notice: {outcome.problem}", error=True)
    raise typer.Exit(ExitCode.FAILED)


@app.command("list", epilog=_EXITS)
def list_notices(
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE", help="Only deliveries that are waiting, sending, sent, withdrawn or dead. Default: all."
        ),
    ] = "",
    channel: Annotated[str, typer.Option(help="Only deliveries of this channel. Default: of all.")] = "",
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="Maximum number of deliveries to list.")
    ] = 50,
    log: ServerLogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List deliveries of notices, newest first."""
    found = run_with_database(
        log, lambda database: Outbox(database).list_deliveries(channel=channel, state=state, limit=limit)
    )
    echo_list(
        as_json,
        list(map(_to_json, found)),
        ("NUMBER", "CHANNEL", "STATE", "ATTEMPTS", "SINCE", "QUESTION", "PROBLEM"),
        [
            (
                str(each.number),
                each.channel,
                each.state,
                str(each.attempts),
                format_minute(each.changed_at),
                each.action_id,
                each.problem,
            )
            for each in found
        ],
        empty="No notices.",
    )


@app.command(epilog=_EXITS)
def retry(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Number of a dead letter in `notices list`.")],
    log: ServerLogOption = None,
) -> None:
    """Let a running server send a dead letter again."""
    if not run_with_database(log, lambda database: Outbox(database).retry(number)):
        echo(f"interlock: notice {number} is no dead letter. Nothing was changed.", error=True)
        raise typer.Exit(ExitCode.FAILED)
    echo(f"Notice {number} is sent again.")


async def _send_test(settings: ServerSettings, channel: ChannelSettings) -> NoticeOutcome:
    server = settings.server
    sender = create_sender(channel, os.environ)
    try:
        return await send_test(channel, sender, server.public_url or f"http://{server.host}:{server.port}", time_ns())
    finally:
        await sender.close()


def _read_settings(config: Path | None) -> ServerSettings:
    folder = find_user_paths().config
    path = config or (None if folder is None else folder / "serve.toml")
    if path is None:
        raise ConfigurationError("There are no settings of a server. Pass --config.")
    return read_settings(path)


def _find_channel(settings: ServerSettings, name: str) -> ChannelSettings:
    known = {channel.name: channel for channel in settings.notices.channels}
    if name not in known:
        raise ConfigurationError(f"Unknown notice channel {name[:64]!r}. {suggest_name(name, known)}".rstrip())
    return known[name]


def _to_json(delivery: Delivery) -> dict[str, object]:
    return {
        "number": delivery.number,
        "channel": delivery.channel,
        "account": delivery.account,
        "kind": delivery.kind,
        "run_id": delivery.run_id,
        "action_id": delivery.action_id,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "changed_at": format_iso(delivery.changed_at),
        "problem": delivery.problem,
    }
