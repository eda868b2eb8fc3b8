"""Replays a recorded run with the code, tools and policy of today: `interlock replay --mode model` and `--mode
dry-run`. Exports a run as a test.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import typer

from ...agent.agent import Agent
from ...domain.errors import ConfigurationError
from ...domain.event import LogEntry, RunStarted
from ...models.scripted import ScriptedModel
from ...rendering.text import pluralize, shorten_line
from ...replay.dry_run import DryRun, DryRunRow, dry_run
from ...replay.export_test import export_test
from ...replay.model import ModelReplay, replay_recording
from ...replay.recording_reader import read_recording
from ...replay.trace import Replay
from ...storage.artifacts import ArtifactStore
from ..config.logs import open_artifacts, open_log, read_run, resolve_run, shorten_id
from ..config.policy_files import load_policy, require_valid
from ..config.settings import load_settings
from ..config.user_paths import find_user_paths, write_new_file
from ..display.output import echo, echo_json, echo_result, echo_table, style_verdict
from ..exit_codes import ExitCode
from .agent import AGENT_NAME, FAIL_SAFE, INSTRUCTIONS, load_skill_tools, make_budgets, make_local_tools
from .trust import resolve_project

_MAX_CHARS = 300


class ReplayTarget(msgspec.Struct, frozen=True):
    """The run and the agent of a replay."""

    log: Path | None = None
    #: `package.module:function`; empty: the agent of `interlock run`.
    agent: str = ""

    @property
    def artifacts(self) -> ArtifactStore | None:
        """The artifacts of the run; None where there are none."""
        return open_artifacts(self.log)

    def read_entries(self, recorded: Replay) -> list[LogEntry]:
        """Return the entries of the run."""
        return read_run(self.log, recorded.run_id).entries


def _run_model_replay(recorded: Replay, target: ReplayTarget, as_json: bool) -> None:
    replay = asyncio.run(_replay_model(recorded, target.read_entries(recorded), target))
    found = {"differences": replay.differences, "unchecked": dict(replay.unchecked)}
    echo_result(as_json, {"run_id": recorded.run_id, "same": replay.same, **found}, *_format_replay(replay))
    if not replay.same:
        raise typer.Exit(ExitCode.FAILED)


def _run_dry_run(recorded: Replay, target: ReplayTarget, as_json: bool) -> None:
    result = asyncio.run(_evaluate_calls(recorded, target.read_entries(recorded), target))
    if as_json:
        calls = [{**msgspec.structs.asdict(row), "changed": row.changed, "looser": row.looser} for row in result.rows]
        echo_json({"run_id": result.run_id, "calls": calls})
    else:
        echo_table(("EVENT", "CALL", "TOOL", "THEN", "SAID", "NOW", "WHY"), map(_format_row, result.rows))
        changed = f"{pluralize(len(result.changed), 'call')} of {len(result.rows):,}"
        echo(f"{changed} would be decided differently. Nothing was executed.")
    if result.changed:
        raise typer.Exit(ExitCode.FAILED)


#: By the word for it.
REPLAY_MODES: Mapping[str, Callable[[Replay, ReplayTarget, bool], None]] = {
    "model": _run_model_replay,
    "dry-run": _run_dry_run,
}


async def _replay_model(recorded: Replay, entries: list[LogEntry], target: ReplayTarget) -> ModelReplay:
    recording = read_recording(entries, target.artifacts)
    if not target.agent and recording.agent != AGENT_NAME:
        echo(
            f"This is a run of the agent {recording.agent or 'without a name'}. Without it (--agent) its tools and "
            "decisions are taken from the record, too, and only the runtime is tried.",
            error=True,
        )
        return await replay_recording(recording)
    async with _open_agent(recorded, target) as agent:
        return await replay_recording(recording, agent)


async def _evaluate_calls(recorded: Replay, entries: list[LogEntry], target: ReplayTarget) -> DryRun:
    agent_name = _read_start(recorded).agent
    if not target.agent and agent_name not in (AGENT_NAME, ""):
        raise ConfigurationError(
            f"This is a run of the agent {agent_name!r}. Say where it comes from: --agent package.module:function."
        )
    async with _open_agent(recorded, target) as agent:
        return await dry_run(entries, agent, target.artifacts)


async def export_run_test(log_path: Path | None, run_ref: str, output: Path, agent: str, as_json: bool) -> None:
    """Write a run as a test."""
    async with open_log(log_path) as log:
        run_id = await resolve_run(log, run_ref)
        entries = await log.read(run_id)
    source = await export_test(entries, ReplayTarget(log_path).artifacts, agent=agent)
    write_new_file(output, [source.encode()])
    line = f"{output}: run {shorten_id(run_id)} as a test. Look through it before you share it."
    echo_result(as_json, {"run_id": run_id, "path": str(output)}, line)


def _read_start(recorded: Replay) -> RunStarted:
    return cast(RunStarted, next(iter(recorded)).event.fact)


@asynccontextmanager
async def _open_agent(recorded: Replay, target: ReplayTarget) -> AsyncGenerator[Agent]:
    """Open the named agent, or else that of `interlock run`, in the folder of the run if it still exists."""
    if target.agent:
        yield _load_agent(target.agent)
        return
    # As `run` would have it in this folder, without a model: what that said is in the record. No person is asked: a
    # project that is not trusted brings nothing.
    folder, user_paths = Path(_read_start(recorded).workspace or os.curdir), find_user_paths()
    workspace = (folder if folder.is_dir() else Path()).resolve()  # noqa: ASYNC240 - nothing else runs yet
    project = resolve_project(workspace, user_paths, ask=False)
    settings = load_settings(user_paths, project).settings
    policy = require_valid(load_policy(settings, user_paths, project, str(workspace)))
    tools = make_local_tools(str(workspace), settings, user_paths)
    try:
        yield Agent(
            provider=ScriptedModel(()),
            name=AGENT_NAME,
            instructions=INSTRUCTIONS,
            tools=[*tools, *load_skill_tools(user_paths, project)],
            policy=policy,
            fail_safe=FAIL_SAFE,
            # Without time: it is not the same on two days.
            budgets=make_budgets(settings, max_seconds=None),
        )
    finally:
        await tools.close()


def _load_agent(entry_point: str) -> Agent:
    """Call the function that makes an agent. It is imported as this Python finds it, not from a project."""
    module, _, function = entry_point.partition(":")
    try:
        made: Any = getattr(import_module(module), function)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{entry_point[:80]!r} does not name an agent: {error}. It is package.module:function,"
            f" where {sys.executable} "
            "finds the package."
        ) from None
    if not isinstance(made, Agent):
        raise ConfigurationError(f"{entry_point[:80]!r} makes {type(made).__name__}, not an Agent.")
    return made


def _format_replay(replay: ModelReplay) -> Iterator[str]:
    yield replay.words.splitlines()[0]
    for call_id, reason in replay.unchecked.items():
        yield f"  not compared: {call_id}, {reason}"
    for found in replay.differences:
        yield f"event {found.seq}: {found.kind}{f' of {found.call_id}' if found.call_id else ''}"
        yield f"  was {shorten_line(found.was, _MAX_CHARS)}"
        yield f"  now {shorten_line(found.now, _MAX_CHARS)}"


def _format_row(row: DryRunRow) -> tuple[Any, ...]:
    now = style_verdict(row.now.verdict) if row.changed else "the same" if not row.lost else "?"
    then, answer = style_verdict(row.was.verdict), row.said if row.said != "none" else ""
    return f"{row.seq:5}", row.call_id, row.tool, then, answer, now, row.lost or row.now.reason
