"""One command from its start to its raw result: what it prints goes to a spool, what it changed is looked for.

The workspace is looked at before and after a command that may write. All slow work on files is done in threads, and is
waited for even when the call is cancelled: then the command is over, and what it had printed is kept.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os.path import join, relpath
from typing import NamedTuple, ParamSpec, TypeVar

from ...domain.errors import ArtifactError, SandboxSetupError
from ...domain.outcome import ArtifactRef
from ...domain.tool import RunArtifacts, ToolContext
from ...sandbox.interface import Command, Ended, OnOutput, Profile, Running, Stream
from ...sandbox.workspace.workspace import OpenFolder, PathRefused
from .command_effects import Before, Order, Words, files_of, look_after, text_of, verified
from .command_result import MAX_PATHS_TOLD, CommandResult, shown_path
from .fingerprint import Changes, Fingerprint, changed
from .output import Spool, excerpt
from .profile import Guarded, look, profile_of
from .verification import Said
from .violations import violations

__all__ = (
    "MAX_OUTPUT_CHARS",
    "Kept",
    "Order",
    "Started",
    "Words",
    "from_root",
    "keep_output",
    "run_command",
    "start",
    "to_the_end",
    "warn_of_guarded",
    "without_secrets",
)

MAX_OUTPUT_CHARS = 30_000
#: The rest is for what is said beside the output.
EXCERPT_CHARS = 28_000
OUTPUT_KIND, INDEX_KIND = "command_output", "command_output_index"
PROGRESS_SECONDS = 0.5
_MAX_COMMAND_CHARS = 1_000
_STREAM_BYTES = 64 * 1024
#: An artifact holds so much.
_PART_BYTES = 100 << 20
_CHUNK_BYTES = 256 * 1024
#: How often a command is tried that did not begin because files moved meanwhile.
_MAX_STARTS = 3

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Kept(NamedTuple):
    """The output as artifacts: as many as it needs."""

    parts: tuple[ArtifactRef, ...] = ()
    streams: ArtifactRef | None = None

    @property
    def all(self) -> tuple[ArtifactRef, ...]:
        return self.parts if self.streams is None else (*self.parts, self.streams)


class Started(NamedTuple):
    running: Running
    profile: Profile
    #: What no command should change, as it was before; None where nothing can be written.
    guarded: Guarded | None


async def run_command(order: Order, context: ToolContext) -> CommandResult:
    """`SandboxSetupError` when nothing of it was executed."""
    files = await asyncio.to_thread(files_of, order.rules) if order.can_write else None
    progress = _Progress(context)
    with Spool(context.artifacts.secrets_out) as spool:

        def on_output(stream: Stream, chunk: bytes) -> None:
            spool.take(stream, chunk)
            progress.tell(spool.last_line)

        try:
            started = await start(order, on_output)
            ended = await started.running.wait(order.seconds.allowed)
        except asyncio.CancelledError:
            await to_the_end(_keep, spool, context)
            raise
        finally:
            progress.end()
        before = Before(files, started.guarded)
        return await to_the_end(_finished, order, before, started.profile, ended, spool, context)


async def start(order: Order, on_output: OnOutput) -> Started:
    """Files may move between looking for what is to be hidden and the start: then nothing begins, and it is looked
    for again, a few times."""
    for left in reversed(range(_MAX_STARTS)):
        profile, guarded = await asyncio.to_thread(look, order.rules, order.commands.confinement, order.profile)
        still = _Still(order, profile)
        try:
            with _folder_of(order) as folder:
                command = _command(order, profile, still, folder.fd)
                return Started(await order.commands.start(command, on_output), profile, guarded)
        except SandboxSetupError as error:
            if not still.moved:
                raise
            if not left:
                words = "Files that must stay hidden or unchanged move all the time. "
                raise SandboxSetupError(words + "Stop the task that moves them, and try again.") from error
    raise AssertionError  # the last round has returned or raised


def _folder_of(order: Order) -> OpenFolder:
    try:
        return order.rules.workspace.open_folder(order.cwd, frozenset({order.cwd}))
    except PathRefused as refused:
        raise SandboxSetupError(f"The folder to start in cannot be entered: {refused} Nothing was executed.") from None


class _Still:
    """Is what was found still all that is to be hidden or held? Asked when the view of a command stands."""

    def __init__(self, order: Order, profile: Profile) -> None:
        self._order = order
        self._profile = profile
        self.moved = False

    def __call__(self) -> bool:
        order = self._order
        self.moved = profile_of(order.rules, order.commands.confinement, order.profile) != self._profile
        return not self.moved


def _command(order: Order, profile: Profile, still: Callable[[], bool], folder: int) -> Command:
    return Command(
        profile=profile,
        script=order.script,
        cwd=join(order.rules.workspace.root, order.cwd) if order.cwd != "." else "",
        folder=folder,
        alone=order.alone,
        bound=order.bound,
        environment=order.rules.environment,
        still=still,
    )


async def to_the_end(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """In a thread, and waited for whatever happens: what it uses is closed afterwards."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def without_secrets(text: str, artifacts: RunArtifacts) -> str:
    """The start of a command as it may be shown and kept."""
    secrets_out = artifacts.secrets_out()
    content = text.encode("utf-8", "replace")
    kept = secrets_out.feed(content) + secrets_out.end()
    return kept.decode("utf-8", "replace")[:_MAX_COMMAND_CHARS]


