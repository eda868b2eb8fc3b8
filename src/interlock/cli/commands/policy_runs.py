"""`interlock policy backtest` and `suggest`: what recorded runs say about policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from ...policy.analysis.backtest import backtest
from ...policy.analysis.recorded import read_recorded_calls
from ...policy.analysis.suggest import find_suggestions
from ...policy.files.policy_files import PolicyFiles
from ..config.policy_files import (
    EXIT_FAILED,
    ManagedOption,
    ProjectOption,
    SessionOption,
    UserOption,
    require_valid,
    choose_user_file,
    require_policy_file,
)
from ..config.recordings import Recordings, read_recordings
from ..display.output import echo, echo_json
from ..display.policy import echo_backtest, echo_suggestions
from ..options import JsonOption

LogsOption: TypeAlias = Annotated[
    list[Path], typer.Option("--log", help="A log (runs.db) or an export (runs.ndjson). May be given more than once.")
]


def backtest_policy(  # noqa: PLR0913 - one for each option
    *,
    log: LogsOption,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A policy file; the same as --user.", show_default=False)
    ] = None,
    managed: ManagedOption = None,
    user: UserOption = None,
    project: ProjectOption = None,
    session: SessionOption = None,
    fail_on_flip: Annotated[bool, typer.Option("--fail-on-flip", help="Exit with 1 when a decision flips.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try a policy on recorded runs.

    Which decisions would be others, and which rules never fire. Nothing is executed.
    """
    require_policy_file(managed, file, user, project, session)
    user_file = choose_user_file(file, user)
    policy = require_valid(PolicyFiles(managed=managed, user=user_file, project=project, session=session))
    recordings = _load_recordings(log)
    result = backtest(policy, read_recorded_calls(recordings.events))
    if as_json:
        echo_json({**msgspec.structs.asdict(result), "runs": recordings.runs, "left_out": recordings.left_out})
    else:
        echo_backtest(result)
    if result.flips and fail_on_flip:
        raise typer.Exit(EXIT_FAILED)


def suggest_rules(
    log: LogsOption,
    min_count: Annotated[int, typer.Option(min=1, help="How often people must have said yes.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Suggest rules for what people keep approving.

    The narrowest ones, as entries for the `rules` of a policy file.
    """
    recordings = _load_recordings(log)
    found = find_suggestions(read_recorded_calls(recordings.events), min_count)
    if as_json:
        echo_json({"suggestions": found, "runs": recordings.runs, "left_out": recordings.left_out})
        return
    echo_suggestions(found)
    if not found:
        echo(f"Nothing was approved {min_count} times that one narrow rule could say.", error=True)


def _load_recordings(paths: Sequence[Path]) -> Recordings:
    recordings = read_recordings([str(path) for path in paths])
    for reason in recordings.left_out:
        echo(f"left out, because it is not what was written: {reason}", error=True)
    return recordings
