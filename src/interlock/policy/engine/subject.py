"""What rules speak about: a call as a whole, or each command and each redirect of the script that it would run.

Paths and hosts come from the arguments that the tool declares as such, and from the words of commands. So one rule
about a path or a host holds for every tool that can touch it.
"""

from collections.abc import Iterator
from functools import lru_cache
from os.path import join, normpath
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from ...domain.resources import elements, values_at
from ...domain.tool import JsonObject, ResourceKind, Risk
from ..interface import PolicyEvent
from ..shell.bash import read_argv, read_script
from ..shell.command import Redirect, Script, SimpleCommand
from ..shell.named_paths import hosts_named, paths_named
from ..shell.read_only import is_read_only
from ..shell.risks import facts
from ..shell.runners import decisive_files, runs_unnamed_code
from .hosts import host_of, plain_host
from .paths import Touched, Workspace

#: What arguments name, by dotted name. One argument may name several kinds of things.
Resources: TypeAlias = tuple[tuple[str, ResourceKind], ...]

_Based = TypeVar("_Based", SimpleCommand, Redirect)

_GLOB = frozenset("*?[")
_READ = frozenset({Risk.READ})
_WRITE = frozenset({Risk.WRITE})


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    risk: frozenset[Risk]
    command: SimpleCommand | None = None
    paths: tuple[Touched, ...] = ()
    hosts: tuple[str, ...] = ()
    #: The file that the shell itself would write.
    written: str = ""
    #: Why it is not known what this would run or touch.
    opaque: str = ""

    @property
    def is_hidden(self) -> bool:
        """Is it only a command that another one may start?"""
        return self.command is not None and self.command.hidden

    @property
    def facts(self) -> tuple[str, ...]:
        """Concrete risk, in words for a person: looked up when somebody asks."""
        if self.command is not None:
            return facts(self.command)
        return (f"writes {self.written}",) if self.written else ()

    @property
    def decisive_files(self) -> tuple[str, ...]:
        """What decides the work of a well-known runner, as paths from the workspace on."""
        return decisive_files(self.command) if self.command is not None else ()

    @property
    def names_all_code(self) -> bool:
        """Whether everything that this would run is known and named. False where it is not known."""
        if self.opaque or Risk.EXECUTE not in self.risk:
            return not self.opaque
        return bool(self.written) or (self.command is not None and not runs_unnamed_code(self.command))


def subjects(event: PolicyEvent, resources: Resources, arguments: JsonObject) -> list[Subject]:
    tool = event.tool
    if not resources:
        return [Subject(risk=tool.risk)]
    workspace = _workspace(event.folder).for_one_decision(event.real_path)
    reading = _Reading(workspace, not tool.risk <= _READ)
    for name, kind in resources:
        for value in values_at(arguments, name.split(".")):
            reading.take(kind, name, value)
    whole = Subject(risk=tool.risk, paths=tuple(reading.paths), hosts=tuple(reading.hosts), opaque=reading.unknown)
    scripts = [_moved(script, reading.folder) for script in reading.scripts] if reading.folder else reading.scripts
    return [part for script in scripts for part in _parts(script, whole, reading.workspace)] or [whole]


class _Reading:
    """The resources that the arguments of one call name."""

    def __init__(self, workspace: Workspace, writes: bool) -> None:
        self.workspace = workspace
        self.paths: list[Touched] = []
        self.hosts: list[str] = []
        self.scripts: list[Script] = []
        self.unknown = ""
        #: Where the commands start, when it is not the workspace.
        self.folder = ""
        self._writes = writes

    def take(self, kind: ResourceKind, name: str, value: Any) -> None:
        if value is None:
            return
        if kind == "command":
            self.scripts.append(_script(value))
        elif isinstance(value, list):
            for item in elements(cast(object, value)):
                self.take(kind, name, item)
        elif not isinstance(value, str):
            self.unknown = f"{name} is no text"
        elif kind == "path":
            self._path(name, value, self._writes)
        elif kind == "folder":
            self._folder(name, value)
        else:
            self._host(name, value)

    def _folder(self, name: str, value: str) -> None:
        if value and normpath(value) != ".":
            self.folder = value
            self._path(name, value, writes=False)

    def _path(self, name: str, value: str, writes: bool) -> None:
        path = self.workspace.touched(value, writes=writes)
        self.paths.append(path)
        if not path.places:
            self.unknown = f"it cannot be known where {name} leads"

    def _host(self, name: str, value: str) -> None:
        host = host_of(value)
        if host is None:
            self.unknown = f"it cannot be known which host {name} names"
        else:
            self.hosts.append(host)


def _moved(script: Script, folder: str) -> Script:
    """The script as it runs in that folder: what is allowed in the workspace is not allowed there by the same words."""

    def moved(part: _Based) -> _Based:
        return msgspec.structs.replace(part, bases=tuple(join(folder, base) for base in part.bases))

    return msgspec.structs.replace(
        script, commands=tuple(map(moved, script.commands)), redirects=tuple(map(moved, script.redirects))
    )


def _script(value: Any) -> Script:
    if isinstance(value, str):
        return read_script(value)
    words = cast(list[object], value) if isinstance(value, list) else [None]
    texts = [word for word in words if isinstance(word, str)]
    return read_argv(texts) if len(texts) == len(words) else Script(opaque="the command is no text")


def _parts(script: Script, whole: Subject, workspace: Workspace) -> Iterator[Subject]:
    """What the script would do, one part after the other."""
    for command in script.commands:
        yield _command(command, whole, workspace, proved=not script.opaque)
    for redirect in script.redirects:
        yield _redirect(redirect, whole, workspace)
    if script.opaque or whole.opaque:
        yield msgspec.structs.replace(whole, opaque=script.opaque or whole.opaque)


def _command(command: SimpleCommand, whole: Subject, workspace: Workspace, *, proved: bool) -> Subject:
    def is_glob(word: str) -> bool:
        return bool(command.globs) and not _GLOB.isdisjoint(word)

    def inside(word: str, bases: tuple[str, ...]) -> bool:
        return workspace.inside(word, bases, is_glob=is_glob(word))

    reads = proved and is_read_only(command, inside)
    paths = [
        path
        for word in paths_named(command)
        for path in workspace.named(word, writes=not reads, bases=command.bases, is_glob=is_glob(word))
    ]
    hosts = [plain_host(host) for host in hosts_named(command)]
    return Subject(
        risk=_READ if reads else whole.risk,
        command=command,
        paths=(*whole.paths, *paths),
        hosts=(*whole.hosts, *(host for host in hosts if host is not None)),
        opaque=_unknown(paths, hosts),
    )


def _unknown(paths: list[Touched], hosts: list[str | None]) -> str:
    if not all(path.places for path in paths):
        return "it cannot be known where its paths lead"
    return "it cannot be known which hosts it names" if None in hosts else ""


def _redirect(redirect: Redirect, whole: Subject, workspace: Workspace) -> Subject:
    path = workspace.touched(redirect.path, writes=redirect.writes, bases=redirect.bases)
    risk = _WRITE if redirect.writes else _READ if path.inside else whole.risk
    written = redirect.path if redirect.writes else ""
    unknown = "" if path.places else "it cannot be known where its paths lead"
    return msgspec.structs.replace(whole, risk=risk, paths=(*whole.paths, path), written=written, opaque=unknown)


_workspace = lru_cache(maxsize=64)(Workspace)
