"""ripgrep, in a sandbox that shows only the workspace, read-only.

What it prints is handed on as it comes. Whatever the pattern and the files are, a search ends: the engine takes linear
time, and time, memory and output are bounded. A search that was ended early has found something, too, and says that it
is not complete. One that hangs at an ignore file which is no plain file is done again without ignore files.

Landlock cannot list a folder when a folder below it is hidden. There the names of all files are asked for first, with
nothing hidden, as a search for names does; then the search is given those that are open, or the folders they are in.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from ...domain.decision import Decision, Verdict
from ...domain.errors import PreconditionError
from ...domain.tool import CallContext, JsonObject, SandboxScope
from ...sandbox.interface import (
    CommandExit,
    CommandLimits,
    CommandSandbox,
    CommandSpec,
    OutputStream,
    RunningCommand,
    SandboxProfile,
)
from ...sandbox.workspace.protected_names import SECRET_FILES, SECRET_FOLDERS, SECRET_PATTERNS
from ...sandbox.workspace.workspace import Workspace
from ..files.baseline import display_path
from ..files.file_content import make_precondition_error
from .glob_pattern import GlobPattern
from .search_output import EnoughOutputError, NameReader
from .search_root import ROOT_PREFIX, ClosedPaths, list_open_below, to_printed_path

#: Lists of what to ignore, and what leads to one of a repository.
_IGNORE_FILE_NAMES = frozenset({".gitignore", ".ignore", ".rgignore", "exclude", "commondir"})
#: Larger than any that a person writes.
_MAX_IGNORE_FILE_BYTES = 1 << 20
_IGNORE_SCAN_SECONDS = 5.0


def find_bad_ignore_file(root: str) -> str:
    """Return the path of an unusable ignore file, by names alone: nothing is opened. Empty when none was found in
    time.
    """
    deadline = monotonic() + _IGNORE_SCAN_SECONDS
    for folder, _, names in os.walk(root):
        for name in sorted(_IGNORE_FILE_NAMES.intersection(names)):
            if is_bad_ignore_file(path := os.path.join(folder, name)):
                return path
        if monotonic() > deadline:
            break
    return ""


def is_bad_ignore_file(path: str) -> bool:
    """Return True if an ignore file is too large or not a regular file."""
    try:
        # Through links, as ripgrep would go.
        found = os.stat(path)
    except OSError:
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_IGNORE_FILE_BYTES


_SECONDS = 20.0
#: After so long it is asked what a search may be waiting for. Most take milliseconds.
_PATIENCE_SECONDS = 1.0
_LIMITS = CommandLimits(memory_bytes=1 << 30, processes=64, output_bytes=32 << 20, grace_seconds=0.0)
_MAX_STDERR_BYTES = 1 << 16
_MAX_STDERR_CHARS = 1_000
#: Of names on a command line. The kernel takes some more.
_MAX_NAMES_BYTES = 1 << 18
#: It advises options that a caller does not have, or has by another name.
_PCRE2_ADVICE = "Consider enabling PCRE2 with the --pcre2 flag, which can handle backreferences\nand look-around."
_MULTILINE_ADVICE = (
    "Consider enabling multiline mode with the --multiline flag (or -U for short).\n"
    "When multiline mode is enabled, new line characters can be matched."
)
_ERROR_EXIT_CODE = 2
#: What it says about single files begins like this: their paths begin with `./`.
_FILE_ERROR_PREFIX = b"rg: ./"
_TYPE = "wanted"

#: Ignore files count without a repository as well. Names that begin with a dot are searched, except git's own.
_COMMON_OPTIONS = (
    "--no-config",
    "--color=never",
    "--hidden",
    "--no-require-git",
    "--no-ignore-messages",
    "--null",
    "--glob=!.git",
)
#: Files that hold credentials are not even opened. Some patterns have exceptions, which globs cannot say: what is found
#: in the files that these leave is dropped later.
_SECRET_EXCLUSIONS = tuple(
    f"--iglob=!**/{{{','.join(sorted(names))}}}"
    for names in (
        ["/".join(path) for path in SECRET_FOLDERS | SECRET_FILES],
        [pattern for pattern in SECRET_PATTERNS if pattern.startswith("*")],
    )
)

#: Why a search has not seen everything, as text.
STOP_REASONS: Mapping[str, str] = {
    "timeout": f"it took longer than {_SECONDS:g} s",
    "memory_limit": "it needed too much memory",
    "output_limit": "there is too much to count",
    "enough": "there is too much to count",
    "crashed": "it ended unexpectedly",
}
#: Of these, what comes of having found very much.
TOO_MUCH_REASONS = frozenset({"enough", "output_limit"})
#: An ignore file may be why.
_IGNORE_FILE_SUSPECTS = frozenset({"memory_limit", "crashed"})


class OutputReader(Protocol):
    """Takes the output of ripgrep. May raise `EnoughOutputError`."""

    def feed(self, chunk: bytes) -> None: ...


_R = TypeVar("_R", bound=OutputReader)


class SearchStatus(NamedTuple):
    """How a search ended."""

    #: Empty when it saw everything, else a key of `STOP_REASONS`.
    stopped: str
    #: How many files and folders could not be read.
    unreadable: int
    closed: ClosedPaths
    #: An ignore file that cannot be read, so that none was obeyed: its path, as ripgrep would print it.
    bad_ignore_file: bytes = b""

    def why_all(self) -> str:
        """Return why ignore files were not obeyed, as a note; empty when they were."""
        if not self.bad_ignore_file:
            return ""
        which = (
            "one of them"
            if self.closed.is_closed(self.bad_ignore_file)
            else os.fsdecode(self.bad_ignore_file).removeprefix("./")
        )
        shown = which if which.isprintable() else "one of them"
        return f"[ignore files were not obeyed, since {shown} is not a plain file of a usual size]"


class _SearchAttempt(NamedTuple):
    stopped: str
    said: bytearray
    odd: str = ""


class _SearchPlan(NamedTuple):
    place: str
    hidden: tuple[str, ...]
    closed: ClosedPaths
    unlistable: frozenset[bytes]
    #: Set when ripgrep is at work.
    began: asyncio.Event


class Ripgrep:
    """Runs searches of ripgrep in a workspace."""

    def __init__(
        self,
        workspace: Workspace,
        commands: CommandSandbox,
        rg: str,
        hidden: Callable[[], tuple[str, ...]] | None = None,
    ) -> None:
        """Set up searches. `hidden` lists, as absolute paths, what the workspace closes to tools, so that ripgrep does
        not see it. Where only names are listed, this takes longer than the rest and gains nothing.
        """
        self._workspace = workspace
        self._commands = commands
        self._rg = os.path.realpath(rg)
        self._hidden = hidden
        #: What `hidden` returned last; None: it was not asked yet.
        self._last_hidden: tuple[str, ...] | None = None
        #: The last ignore file that could not be read: while it is there, no search waits for it again.
        self._bad_ignore_file = ""

    async def run(self, options: Sequence[str], place: str, new_reader: Callable[[], _R]) -> tuple[_R, SearchStatus]:
        """Search a real path from the workspace on. Paths in the output are from there on, and begin with `./`.

        A search that has to be done again gets a new reader. `PreconditionError` in ripgrep's words when it cannot do
        this. `SandboxSetupError` when the workspace is not the folder any more that it was.
        """
        self._workspace.check_not_replaced()
        if self._hidden is None:
            return await self._run(self._make_plan(place, ()), options, new_reader)
        if self._last_hidden is None:
            self._last_hidden = hidden = await asyncio.to_thread(self._hidden)
            return await self._run(self._make_plan(place, hidden), options, new_reader)
        # To look for hidden files takes as long as a small search, and mostly finds what it found before. So it is done
        # beside the search, which counts only if that was so.
        plan = self._make_plan(place, self._last_hidden)
        search = asyncio.create_task(self._run(plan, options, new_reader))
        search.add_done_callback(lambda _: plan.began.set())
        try:
            await plan.began.wait()
            self._last_hidden = hidden = await asyncio.to_thread(self._hidden)
            if hidden == plan.hidden:
                return await search
        finally:
            search.cancel()
            await asyncio.gather(search, return_exceptions=True)
        return await self._run(self._make_plan(place, hidden), options, new_reader)

    def _make_plan(self, place: str, hidden: tuple[str, ...]) -> "_SearchPlan":
        closed = ClosedPaths(self._workspace, hidden)
        return _SearchPlan(place, hidden, closed, self._find_unlistable(closed), asyncio.Event())

    async def _run(
        self, plan: "_SearchPlan", options: Sequence[str], new_reader: Callable[[], _R]
    ) -> tuple[_R, SearchStatus]:
        reader, odd = new_reader(), self._bad_ignore_file
        if odd and not is_bad_ignore_file(odd):
            odd = ""
        done = _SearchAttempt("", bytearray(), odd)
        if not odd:
            done = await self._search(plan, options, reader)
        if done.odd:
            reader = new_reader()
            again = await self._search(plan, options, reader, use_ignore_files=False)
            done = again._replace(odd=done.odd)
        self._bad_ignore_file = done.odd
        unreadable = plan.closed.find_unreadable(plan.place, _find_unreadable(done.said))
        if to_printed_path(plan.place) in unreadable:
            raise make_precondition_error(f"{display_path(plan.place)} cannot be read, so nothing was searched")
        return reader, SearchStatus(done.stopped, len(unreadable), plan.closed, self._printed_path(done.odd))

    def _find_unlistable(self, closed: ClosedPaths) -> frozenset[bytes]:
        """Find the parent folders of hidden folders, if the backend does not let them be listed."""
        if self._commands.confinement.backend != "landlock":
            return frozenset()
        return closed.find_parent_folders()

    async def _search(
        self, plan: "_SearchPlan", options: Sequence[str], reader: OutputReader, use_ignore_files: bool = True
    ) -> _SearchAttempt:
        ignore = () if use_ignore_files else ("--no-ignore",)
        place = to_printed_path(plan.place)
        # Ignore files count from the workspace on, and none above it.
        where = ("--no-ignore-parent", "--", ".") if plan.place == "." else ("--", f"./{plan.place}")
        if place not in plan.unlistable:
            command = self._build_command((*options, *ignore), where, plan.hidden)
            return await self._attempt(command, reader, use_ignore_files, plan.began)
        names = NameReader()
        # A file that is named is searched whatever its type is.
        types = (option for option in options if option.startswith("--type"))
        listed = await self._attempt(
            self._build_command(("--files", *types, *ignore), where, ()), names, use_ignore_files
        )
        # Of those that are shown empty, only the names were seen.
        files = [path for path in names.names if not plan.closed.is_closed(path)]
        given = sorted(set(list_open_below(place, plan.unlistable, files)))
        if listed.odd or listed.stopped or not given:
            return listed
        if sum(map(len, given)) > _MAX_NAMES_BYTES:
            raise make_precondition_error(
                "There are too many files beside a folder that is closed to tools. Search a folder below"
            )
        command = self._build_command((*options, *ignore), ("--", *map(os.fsdecode, given)), plan.hidden)
        found = await self._attempt(command, reader, use_ignore_files)
        return found._replace(said=listed.said + found.said)

    async def _attempt(
        self,
        command: CommandSpec,
        reader: OutputReader,
        check_ignore_files: bool = True,
        began: asyncio.Event | None = None,
    ) -> _SearchAttempt:
        said = bytearray()

        def receive(stream: OutputStream, chunk: bytes) -> None:
            if stream == "stdout":
                reader.feed(chunk)
            elif len(said) < _MAX_STDERR_BYTES:
                said.extend(chunk)

        odd = ""
        try:
            running = await self._commands.start(command, receive)
            if began is not None:
                began.set()
            ended, odd = (
                await self._wait_for_exit(running) if check_ignore_files else (await running.wait(_SECONDS), "")
            )
            stopped = _find_stop_reason(ended, bytes(said))
        except EnoughOutputError:
            stopped = "enough"
        if check_ignore_files and not odd and stopped in _IGNORE_FILE_SUSPECTS:
            odd = await asyncio.to_thread(find_bad_ignore_file, self._workspace.root)
        return _SearchAttempt(stopped, said, odd)

    async def _wait_for_exit(self, running: RunningCommand) -> tuple[CommandExit, str]:
        """Wait for the end of a search. Return it with the path that it was blocked by, if it was ended for that."""
        odd: list[str] = []

        async def look() -> None:
            await asyncio.sleep(_PATIENCE_SECONDS)
            if found := await asyncio.to_thread(find_bad_ignore_file, self._workspace.root):
                odd.append(found)
                await running.stop()

        watch = asyncio.ensure_future(look())
        try:
            return await running.wait(_SECONDS), "".join(odd)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    def _printed_path(self, path: str) -> bytes:
        return to_printed_path(os.path.relpath(path, self._workspace.root)) if path else b""

    def authorize(self) -> Decision | None:
        """Return the decision for `authorize`: without a sandbox, a search requires approval."""
        if self._is_confined:
            return None
        reason = "The search cannot be held inside the workspace here: this host allows no sandbox."
        return Decision(verdict=Verdict.ASK, reason=reason, rule_ids=("sandbox:none",), layer="sandbox", risk=("read",))

    def describe_scope(self, arguments: JsonObject, situation: CallContext) -> SandboxScope:
        """Describe the read-only sandbox of searches."""
        confinement = self._commands.confinement
        return SandboxScope(sandbox=confinement.backend, profile="read-only", capabilities=confinement.capabilities)

    @property
    def _is_confined(self) -> bool:
        return self._commands.confinement.backend != "none"

    def _build_command(self, options: Sequence[str], where: Sequence[str], hidden: tuple[str, ...]) -> CommandSpec:
        profile = SandboxProfile(
            workspace=self._workspace.root,
            identity=self._workspace.identity,
            # A backend that cannot enforce this would refuse, and a person has approved an unconfined search.
            writable=not self._is_confined,
            system=False,
            readable=(self._rg,),
            hidden=hidden if self._is_confined else (),
            limits=_LIMITS,
        )
        return CommandSpec(profile=profile, argv=(self._rg, *_COMMON_OPTIONS, *options, *where), has_bulk_output=True)


def make_unfinished_error(stopped: str) -> PreconditionError:
    """Return the error for a search that was ended without a match: whether it ever began is unknown."""
    return make_precondition_error(
        f"The search was not finished: {STOP_REASONS[stopped]}, and nothing was found until then. "
        "Search a smaller folder, or fewer files"
    )


def build_search_options(pattern: str, *, literal: bool, multiline: bool, case_insensitive: bool) -> tuple[str, ...]:
    """Return the options of a text search."""
    flags = {"--fixed-strings": literal, "--multiline": multiline, "--ignore-case": case_insensitive}
    chosen = (flag for flag, wanted in flags.items() if wanted)
    # Files are read and not mapped: what is mapped counts as memory. Large sets of states are not worth their memory.
    return (
        *_SECRET_EXCLUSIONS,
        "--no-mmap",
        "--dfa-size-limit=64M",
        "--regex-size-limit=16M",
        *chosen,
        f"--regexp={pattern}",
    )


def build_name_options(pattern: GlobPattern) -> tuple[str, ...]:
    """Return the options that select files, as far as ripgrep can."""
    depth = () if pattern.depth is None else (f"--max-depth={pattern.depth}",)
    if not pattern.names:
        return depth
    return (*depth, *(f"--type-add={_TYPE}:{name}" for name in pattern.names), f"--type={_TYPE}")


def _find_unreadable(said: bytearray) -> Iterator[bytes]:
    """Yield the files in `rg: ./path: why` lines."""
    for line in said.split(b"\n"):
        if line.startswith(_FILE_ERROR_PREFIX):
            yield bytes(line[len(_FILE_ERROR_PREFIX) - len(ROOT_PREFIX) :].rpartition(b": ")[0])


def _find_stop_reason(ended: CommandExit, said: bytes) -> str:
    if ended.reason != "exited":
        return ended.reason if ended.reason in STOP_REASONS else "crashed"
    if ended.exit_code is None:
        return "crashed"
    if ended.exit_code >= _ERROR_EXIT_CODE and not said.startswith(_FILE_ERROR_PREFIX):
        raise make_precondition_error(f"The search was not done. ripgrep says: {_clean_stderr(said) or 'nothing'}")
    return ""


def _clean_stderr(said: bytes) -> str:
    words = said.decode(errors="replace").removeprefix("rg: ").strip().removesuffix(_PCRE2_ADVICE).rstrip()
    if words.endswith(_MULTILINE_ADVICE):
        words = words.removesuffix(_MULTILINE_ADVICE) + "Set multiline=true"
    return words[:_MAX_STDERR_CHARS]
