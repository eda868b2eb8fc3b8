"""Pins: the definitions of tools that a person has accepted, or that were there at the first use of a server.

A tool is pinned with its whole definition, under its server and its name, so a difference can be shown. What is not
pinned is not called: a definition that changed, a new tool of a server that was pinned before, and a tool that took
another name. The file is written as a whole; several processes may do so.
"""

import difflib
import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, NamedTuple

import msgspec

from ...domain.errors import ConfigurationError
from ...domain.rendering import neutralize
from ...domain.tool import JsonObject
from .definitions import ForeignTool, compute_digest
from .servers_file import ServerConfig

_FILE_VERSION = 1
_MAX_FILE_BYTES = 64 << 20
_MAX_DIFF_LINES, _MAX_LINE_CHARS = 200, 400


class PinnedServer(msgspec.Struct, forbid_unknown_fields=True):
    """The accepted definitions of one server, by the names that it gives them."""

    tools: dict[str, JsonObject] = {}


class _PinFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int = _FILE_VERSION
    servers: dict[str, PinnedServer] = {}


class Deviation(NamedTuple):
    """A tool that is not as it was accepted."""

    kind: Literal["changed", "new"]
    #: What is different, in lines of a unified diff.
    diff: str


class PinStore:
    """The pins in one file. Without a file they last as long as this object."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._content = _PinFile()
        self._stamp: tuple[int, ...] = ()
        self.reload()

    def reload(self) -> bool:
        """Read the file again if it changed. Return True if it did."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._content = self._read()
        self._stamp = stamp
        return True

    def find(self, server: str) -> Mapping[str, JsonObject] | None:
        """Return the accepted definitions of a server; None when it has none and never had."""
        pinned = self._content.servers.get(server)
        return None if pinned is None else pinned.tools

    def accept(self, server: str, definitions: Mapping[str, JsonObject], *, whole: bool = False) -> None:
        """Accept definitions. `whole`: they are all that the server has; others are forgotten."""
        with self._locked():
            self.reload()
            pinned = self._content.servers.setdefault(server, PinnedServer())
            pinned.tools = {**({} if whole else pinned.tools), **definitions}
            self._write()

    def accept_first(self, server: str, definitions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Accept the definitions of a server that was never pinned, and return the accepted ones."""
        with self._locked():
            self.reload()
            pinned = self._content.servers.get(server)
            if pinned is None:
                pinned = self._content.servers[server] = PinnedServer(dict(definitions))
                self._write()
            return pinned.tools

    def _read_stamp(self) -> tuple[int, ...]:
        if self.path is None:
            return ()
        try:
            found = os.stat(self.path)
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> _PinFile:
        if self.path is None:
            return self._content
        try:
            content = self.path.read_bytes() if self.path.stat().st_size <= _MAX_FILE_BYTES else b""
            found = msgspec.json.decode(content, type=_PinFile)
        except FileNotFoundError:
            return _PinFile()
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise ConfigurationError(
                f"The pins in {self.path} cannot be read: {error}. Restore the file, or remove it and accept the tools "
                "again with `interlock mcp accept`."
            ) from None
        if found.version != _FILE_VERSION:
            raise ConfigurationError(
                f"The pins in {self.path} are of version {found.version}, which is not known here."
            )
        return found

    def _write(self) -> None:
        if self.path is None:
            return
        content = msgspec.json.format(msgspec.json.encode(self._content, order="deterministic"), indent=1)
        with NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
            try:
                file.write(content + b"\n")
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, self.path)
            except BaseException:
                os.unlink(file.name)
                raise
        self._stamp = self._read_stamp()

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold a lock among all processes that write the file."""
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def choose_pin_file(config: ServerConfig, file: Path | None, state: Path | None) -> Path | None:
    """Return where the pins of a server are: beside the servers file if they are locked, else in the state folder."""
    beside = None if file is None else file.with_suffix(".lock.json")
    if config.pins == "locked" or state is None:
        return beside
    name = "pins" if file is None else f"pins-{compute_digest({'file': str(file)})[-16:]}"
    return state / "mcp" / f"{name}.json"


def find_deviation(tool: ForeignTool, pinned: Mapping[str, JsonObject]) -> Deviation | None:
    """Return how a tool differs from what was accepted; None when it does not."""
    accepted = pinned.get(tool.raw.name)
    if accepted is not None and compute_digest(accepted) == tool.digest:
        return None
    return Deviation("new" if accepted is None else "changed", make_diff(accepted, tool.document))


def make_diff(before: JsonObject | None, after: JsonObject | None) -> str:
    """Return the difference of two definitions, cut and without anything that acts on a terminal."""
    lines = list(difflib.unified_diff(_to_lines(before), _to_lines(after), "accepted", "now", lineterm="", n=2))
    shown = [neutralize(line[:_MAX_LINE_CHARS]) for line in lines[:_MAX_DIFF_LINES]]
    if (left := len(lines) - _MAX_DIFF_LINES) > 0:
        shown.append(f"[{left:,} more lines]")
    return "\n".join(shown)


def _to_lines(document: JsonObject | None) -> list[str]:
    if document is None:
        return []
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2).decode().splitlines()
