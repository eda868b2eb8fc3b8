"""ripgrep, in a sandbox that shows it the workspace and nothing else, and lets it change nothing.

What it prints is handed on as it comes. Whatever the pattern and the files are, a search ends: the engine takes linear
time, and time, memory and output are bounded. A search that was ended early has found something, too, and says that it
is not complete.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..domain.decision import Decision, Verdict
from ..domain.tool import JsonObject, Reach, Situation
from ..sandbox.interface import Command, CommandLimits, CommandSandbox, Ended, Profile, Stream
from ..sandbox.protected import SECRET_FILES, SECRET_FOLDERS, SECRET_PATTERNS
from ..sandbox.workspace import Workspace
from .file_content import cannot
from .glob_pattern import GlobPattern

_SECONDS = 20.0
_LIMITS = CommandLimits(memory_bytes=1 << 30, processes=64, output_bytes=32 << 20, grace_seconds=0.0)
_MAX_STDERR_BYTES = 1 << 16
_MAX_SAID_CHARS = 1_000
_FAILED = 2
#: What it says about single files begins like this: their paths begin with `./`.
_ABOUT_A_FILE = b"rg: ./"
_ROOT = b"./"
_TYPE = "wanted"

#: Ignore files count without a repository as well. Names that begin with a dot are searched, except git's own.
_ALWAYS = ("--no-config", "--color=never", "--hidden", "--no-require-git", "--null", "--glob=!.git")
#: Files that hold credentials are not even opened. Some patterns have exceptions, which globs cannot say: what is found
#: in the files that these leave is dropped later.
_NO_SECRETS = tuple(
    f"--iglob=!**/{{{','.join(sorted(names))}}}"
    for names in (
        ["/".join(path) for path in SECRET_FOLDERS | SECRET_FILES],
        [pattern for pattern in SECRET_PATTERNS if pattern.startswith("*")],
    )
)

#: Why a search has not seen everything, in words.
STOPPED: Mapping[str, str] = {
    "timeout": f"it took longer than {_SECONDS:g} s",
    "memory_limit": "it needed too much memory",
    "output_limit": "there is too much to count",
    "enough": "there is too much to count",
    "crashed": "it ended unexpectedly",
}


class Enough(Exception):
    """Raised by the reader of an output: the rest is not wanted."""


class Closed:
    """Which paths are closed to tools: what was hidden from the search, and what is by its name."""

    def __init__(self, workspace: Workspace, hidden: Iterable[str]) -> None:
        inside = workspace.root.rstrip("/") + "/"
        self._workspace = workspace
        self._paths = frozenset(_path(path.removeprefix(inside)) for path in hidden if path.startswith(inside))
        self._below = tuple(path + b"/" for path in self._paths)

    def hides(self, path: bytes) -> bool:
        return path in self._paths or path.startswith(self._below)

    def forbids(self, path: bytes) -> bool:
        return self.hides(path) or self._workspace.refusal(os.fsdecode(path[len(_ROOT) :])) is not None

    def open_among(self, paths: list[bytes]) -> list[bytes]:
        """For very many. Most names of secrets begin with a dot; others ripgrep leaves out, or sees empty. So what is
        shown in the end is to be asked about one by one.
        """
        together = b"\0".join(paths)
        closed = set(filter(self.forbids, _dotted(together)))
        if not together.isascii():
            closed.update(path for path in paths if not path.isascii() and self.forbids(path))
        if self._paths:
            closed.update(filter(self.hides, paths))
        return [path for path in paths if path not in closed] if closed else paths

    def count_in(self, place: str) -> int:
        folder = _ROOT if place == "." else _path(place) + b"/"
        return sum(path.startswith(folder) for path in self._paths)


def _dotted(paths: bytes) -> Iterator[bytes]:
    """Of paths with NUL between them, those in which a name begins with a dot. They are few among many."""
    at = paths.find(b"/.")
    while at >= 0:
        start, end = paths.rfind(b"\0", 0, at) + 1, paths.find(b"\0", at)
        yield paths[start : end if end >= 0 else None]
        at = paths.find(b"/.", end) if end >= 0 else -1


def _path(relative: str) -> bytes:
    """As ripgrep prints it."""
    return _ROOT + os.fsencode(relative)


class Searched(NamedTuple):
    """What became of a search."""

    #: Empty when it saw everything, else a key of `STOPPED`.
    stopped: str
    #: How many files could not be read.
    unreadable: int
    closed: Closed


class Ripgrep:
    def __init__(
        self,
        workspace: Workspace,
        commands: CommandSandbox,
        rg: str,
        hidden: Callable[[], tuple[str, ...]] | None = None,
    ) -> None:
        """`hidden` names what the workspace closes to tools, by absolute paths, so that ripgrep does not see it. Where
        only names are listed, this takes longer than the rest and gains nothing.
        """
        self._workspace = workspace
        self._commands = commands
        self._rg = os.path.realpath(rg)
        self._hidden = hidden

    async def run(self, options: Sequence[str], place: str, read: Callable[[bytes], None]) -> Searched:
        """Search a real path from the workspace on. Paths in the output are from there on, and begin with `./`.

        `PreconditionError` in ripgrep's words when it cannot do this.
        """
        hidden = await asyncio.to_thread(self._hidden) if self._hidden else ()
        said = bytearray()

        def receive(stream: Stream, chunk: bytes) -> None:
            if stream == "stdout":
                read(chunk)
            elif len(said) < _MAX_STDERR_BYTES:
                said.extend(chunk)

        try:
            running = await self._commands.start(self._command(options, place, hidden), receive)
            stopped = _stopped(await running.wait(_SECONDS), bytes(said))
        except Enough:
            stopped = "enough"
        closed = Closed(self._workspace, hidden)
        return Searched(stopped, sum(not closed.hides(path) for path in _unreadable(said)), closed)

    def opinion(self) -> Decision | None:
        """For `authorize`: without a sandbox a search is a question to a person."""
        if self._is_confined:
            return None
        reason = "The search cannot be held inside the workspace here: this host allows no sandbox."
        return Decision(verdict=Verdict.ASK, reason=reason, rule_ids=("sandbox:none",), layer="sandbox", risk=("read",))

    def reach(self, arguments: JsonObject, situation: Situation) -> Reach:
        confinement = self._commands.confinement
        return Reach(sandbox=confinement.backend, profile="read-only", capabilities=confinement.capabilities)

    @property
    def _is_confined(self) -> bool:
        return self._commands.confinement.backend != "none"

    def _command(self, options: Sequence[str], place: str, hidden: tuple[str, ...]) -> Command:
        # Ignore files count from the workspace on, and none above it.
        where = ("--no-ignore-parent", "--", ".") if place == "." else ("--", f"./{place}")
        profile = Profile(
            workspace=self._workspace.root,
            # A backend that cannot hold this would refuse, and a person has said yes to a search that nothing holds.
            writable=not self._is_confined,
            system=False,
            readable=(self._rg,),
            hidden=hidden if self._is_confined else (),
            limits=_LIMITS,
        )
        return Command(profile=profile, argv=(self._rg, *_ALWAYS, *options, *where))


def search_options(pattern: str, *, literal: bool, multiline: bool, case_insensitive: bool) -> tuple[str, ...]:
    """How to look for a text in files."""
    flags = {"--fixed-strings": literal, "--multiline": multiline, "--ignore-case": case_insensitive}
    chosen = (flag for flag, wanted in flags.items() if wanted)
    # Files are read and not mapped: what is mapped counts as memory. Large sets of states are not worth their memory.
    return (*_NO_SECRETS, "--no-mmap", "--dfa-size-limit=64M", "--regex-size-limit=16M", *chosen, f"--regexp={pattern}")


def name_options(pattern: GlobPattern) -> tuple[str, ...]:
    """Which files to look at, as far as ripgrep can tell."""
    depth = () if pattern.depth is None else (f"--max-depth={pattern.depth}",)
    if not pattern.names:
        return depth
    return (*depth, *(f"--type-add={_TYPE}:{name}" for name in pattern.names), f"--type={_TYPE}")


def _unreadable(said: bytearray) -> Iterator[bytes]:
    """The files in `rg: ./path: why` lines."""
    for line in said.split(b"\n"):
        if line.startswith(_ABOUT_A_FILE):
            yield bytes(line[len(_ABOUT_A_FILE) - len(_ROOT) :].rpartition(b": ")[0])


def _stopped(ended: Ended, said: bytes) -> str:
    if ended.reason != "exited":
        return ended.reason if ended.reason in STOPPED else "crashed"
    if ended.exit_code is None:
        return "crashed"
    if ended.exit_code >= _FAILED and not said.startswith(_ABOUT_A_FILE):
        words = said.decode(errors="replace").removeprefix("rg: ").strip()[:_MAX_SAID_CHARS]
        raise cannot(f"The search was not done. ripgrep says: {words or 'nothing'}")
    return ""
