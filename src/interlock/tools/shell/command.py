"""One command from its start to its raw result: its output goes to a spool, its changes are detected.

The workspace is looked at before and after a command that may write. All slow work on files is done in threads, and is
waited for even when the call is cancelled: then the command is over, and what it had printed is kept.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os.path import join, relpath
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from ...domain.egress import EgressReport
from ...domain.errors import ArtifactError, SandboxSetupError
from ...domain.outcome import ArtifactRef
from ...domain.tool import RunArtifacts, ToolContext
from ...sandbox.interface import CommandExit, CommandSpec, OutputHandler, OutputStream, RunningCommand, SandboxProfile
from ...sandbox.workspace.open_files import OpenFolder
from ...sandbox.workspace.refusals import PathRefusedError
from .command_effects import (
    CommandRequest,
    WorkspaceBefore,
    fingerprint_workspace,
    inspect_workspace,
    make_verification,
    read_report_text,
)
from .command_result import MAX_PATHS_LISTED, CommandOutput, CommandResult, to_printable_path
from .fingerprint import WorkspaceChanges, WorkspaceFingerprint, compare_fingerprints
from .output_excerpt import make_excerpt
from .profile import GuardedFiles, build_profile, choose_environment, inspect_profile
from .spool import OutputSpool
from .verification import ScriptOutput
from .violations import find_violations

if TYPE_CHECKING:
    from ...sandbox.network.proxy import EgressProxy

MAX_OUTPUT_CHARS = 30_000
#: The rest is for what is said beside the output.
EXCERPT_CHARS = 28_000
OUTPUT_KIND, INDEX_KIND = "command_output", "command_output_index"
PROGRESS_SECONDS = 0.2
PROGRESS_LINES = 30
_MAX_COMMAND_CHARS = 1_000
_STREAM_BYTES = 64 * 1024
#: An artifact holds so much.
_PART_BYTES = 100 << 20
_CHUNK_BYTES = 256 * 1024
#: How often a command is tried that did not begin because files moved meanwhile.
_MAX_STARTS = 3

_P = ParamSpec("_P")
_T = TypeVar("_T")


class KeptOutput(NamedTuple):
    """The output as artifacts: as many as it needs."""

    parts: tuple[ArtifactRef, ...] = ()
    streams: ArtifactRef | None = None

    @property
    def artifacts(self) -> tuple[ArtifactRef, ...]:
        """All artifacts of the output."""
        return self.parts if self.streams is None else (*self.parts, self.streams)


class StartedCommand(NamedTuple):
    """A started command with its profile."""

    running: RunningCommand
    profile: SandboxProfile
    #: What no command should change, as it was before; None where nothing can be written.
    guarded: GuardedFiles | None
    proxy: "EgressProxy | None" = None

    async def wait(self, timeout_seconds: float | None) -> tuple[CommandExit, EgressReport]:
        """Wait for the end, and end the proxy with it."""
        try:
            ended = await self.running.wait(timeout_seconds)
        finally:
            report = EgressReport() if self.proxy is None else await self.proxy.close()
        return ended, report


class EndedCommand(NamedTuple):
    """A command that is over."""

    started: StartedCommand
    ended: CommandExit
    output: CommandOutput


async def run_command(request: CommandRequest, context: ToolContext) -> CommandResult:
    """Run a command to its end. Raise `SandboxSetupError` when nothing of it was executed."""
    files = await asyncio.to_thread(fingerprint_workspace, request.config) if request.can_write else None
    done = await run_to_end(request, context)
    before = WorkspaceBefore(files, done.started.guarded)
    return await run_to_completion(build_result, request, before, done.ended, done.output, context)


async def run_to_end(request: CommandRequest, context: ToolContext) -> EndedCommand:
    """Run a command to its end, and keep its output."""
    progress = _ProgressReporter(context)
    with OutputSpool(context.artifacts.redaction_filter) as spool:

        def on_output(stream: OutputStream, chunk: bytes) -> None:
            spool.write(stream, chunk)
            progress.update(spool.last_lines)

        try:
            started = await start_command(request, on_output)
            ended, egress = await started.wait(request.timeout.seconds)
        except asyncio.CancelledError:
            await run_to_completion(_keep_or_warn, spool, context)
            raise
        finally:
            progress.end()
        return EndedCommand(started, ended, await run_to_completion(_capture_output, spool, egress, context))


async def start_command(request: CommandRequest, on_output: OutputHandler) -> StartedCommand:
    """Start a command. When files move between the scan for hidden files and the start, nothing begins, and it is tried
    again a few times.
    """
    for left in reversed(range(_MAX_STARTS)):
        profile, guarded = await asyncio.to_thread(
            inspect_profile, request.config, request.commands.confinement, request.profile
        )
        profile_check = _ProfileCheck(request, profile)
        proxy = None if request.egress is None else request.egress.make_proxy()
        try:
            with _open_cwd(request) as folder:
                command = _build_command(request, profile, profile_check, folder.fd, proxy)
                return StartedCommand(await request.commands.start(command, on_output), profile, guarded, proxy)
        except BaseException as error:
            if proxy is not None:
                await proxy.close()
            if not isinstance(error, SandboxSetupError) or not profile_check.has_changed:
                raise
            if not left:
                words = "Files that must stay hidden or unchanged move all the time. "
                raise SandboxSetupError(words + "Stop the task that moves them, and try again.") from error
    raise AssertionError  # the last round has returned or raised


def _open_cwd(request: CommandRequest) -> OpenFolder:
    try:
        return request.config.workspace.open_folder(request.cwd, frozenset({request.cwd}))
    except PathRefusedError as refused:
        raise SandboxSetupError(f"The folder to start in cannot be entered: {refused} Nothing was executed.") from None


class _ProfileCheck:
    """Checks, when the view of a command is built, that the scan for hidden files is still complete."""

    def __init__(self, request: CommandRequest, profile: SandboxProfile) -> None:
        self._request = request
        self._profile = profile
        self.has_changed = False

    def __call__(self) -> bool:
        request = self._request
        self.has_changed = build_profile(request.config, request.commands.confinement, request.profile) != self._profile
        return not self.has_changed


def _build_command(
    request: CommandRequest,
    profile: SandboxProfile,
    is_still_valid: Callable[[], bool],
    folder: int,
    proxy: "EgressProxy | None",
) -> CommandSpec:
    egress = request.egress
    environment = choose_environment(request.config, request.profile, request.config.parse_script(request.script))
    return CommandSpec(
        profile=profile,
        script=request.script,
        cwd=join(request.config.workspace.root, request.cwd) if request.cwd != "." else "",
        folder_fd=folder,
        exclusive_until=request.exclusive_until,
        expected_environment=request.expected_environment,
        overlay=request.overlay,
        environment=environment if egress is None else {**environment, **egress.environment},
        is_still_valid=is_still_valid,
        on_listener=None if proxy is None else proxy.serve_from_thread,
        files={} if egress is None else egress.files,
    )


async def run_to_completion(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function in a thread, and wait for it even when cancelled: what it uses is closed afterwards."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def redact_command(text: str, artifacts: RunArtifacts) -> str:
    """Return the start of a command, redacted, for display and storage."""
    secrets_out = artifacts.redaction_filter()
    content = text.encode("utf-8", "replace")
    kept = secrets_out.feed(content) + secrets_out.end()
    return kept.decode("utf-8", "replace")[:_MAX_COMMAND_CHARS]


def keep_output(spool: OutputSpool, artifacts: RunArtifacts) -> KeptOutput:
    """Store all of the output; where there are two streams, also which part belongs to which."""
    spool.finish()
    parts = tuple(
        artifacts.keep_stream(_read_chunks(spool, start), OUTPUT_KIND)
        for start in range(0, spool.total_bytes, _PART_BYTES)
    )
    if not (spool.bytes_in("stdout") and spool.bytes_in("stderr")):
        return KeptOutput(parts)
    return KeptOutput(parts, artifacts.keep_stream(spool.index_chunks(), INDEX_KIND))


def _read_chunks(spool: OutputSpool, start: int) -> Iterator[bytes]:
    end = min(spool.total_bytes, start + _PART_BYTES)
    return (spool.read_all(at, min(_CHUNK_BYTES, end - at)) for at in range(start, end, _CHUNK_BYTES))


def _keep_or_warn(spool: OutputSpool, context: ToolContext) -> KeptOutput:
    try:
        kept = keep_output(spool, context.artifacts)
    except (ArtifactError, OSError) as error:
        context.warn(f"The output of the command could not be kept: {error}")
        return KeptOutput()
    context.kept.extend(kept.artifacts)
    return kept


def _capture_output(spool: OutputSpool, egress: EgressReport, context: ToolContext) -> CommandOutput:
    kept = _keep_or_warn(spool, context)
    text, is_complete = read_report_text(spool)
    return CommandOutput(
        stdout=_read_ends(spool, "stdout"),
        stderr=_read_ends(spool, "stderr"),
        stdout_bytes=spool.bytes_in("stdout"),
        stderr_bytes=spool.bytes_in("stderr"),
        excerpt=make_excerpt(spool, EXCERPT_CHARS),
        parts=kept.parts,
        streams=kept.streams,
        text=text,
        is_complete=is_complete,
        egress=egress,
    )


def build_result(
    request: CommandRequest, before: WorkspaceBefore, ended: CommandExit, output: CommandOutput, context: ToolContext
) -> CommandResult:
    """Build the result of a command from its output and what it changed in the workspace."""
    after = inspect_workspace(request, before.guarded)
    if after.problem and request.can_write:
        context.warn(after.problem)
    script_output = ScriptOutput(output.text, output.is_complete, ended)
    result = CommandResult(
        command=redact_command(request.script, context.artifacts),
        ended=ended,
        timeout=request.timeout,
        output=output,
        started_in=request.cwd,
        ended_in=to_relative_path(ended.cwd, request.config.workspace.root),
        profile=request.profile,
        backend=request.commands.confinement.backend,
        limits=request.config.limits,
        changes=_find_changes(request, before.files, after.files),
        guarded=after.guarded,
        violations=find_violations(output.text, ended.exit_code, has_network=request.config.network)
        if request.profile != "unconfined"
        else (),
        verification=make_verification(request, script_output, before.files, after.files),
        mode=context.situation.mode,
    )
    for violation in result.violations:
        context.warn(f"The sandbox probably refused something ({violation.cause}): {violation.line}")
    warn_about_guarded(result.guarded, context)
    return result


def _find_changes(
    request: CommandRequest, before: WorkspaceFingerprint | None, after: WorkspaceFingerprint | None
) -> WorkspaceChanges | None:
    """Return the changes of the workspace. What a command changed elsewhere is not inspected."""
    if before is None or after is None or request.config.network or request.profile == "unconfined":
        return None
    return compare_fingerprints(before, after)


def warn_about_guarded(paths: Sequence[str], context: ToolContext) -> None:
    """Warn about changed files that other programs execute or obey."""
    if paths:
        names = ", ".join(map(to_printable_path, paths[:MAX_PATHS_LISTED]))
        context.warn(f"A command created or exchanged what other programs obey: {names}. Look at it before you use it.")


def to_relative_path(path: str, root: str) -> str:
    """Return a path relative to the root if it is inside."""
    return relpath(path, root) if path == root or path.startswith(f"{root}/") else path


def _read_ends(spool: OutputSpool, stream: OutputStream) -> bytes:
    size = spool.bytes_in(stream)
    if size <= _STREAM_BYTES:
        return spool.read(stream, 0, size)
    half = _STREAM_BYTES // 2
    return spool.read(stream, 0, half) + spool.read(stream, size - half, half)


class _ProgressReporter:
    """Reports the last lines of the output to listeners, at intervals."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")
        self._read: Callable[[int], list[str]] = lambda _: []

    def update(self, read: Callable[[int], list[str]]) -> None:
        self._read = read
        if self._timer is None:
            wait = max(0.0, self._reported_at + PROGRESS_SECONDS - self._loop.time())
            self._timer = self._loop.call_later(wait, self._report)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        self._timer = None
        self._reported_at = self._loop.time()
        if lines := self._read(PROGRESS_LINES):
            with suppress(Exception):  # a failing listener must not fail the command
                self._context.progress("\n".join(lines))