def keep_output(spool: Spool, artifacts: RunArtifacts) -> Kept:
    """All of the output; and where there are two streams, which part is of which."""
    spool.end()
    parts = tuple(
        artifacts.keep_stream(_chunks(spool, start), OUTPUT_KIND) for start in range(0, spool.total_bytes, _PART_BYTES)
    )
    if not (spool.bytes_in("stdout") and spool.bytes_in("stderr")):
        return Kept(parts)
    return Kept(parts, artifacts.keep_stream(spool.index_chunks(), INDEX_KIND))


def _chunks(spool: Spool, start: int) -> Iterator[bytes]:
    end = min(spool.total_bytes, start + _PART_BYTES)
    return (spool.read_all(at, min(_CHUNK_BYTES, end - at)) for at in range(start, end, _CHUNK_BYTES))


def _keep(spool: Spool, context: ToolContext) -> Kept:
    try:
        kept = keep_output(spool, context.artifacts)
    except (ArtifactError, OSError) as error:
        context.warn(f"The output of the command could not be kept: {error}")
        return Kept()
    context.kept.extend(kept.all)
    return kept


def _finished(  # noqa: PLR0913, PLR0917 - all that is known of it
    order: Order, before: Before, profile: Profile, ended: Ended, spool: Spool, context: ToolContext
) -> CommandResult:
    kept = _keep(spool, context)
    after = look_after(order, before.guarded)
    if after.hindered and order.can_write:
        context.warn(after.hindered)
    said = Said(*text_of(spool), ended)
    result = CommandResult(
        command=without_secrets(order.script, context.artifacts),
        ended=ended,
        timeout_seconds=order.seconds.allowed,
        clamped=order.seconds.clamped,
        stdout=_ends(spool, "stdout"),
        stderr=_ends(spool, "stderr"),
        stdout_bytes=spool.bytes_in("stdout"),
        stderr_bytes=spool.bytes_in("stderr"),
        excerpt=excerpt(spool, EXCERPT_CHARS),
        output=kept.parts,
        index=kept.streams,
        started_in=order.cwd,
        ended_in=from_root(ended.cwd, order.rules.workspace.root),
        profile=order.profile,
        backend=order.commands.confinement.backend,
        limits=order.rules.limits,
        changes=_changes(order, before.files, after.files),
        guarded=after.guarded,
        violations=violations(said.text, profile, ended.exit_code) if order.profile != "unconfined" else (),
        verification=verified(order, said, before.files, after.files),
    )
    _warn(result, context)
    return result


def _changes(order: Order, before: Fingerprint | None, after: Fingerprint | None) -> Changes | None:
    """What a command reached beside the workspace, nobody has looked at."""
    if before is None or after is None or order.rules.network or order.profile == "unconfined":
        return None
    return changed(before, after)


def _warn(result: CommandResult, context: ToolContext) -> None:
    for violation in result.violations:
        context.warn(f"The sandbox probably refused something ({violation.cause}): {violation.line}")
    warn_of_guarded(result.guarded, context)


def warn_of_guarded(paths: Sequence[str], context: ToolContext) -> None:
    if paths:
        names = ", ".join(map(shown_path, paths[:MAX_PATHS_TOLD]))
        context.warn(f"A command created or exchanged what other programs obey: {names}. Look at it before you use it.")


def from_root(path: str, root: str) -> str:
    return relpath(path, root) if path == root or path.startswith(f"{root}/") else path


def _ends(spool: Spool, stream: Stream) -> bytes:
    size = spool.bytes_in(stream)
    if size <= _STREAM_BYTES:
        return spool.read(stream, 0, size)
    half = _STREAM_BYTES // 2
    return spool.read(stream, 0, half) + spool.read(stream, size - half, half)


class _Progress:
    """The last line of the output for whoever watches, now and then and not for each line."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = float("-inf")
        self._line: Callable[[], str] = str

    def tell(self, line: Callable[[], str]) -> None:
        self._line = line
        if self._timer is None:
            wait = max(0.0, self._told_at + PROGRESS_SECONDS - self._loop.time())
            self._timer = self._loop.call_later(wait, self._tell)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        self._timer = None
        self._told_at = self._loop.time()
        if line := self._line():
            with suppress(Exception):  # whoever watches cannot hurt the command
                self._context.progress(line)
