"""`interlock policy backtest` and `suggest`: what recorded runs say about policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from ...policy.analysis.backtest import backtest
from ...policy.analysis.recorded import recorded_calls
from ...policy.analysis.suggest import suggest
from ...policy.files.policy_files import PolicyFiles
from ..config.policy_files import NO, Managed, Project, Session, User, in_order, one_of, require_one
from ..config.recordings import Recordings, read_recordings
from ..display.output import say, say_json
from ..display.policy import show_backtest, show_suggestions
from ..options import Json

Logs: TypeAlias = Annotated[
    list[Path], typer.Option("--log", help="A log (runs.db) or an export (runs.ndjson). May be given more than once.")
]


def backtest_policy(  # noqa: PLR0913 - one for each option
    *,
    log: Logs,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A policy file; the same as --user.", show_default=False)
    ] = None,
    managed: Managed = None,
    user: User = None,
    project: Project = None,
    session: Session = None,
    fail_on_flip: Annotated[bool, typer.Option("--fail-on-flip", help="Exit with 1 when a decision flips.")] = False,
    as_json: Json = False,
) -> None:
    """Try a policy on recorded runs.

    Which decisions would be others, and which rules never fire. Nothing is executed.
    """
    require_one(managed, file, user, project, session)
    named = one_of(file, user)
    policy = in_order(PolicyFiles(managed=managed, user=named, project=project, session=session))
    recordings = _recordings(log)
    result = backtest(policy, recorded_calls(recordings.events))
    if as_json:
        say_json({**msgspec.structs.asdict(result), "runs": recordings.runs, "left_out": recordings.left_out})
    else:
        show_backtest(result)
    if result.flips and fail_on_flip:
        raise typer.Exit(NO)


def suggest_rules(
    log: Logs,
    min_count: Annotated[int, typer.Option(min=1, help="How often people must have said yes.")] = 3,
    as_json: Json = False,
) -> None:
    """Suggest rules for what people keep approving.

    The narrowest ones, as entries for the `rules` of a policy file.
    """
    recordings = _recordings(log)
    found = suggest(recorded_calls(recordings.events), min_count)
    if as_json:
        say_json({"suggestions": found, "runs": recordings.runs, "left_out": recordings.left_out})
        return
    show_suggestions(found)
    if not found:
        say(f"Nothing was approved {min_count} times that one narrow rule could say.", error=True)


def _recordings(paths: Sequence[Path]) -> Recordings:
    recordings = read_recordings([str(path) for path in paths])
    for reason in recordings.left_out:
        say(f"left out, because it is not what was written: {reason}", error=True)
    return recordings
