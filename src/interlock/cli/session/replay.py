"""A recorded run against the code, tools and policy of today: `interlock replay --mode model` and `--mode dry-run`."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import typer

from ...agent.agent import Agent
from ...domain.chain import Entry
from ...domain.errors import ConfigurationError
from ...domain.event import RunStarted
from ...models.scripted import ScriptedProvider
from ...replay.dry_run import DryRow, DryRun, dry_run
from ...replay.model import ModelReplay, replay_recording
from ...replay.read_recording import read_recording
from ...replay.trace import Replay
from ...storage.artifacts import Artifacts
from ...storage.file_artifacts import FileArtifacts
from ..commands.trust import files_of_project
from ..config.logs import read_run, run_files
from ..config.places import find_places
from ..config.policy_files import in_order, policy_here
from ..config.settings import load_settings
from ..display.output import count, say, say_json, say_table, verdict
from ..exit_codes import ExitCode
from .agent import FAIL_SAFE, INSTRUCTIONS, NAME, budgets_of
from .tools import local_tools, skill_tools

_MAX_CHARS = 300


class Where(msgspec.Struct, frozen=True):
    """Where the run and the agent are."""

    log: Path | None = None
    #: `package.module:function`; empty: the agent of `interlock run`.
    agent: str = ""


def _model(recorded: Replay, where: Where, as_json: bool) -> None:
    replay = asyncio.run(_replay(recorded, _entries(recorded, where), where))
    if as_json:
        found = {"differences": replay.differences, "unchecked": dict(replay.unchecked)}
        say_json({"run_id": recorded.run_id, "same": replay.same, **found})
    else:
        _say_replay(replay)
    if not replay.same:
        raise typer.Exit(ExitCode.FAILED)


def _dry(recorded: Replay, where: Where, as_json: bool) -> None:
    judged = asyncio.run(_judge(recorded, _entries(recorded, where), where))
    if as_json:
        say_json({"run_id": judged.run_id, "calls": [_as_plain(row) for row in judged.rows]})
    else:
        _say_dry(judged)
    if judged.changed:
        raise typer.Exit(ExitCode.FAILED)


#: By the word for it.
MODES: Mapping[str, Callable[[Replay, Where, bool], None]] = {"model": _model, "dry-run": _dry}


async def _replay(recorded: Replay, entries: list[Entry], where: Where) -> ModelReplay:
    recording = read_recording(entries, _artifacts(where))
    if not where.agent and recording.agent != NAME:
        say(
            f"This is a run of the agent {recording.agent or 'without a name'}. Without it (--agent) its tools and "
            "decisions are taken from the record, too, and only the runtime is tried.",
            error=True,
        )
        return await replay_recording(recording)
    async with _agent(recorded, where) as agent:
        return await replay_recording(recording, agent)


async def _judge(recorded: Replay, entries: list[Entry], where: Where) -> DryRun:
    agent_name = _first(recorded).agent
    if not where.agent and agent_name not in (NAME, ""):
        raise ConfigurationError(
            f"This is a run of the agent {agent_name!r}. Say where it comes from: --agent package.module:function."
        )
    async with _agent(recorded, where) as agent:
        return await dry_run(entries, agent, _artifacts(where))


def _entries(recorded: Replay, where: Where) -> list[Entry]:
    return read_run(where.log, recorded.run_id).entries


def _artifacts(where: Where) -> Artifacts | None:
    kept = run_files(where.log, find_places()).artifacts
    return FileArtifacts(kept) if kept.is_dir() else None


def _first(recorded: Replay) -> RunStarted:
    return cast(RunStarted, next(iter(recorded)).event.fact)


@asynccontextmanager
async def _agent(recorded: Replay, where: Where) -> AsyncGenerator[Agent]:
    """The agent that was named; else the one of `interlock run`, in the folder of the run where that is still there."""
    if where.agent:
        yield _named_agent(where.agent)
        return
    async with _usual_agent(_folder(_first(recorded))) as agent:
        yield agent


@asynccontextmanager
async def _usual_agent(workspace: Path) -> AsyncGenerator[Agent]:
    """As `run` would have it in this folder, without a model: what that said is in the record. Nobody is asked: a
    project that is not trusted brings nothing."""
    places = find_places()
    project = files_of_project(workspace, places, ask=False)
    settings = load_settings(places, project).settings
    policy = in_order(policy_here(settings, places, project, str(workspace)))
    tools = local_tools(str(workspace), settings, places)
    try:
        yield Agent(
            provider=ScriptedProvider(()),
            name=NAME,
            instructions=INSTRUCTIONS,
            tools=[*tools, *skill_tools(places, project)],
            policy=policy,
            fail_safe=FAIL_SAFE,
            # Without time: it is not the same on two days.
            budgets=budgets_of(settings, max_seconds=None),
        )
    finally:
        await tools.close()


def _named_agent(place: str) -> Agent:
    """Made by a function. What is imported is what this Python finds, not what lies in a project."""
    module, _, function = place.partition(":")
    try:
        made: Any = getattr(import_module(module), function)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{place[:80]!r} does not name an agent: {error}. It is package.module:function, where {sys.executable} "
            "finds the package."
        ) from None
    if not isinstance(made, Agent):
        raise ConfigurationError(f"{place[:80]!r} makes {type(made).__name__}, not an Agent.")
    return made


def _folder(started: RunStarted) -> Path:
    named = started.workspace
    return Path(os.path.realpath(named if os.path.isdir(named) else os.curdir))


def _say_replay(replay: ModelReplay) -> None:
    say(replay.words.splitlines()[0])
    for call_id, why in replay.unchecked.items():
        say(f"  not compared: {call_id}, {why}")
    for found in replay.differences:
        say(f"event {found.seq}: {found.kind}{f' of {found.call_id}' if found.call_id else ''}")
        say(f"  was {_short(found.was)}")
        say(f"  now {_short(found.now)}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}..."


def _say_dry(judged: DryRun) -> None:
    titles = ("EVENT", "CALL", "TOOL", "THEN", "SAID", "NOW", "WHY")
    say_table(titles, [_row(row) for row in judged.rows])
    changed = len(judged.changed)
    say(f"{count(changed, 'call')} of {len(judged.rows):,} would be decided differently. Nothing was executed.")


def _row(row: DryRow) -> tuple[Any, ...]:
    now = verdict(row.now.verdict) if row.changed else "the same" if not row.lost else "?"
    said = row.said if row.said != "none" else ""
    return (f"{row.seq:5}", row.call_id, row.tool, verdict(row.was.verdict), said, now, row.lost or row.now.reason)


def _as_plain(row: DryRow) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row), "changed": row.changed, "looser": row.looser}
