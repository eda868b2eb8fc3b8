"""The subjects of rules: a call as a whole, or each command and each redirect of the script that it would run.

Paths and hosts come from the arguments that the tool declares as such, and from the words of commands. So one rule
about a path or a host holds for every tool that can touch it.
"""

from collections.abc import Iterator
from functools import lru_cache
from os.path import join, normpath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from ... import lazy_module
from ...domain.hosts import normalize_host, parse_host
from ...domain.tool import CallContext, JsonObject, ResourceKind, Risk, flatten, values_at
from ..interface import PolicyEvent
from ..shell.command import Redirect, Script, SimpleCommand
from ..shell.command_facts import (
    USES_NETWORK,
    can_run_unnamed_code,
    describe_risks,
    find_decisive_files,
    find_script_names,
    find_uncontained_risk,
)
from ..shell.command_resources import find_hosts, find_paths
from ..shell.read_only import is_read_only
from .paths import PathAccess, PathResolver

if TYPE_CHECKING:
    from ..shell import bash
    from . import example_event
else:
    # Two parsers and what only a hypothetical call needs: many programs have no tool that runs commands.
    bash = lazy_module("..shell.bash", __package__)
    example_event = lazy_module(".example_event", __package__)

#: What arguments name, by dotted name. One argument may name several kinds of things.
Resources: TypeAlias = tuple[tuple[str, ResourceKind], ...]

_CommandOrRedirect = TypeVar("_CommandOrRedirect", SimpleCommand, Redirect)

_GLOB = frozenset("*?[")
_READ_RISKS = frozenset({Risk.READ})
_WRITE_RISKS = frozenset({Risk.WRITE})


class CallPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a call that rules match: its command, paths, hosts and risk."""

    risk: frozenset[Risk]
    command: SimpleCommand | None = None
    paths: tuple[PathAccess, ...] = ()
    hosts: tuple[str, ...] = ()
    #: The file that the shell itself would write.
    written: str = ""
    #: Why it is not known what this would run or touch.
    opaque: str = ""

    @property
    def is_hidden(self) -> bool:
        """True when it is only a command that another one may start."""
        return self.command is not None and self.command.hidden

    @property
    def risk_descriptions(self) -> tuple[str, ...]:
        """Concrete risks, as text for a person: computed on demand."""
        if self.command is not None:
            return describe_risks(self.command)
        return (f"writes {self.written}",) if self.written else ()

    def find_uncontained_risk(self, has_egress: bool) -> str:
        """Return the risk that stays when a sandbox runs this without a network, or with a proxy that decides which
        hosts it reaches (`has_egress`); empty when none is known.
        """
        return find_uncontained_risk(self.command, has_egress) if self.command is not None else ""

    @property
    def files(self) -> tuple[PathAccess, ...]:
        """The paths without the names of scripts and targets, which rules look at and an approval is not bound to."""
        names = find_script_names(self.command) if self.command is not None else frozenset[str]()
        return tuple(path for path in self.paths if path.given not in names) if names else self.paths

    @property
    def decisive_files(self) -> tuple[str, ...]:
        """Files that decide what a well-known runner does, relative to the workspace."""
        return find_decisive_files(self.command) if self.command is not None else ()

    @property
    def names_all_code(self) -> bool:
        """True when everything that this would run is known and named."""
        if self.opaque or Risk.EXECUTE not in self.risk:
            return not self.opaque
        return bool(self.written) or (self.command is not None and not can_run_unnamed_code(self.command))


def extract_call_parts(event: PolicyEvent, resources: Resources, arguments: JsonObject) -> list[CallPart]:
    """Split a call into the parts that rules decide about separately."""
    tool = event.tool
    if not resources:
        return [CallPart(risk=tool.risk)]
    resolver = _path_resolver(event.folder).with_budget(event.real_path)
    collector = _ResourceCollector(resolver, not tool.risk <= _READ_RISKS)
    for name, kind in resources:
        for value in values_at(arguments, name.split(".")):
            collector.add(kind, name, value)
    whole = CallPart(
        risk=tool.risk, paths=tuple(collector.paths), hosts=tuple(collector.hosts), opaque=collector.opaque_reason
    )
    scripts = (
        [_relocate_script(script, collector.folder) for script in collector.scripts]
        if collector.folder
        else collector.scripts
    )
    return [part for script in scripts for part in _script_parts(script, whole, collector.workspace)] or [whole]


class _ResourceCollector:
    """The resources that the arguments of one call name."""

    def __init__(self, workspace: PathResolver, writes: bool) -> None:
        self.workspace = workspace
        self.paths: list[PathAccess] = []
        self.hosts: list[str] = []
        self.scripts: list[Script] = []
        self.opaque_reason = ""
        #: Where the commands start, when it is not the workspace.
        self.folder = ""
        self._writes = writes

    def add(self, kind: ResourceKind, name: str, value: Any) -> None:
        if value is None:
            return
        if kind == "command":
            self.scripts.append(_parse_command_value(value))
        elif isinstance(value, list):
            for item in flatten(cast(object, value)):
                self.add(kind, name, item)
        elif not isinstance(value, str):
            self.opaque_reason = f"{name} is no text"
        elif kind == "path":
            self._add_path(name, value, self._writes)
        elif kind == "folder":
            self._add_folder(name, value)
        else:
            self._add_host(name, value)

    def _add_folder(self, name: str, value: str) -> None:
        if value and normpath(value) != ".":
            self.folder = value
            self._add_path(name, value, writes=False)

    def _add_path(self, name: str, value: str, writes: bool) -> None:
        path = self.workspace.resolve(value, writes=writes)
        self.paths.append(path)
        if not path.targets:
            self.opaque_reason = f"it cannot be known where {name} leads"

    def _add_host(self, name: str, value: str) -> None:
        host = parse_host(value)
        if host is None:
            self.opaque_reason = f"it cannot be known which host {name} names"
        else:
            self.hosts.append(host)


def _relocate_script(script: Script, folder: str) -> Script:
    """Return the script as it runs in that folder: what is allowed in the workspace is not allowed there by the same
    words.
    """

    def moved(part: _CommandOrRedirect) -> _CommandOrRedirect:
        return msgspec.structs.replace(part, bases=tuple(join(folder, base) for base in part.bases))

    return msgspec.structs.replace(
        script, commands=tuple(map(moved, script.commands)), redirects=tuple(map(moved, script.redirects))
    )


def _parse_command_value(value: Any) -> Script:
    if isinstance(value, str):
        return bash.parse_script(value)
    words = cast(list[object], value) if isinstance(value, list) else [None]
    texts = [word for word in words if isinstance(word, str)]
    return bash.parse_argv(texts) if len(texts) == len(words) else Script(opaque="the command is no text")


def _script_parts(script: Script, whole: CallPart, resolver: PathResolver) -> Iterator[CallPart]:
    """Yield what the script would do, one part after the other."""
    for command in script.commands:
        yield _command_part(command, whole, resolver, proved=not script.opaque)
    for redirect in script.redirects:
        yield _redirect_part(redirect, whole, resolver)
    if script.opaque or whole.opaque:
        yield msgspec.structs.replace(whole, opaque=script.opaque or whole.opaque)


def _command_part(command: SimpleCommand, whole: CallPart, resolver: PathResolver, *, proved: bool) -> CallPart:
    def is_glob(word: str) -> bool:
        return bool(command.globs) and not _GLOB.isdisjoint(word)

    def inside(word: str, bases: tuple[str, ...]) -> bool:
        return resolver.is_inside(word, bases, is_glob=is_glob(word))

    is_read = proved and is_read_only(command, inside)
    paths = [
        path
        for word in find_paths(command)
        for path in resolver.resolve_word(word, writes=not is_read, bases=command.bases, is_glob=is_glob(word))
    ]
    hosts = [normalize_host(host) for host in find_hosts(command)]
    return CallPart(
        risk=_READ_RISKS if is_read else whole.risk,
        command=command,
        paths=(*whole.paths, *paths),
        hosts=(*whole.hosts, *(host for host in hosts if host is not None)),
        opaque=_find_opaque_reason(paths, hosts),
    )


def _find_opaque_reason(paths: list[PathAccess], hosts: list[str | None]) -> str:
    if not all(path.targets for path in paths):
        return "it cannot be known where its paths lead"
    return "it cannot be known which hosts it names" if None in hosts else ""


def _redirect_part(redirect: Redirect, whole: CallPart, resolver: PathResolver) -> CallPart:
    path = resolver.resolve(redirect.path, writes=redirect.writes, bases=redirect.bases)
    risk = _WRITE_RISKS if redirect.writes else _READ_RISKS if path.is_inside_workspace else whole.risk
    written = redirect.path if redirect.writes else ""
    unknown = "" if path.targets else "it cannot be known where its paths lead"
    return msgspec.structs.replace(whole, risk=risk, paths=(*whole.paths, path), written=written, opaque=unknown)


_path_resolver = lru_cache(maxsize=64)(PathResolver)


def list_script_commands(script: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the words of each simple command; None when it is not known what the script runs."""
    read = bash.parse_script(script)
    return None if read.opaque else tuple(command.argv for command in read.commands if not command.hidden)


def is_read_only_script(script: str, cwd: str, workspace: str) -> bool:
    """Return True if every part of the script provably only reads, and only in the workspace."""
    situation = CallContext(run_id="", workspace=workspace)
    event = example_event.example_event("bash", {"command": script, "cwd": cwd}, situation)
    parts = extract_call_parts(event, tuple(event.tool.resources.items()), {"command": script, "cwd": cwd})
    return all(part.risk <= _READ_RISKS and not part.opaque for part in parts)


def uses_network(script: str) -> bool:
    """Return True if a command of the script is known to need the network."""
    commands = bash.parse_script(script).commands
    return any(USES_NETWORK in describe_risks(command) for command in commands if not command.hidden)
