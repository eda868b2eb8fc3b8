"""`interlock hooks`: the built-in tools of coding agents under Interlock's policy."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
import typer

from ... import lazy_module
from ...hooks.install import Places, apply_changes, plan_install, plan_uninstall, write_start_file
from ...hooks.status import AgentReport, report_agent
from ...policy.files.values import parse_duration
from ...rendering.times import format_utc
from ...storage.file_artifacts import FileArtifacts
from ..config.logs import find_run_files
from ..config.policy_files import load_policy, require_valid
from ..config.project_settings import load_project
from ..config.project_trust import find_project
from ..config.user_paths import UserPaths, find_user_paths, make_private_folder
from ..display.output import echo, echo_json
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption, LogOption, argument, create_app, option

# Only `serve` decides about calls, and needs what that needs.
if TYPE_CHECKING:
    from ...hooks import daemon as answering
    from ...storage.sqlite import log as logs
    from ..session import hook_projects
else:
    answering = lazy_module("interlock.hooks.daemon")
    logs = lazy_module("interlock.storage.sqlite.log")
    hook_projects = lazy_module("interlock.cli.session.hook_projects")

_EXITS = format_exit_codes(ok="done", failed="hooks do not work", usage="bad usage, or a file that cannot be changed")
_NEXT = {
    "codex": "Codex runs new hooks only when you trust them: start it, type /hooks, and trust those of Interlock.",
    "cursor": "Restart Cursor to load them.",
}

AgentName: TypeAlias = Literal["claude", "codex", "gemini", "opencode", "cursor"]
_ALL_AGENTS: tuple[AgentName, ...] = ("claude", "codex", "gemini", "opencode", "cursor")
AgentArgument: TypeAlias = Annotated[AgentName, argument("AGENT", "Agent: claude, codex, gemini, opencode or cursor.")]
ScopeOption: TypeAlias = Annotated[
    Literal["user", "project"], option("Configuration to change: of the user, or of this project. Default: user.")
]

app = create_app(_EXITS, is_group=True)


@app.callback()
def hooks() -> None:
    """Put the built-in tools of coding agents under the same policy, approvals and log."""


@app.command(epilog=_EXITS)
def install(agent: AgentArgument, scope: ScopeOption = "user") -> None:
    """Install hooks into the configuration of a coding agent. Installing again updates them."""
    user_paths, places = find_user_paths(), _find_places()
    state = user_paths.make_state_folder()
    workspace = str(find_project(places.project, user_paths))
    loaded, project = load_project(workspace, user_paths, os.environ)
    policy = require_valid(load_policy(loaded.settings, user_paths, project, workspace))
    write_start_file(state, os.environ)
    changes = plan_install(agent, scope, places, state, policy.rules)
    apply_changes(changes, state, keep=True)
    for change in changes:
        echo(change.summary)
    if agent in _NEXT:
        echo(_NEXT[agent])
    echo(f"`interlock hooks status {agent}` shows whether they work, and what stays open.")


@app.command(epilog=_EXITS)
def uninstall(agent: AgentArgument, scope: ScopeOption = "user") -> None:
    """Remove the hooks from the configuration of a coding agent. Everything else in it stays as it is."""
    state = find_user_paths().make_state_folder()
    changes = plan_uninstall(agent, scope, _find_places(), state)
    apply_changes(changes, state, keep=False)
    for change in changes:
        echo(change.summary)
    if not changes:
        echo(f"No hooks are installed for {agent}.")


@app.command(epilog=_EXITS)
def status(
    agent: Annotated[AgentName | None, argument("[AGENT]", "Agent to show. Default: all of them.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is installed, whether it works, the last decisions, and what stays open."""
    user_paths = find_user_paths()
    state = _state_folder(user_paths)
    reports = [report_agent(name, _find_places(), state) for name in ((agent,) if agent else _ALL_AGENTS)]
    if as_json:
        echo_json(msgspec.to_builtins(reports))
    else:
        for report in reports:
            for line in _describe(report, brief=agent is None):
                echo(line)
    if agent is not None and not reports[0].is_working:
        raise typer.Exit(ExitCode.FAILED)


@app.command(epilog=_EXITS)
def serve(
    log: LogOption = None,
    idle: Annotated[
        str,
        option("How long it stays without being asked. Default: 1h.", metavar="TIME", envvar="INTERLOCK_HOOKS_IDLE"),
    ] = "1h",
    hold: Annotated[
        str,
        option(
            "How long a call waits for approval before the agent gets PENDING. Default: as long as the agent waits.",
            metavar="TIME",
            envvar="INTERLOCK_HOOKS_HOLD",
        ),
    ] = "1d",
) -> None:
    """Answer hooks until nothing was asked for a while. Hooks start it themselves."""
    user_paths = find_user_paths()
    idle_seconds = parse_duration(idle) or answering.IDLE_SECONDS
    hold_seconds = 0.0 if hold.strip() in ("0", "0s") else parse_duration(hold) or answering.HOLD_SECONDS
    state = user_paths.make_state_folder()
    files = find_run_files(log, user_paths)
    make_private_folder(files.log.parent)

    async def run() -> None:
        async with logs.SqliteLog(files.log) as opened:
            projects = hook_projects.HookProjects(user_paths, opened, FileArtifacts(files.artifacts))
            daemon = answering.HookDaemon(state, projects.find, idle_seconds=idle_seconds, hold_seconds=hold_seconds)
            loop = asyncio.get_running_loop()
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(each, daemon.stop)
            await daemon.serve(lambda: echo(f"Interlock answers hooks in {state}"))
            if daemon.running_count:
                # Their ends are not known: the next daemon hears of them, or records that they are unknown.
                os._exit(0)
            await projects.close()

    with answering.lock_daemon(state) as is_alone:
        if is_alone:
            asyncio.run(run())
        else:
            echo(f"Another process answers hooks in {state} already.")


def _find_places() -> Places:
    return Places(Path.home(), Path.cwd(), dict(os.environ))


def _state_folder(user_paths: UserPaths) -> Path:
    return user_paths.make_state_folder() if user_paths.state is None else user_paths.state


def _describe(report: AgentReport, *, brief: bool) -> Iterator[str]:
    """Yield the lines of a report."""
    if not report.installed:
        yield f"{report.agent}: not installed"
        if not brief:
            yield f"  Install them with `interlock hooks install {report.agent}`."
        return
    yield f"{report.agent}: {'installed' if report.is_working else 'installed, and not working'}"
    for place in report.installed:
        yield f"  {place.scope}: {place.path}, trusted: {place.trusted}"
        for problem in place.problems:
            yield f"    problem: {problem}"
    seen = report.seen
    yield f"  last session: {_format_time(seen.started_at)}; last hook: {_format_time(seen.seen_at)}"
    if seen.decided_at:
        yield f"  last decision: {seen.verdict} {seen.tool}, {_format_time(seen.decided_at)}"
    if seen.error_at:
        yield f"  last error: {seen.error}, {_format_time(seen.error_at)}"
    if brief:
        return
    yield "  stays open:"
    for point in report.open_points:
        yield f"  - {point}"


def _format_time(at: int) -> str:
    return format_utc(at) if at else "never"
