"""Diagnostics of files that were just edited: what ruff, pyright, tsc or a named command report about them.

They run like other commands, in the sandbox, with less: no network, a read-only workspace, a few seconds and a few
lines. So code that a project makes its checkers run is contained, too. Without full confinement none is run.

`auto` chooses the checkers that the project is configured for and that are installed. One that takes too long, or does
not start, is then not tried again, so that its cost is paid once.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from os.path import basename, dirname, join
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from ...domain.errors import SandboxSetupError
from ...domain.tool import Diagnostics, JsonObject, ToolContext
from ...rendering.text import pluralize, shorten
from ...sandbox.host.programs import SYSTEM_PATH
from ...sandbox.interface import CommandExit, CommandSandbox, OutputStream
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from .checkers import AUTO, CONFIG, FILE, Checker, DiagnosticsSetting, parse_checkers
from .command import start_command
from .command_effects import CommandRequest
from .profile import CommandTimeout, ShellConfig, is_contained

#: For all checkers of an edit, which run at the same time: those that `auto` chose, and those that were named.
AUTO_SECONDS, NAMED_SECONDS = 5.0, 20.0
_MAX_LINES = 10
_MAX_LINE_CHARS = 300
_MAX_OUTPUT_BYTES = 1 << 20
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_FOLDERS_UP = 30
_NOT_EXECUTABLE = frozenset((126, 127))
_PLACE = re.compile(r"[:(](\d{1,9})")

CheckStatus: TypeAlias = Literal["clean", "problems", "timed out", "failed"]


class _CheckResult(NamedTuple):
    """What one checker reported about a file."""

    name: str
    status: CheckStatus
    #: Why it failed.
    reason: str = ""
    #: Lines about the file, with their line number; the first are near the edit.
    problems: tuple[str, ...] = ()
    near: int = 0

    def headline(self, file: str) -> str:
        if self.status == "clean":
            return f"{self.name}: no problems in {file}"
        if self.status != "problems":
            return f"{self.name}: {self.status}{': ' if self.reason else ''}{self.reason}"
        near = f", {self.near} of them near the edit" if 0 < self.near < len(self.problems) else ""
        return f"{self.name}: {pluralize(len(self.problems), 'problem')} in {file}{near}"

    def lines(self, file: str) -> Iterator[str]:
        yield self.headline(file)
        yield from (f"  {line}" for line in self.problems[:_MAX_LINES])
        if (left := len(self.problems) - _MAX_LINES) > 0:
            yield f"  [{left:,} more not shown]"


class FileDiagnostics:
    """Runs the checkers for an edited file: an instance is the `diagnose` of the tools that edit."""

    def __init__(self, config: ShellConfig, commands: CommandSandbox, setting: DiagnosticsSetting) -> None:
        limits = msgspec.structs.replace(config.limits, output_bytes=_MAX_OUTPUT_BYTES, grace_seconds=0.0)
        environment = {**config.environment, "NO_COLOR": "1"}
        self._config = msgspec.structs.replace(
            config,
            network=False,
            limits=limits,
            environment=environment,
            parse_script=_parse_no_commands,
        )
        self._commands = commands
        self._checkers = parse_checkers(setting)
        self._is_auto = setting in (AUTO, (AUTO,), [AUTO])
        self._seconds = AUTO_SECONDS if self._is_auto else NAMED_SECONDS
        #: Checkers that `auto` does not try again.
        self._dropped: set[str] = set()

    @property
    def is_on(self) -> bool:
        """True if any checker may run."""
        return bool(self._checkers) and not (self._is_auto and not self._can_confine)

    @property
    def _can_confine(self) -> bool:
        confinement = self._commands.confinement
        return is_contained(self._config, confinement) and "read_only" in confinement.capabilities

    async def __call__(self, arguments: JsonObject, facts: JsonObject, context: ToolContext) -> Diagnostics | None:
        """Run the checkers that apply to the edited file. Return None when none does."""
        try:
            file = self._config.workspace.locate(arguments["path"], judged=context.judged).relative
        except PathRefusedError:
            return None
        chosen = await asyncio.to_thread(lambda: list(self._choose(file)))
        if not chosen:
            return None
        if not self._can_confine:
            backend = self._commands.confinement.backend
            return Diagnostics(text=f"Diagnostics: not run, because commands are not fully confined here ({backend})")
        if not file.isprintable():
            return Diagnostics(text="Diagnostics: not run, because of the characters in the name of the file")
        edited = facts.get("hunks")
        hunks = [(hunk[2], hunk[2] + hunk[3]) for hunk in cast(list[list[int]], edited or [])]
        results = await asyncio.gather(*(self._check(checker, argv, file, hunks) for checker, argv in chosen))
        text = "\n".join(("Diagnostics:", *(line for result in results for line in result.lines(file))))
        return Diagnostics(
            text=text,
            summary=", ".join(result.headline(file) for result in results),
            facts=[
                {"program": result.name, "status": result.status, "problems": len(result.problems)}
                for result in results
            ],
        )

    def _choose(self, file: str) -> Iterator[tuple[Checker, tuple[str, ...]]]:
        """Yield the checkers for a file, with their words. Looks at files."""
        for checker in self._checkers:
            if checker.name in self._dropped or not any(fnmatchcase(basename(file), each) for each in checker.files):
                continue
            config = _find_config(self._config.workspace, file, checker)
            program = self._find_program(checker.argv[0])
            if (not config and (self._is_auto or CONFIG in checker.argv)) or (self._is_auto and not program):
                continue
            root = self._config.workspace.root
            places = {FILE: join(root, file), CONFIG: join(root, config)}
            words = tuple(places.get(word, word.replace(FILE, places[FILE])) for word in checker.argv[1:])
            yield checker, (program or checker.argv[0], *words)

    def _find_program(self, name: str) -> str:
        """Return the path of a program: as commands find it, else in the environments of the project and of Python."""
        root, path = self._config.workspace.root, self._config.environment.get("PATH", SYSTEM_PATH)
        own = (join(root, ".venv/bin"), join(root, "node_modules/.bin"), join(sys.prefix, "bin"))
        candidates = (join(folder, name) for folder in (*path.split(":"), *own) if folder.startswith("/"))
        return next((each for each in candidates if os.path.isfile(each) and os.access(each, os.X_OK)), "")

    async def _check(
        self, checker: Checker, argv: tuple[str, ...], file: str, hunks: list[tuple[int, int]]
    ) -> _CheckResult:
        output: dict[OutputStream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            async with asyncio.timeout(self._seconds):
                ended = await self._run(argv, output)
        except TimeoutError:
            result = self._timed_out(checker)
        except SandboxSetupError as error:
            result = _CheckResult(checker.name, "failed", f"it could not be started: {shorten(str(error), 200)}")
        else:
            result = self._read_report(checker, ended, output, file, hunks)
        if self._is_auto and result.status in ("timed out", "failed"):
            self._dropped.add(checker.name)
            result = result._replace(reason=f"{result.reason}; it is not tried again")
        return result

    async def _run(self, argv: tuple[str, ...], output: dict[OutputStream, bytearray]) -> CommandExit:
        request = CommandRequest(
            script=f"exec {shlex.join(argv)}",
            cwd=".",
            timeout=CommandTimeout(self._seconds, False),
            profile="read-only",
            config=self._config,
            commands=self._commands,
        )
        started = await start_command(request, lambda stream, chunk: output[stream].extend(chunk))
        return await started.running.wait(self._seconds)

    def _timed_out(self, checker: Checker) -> _CheckResult:
        return _CheckResult(checker.name, "timed out", f"it took longer than {self._seconds:g} s")

    def _read_report(
        self,
        checker: Checker,
        ended: CommandExit,
        output: dict[OutputStream, bytearray],
        file: str,
        hunks: list[tuple[int, int]],
    ) -> _CheckResult:
        found = list(_find_problems(bytes(output["stdout"] + b"\n" + output["stderr"]), file, self._config.workspace))
        near = [text for line, text in found if any(start <= line < end for start, end in hunks)]
        far = [text for line, text in found if not any(start <= line < end for start, end in hunks)]
        if ended.reason == "timeout":
            return self._timed_out(checker)
        if ended.reason != "exited" or ended.exit_code in _NOT_EXECUTABLE:
            reason = "it is not installed" if ended.exit_code in _NOT_EXECUTABLE else ended.reason.replace("_", " ")
            return _CheckResult(checker.name, "failed", reason)
        if found:
            return _CheckResult(checker.name, "problems", problems=(*near, *far), near=len(near))
        if ended.exit_code == 0 or ended.exit_code in checker.problem_codes:
            return _CheckResult(checker.name, "clean")
        said = bytes(output["stderr"] or output["stdout"]).decode(errors="replace").strip().partition("\n")[0]
        reason = f"exit {ended.exit_code if ended.exit_code is not None else ended.signal}"
        return _CheckResult(checker.name, "failed", f"{reason}: {shorten(said, 200)}" if said else reason)


def _parse_no_commands(script: str) -> Sequence[Sequence[str]]:
    """Let the project's own programs come first, as in a person's shell."""
    return ()


def _find_problems(printed: bytes, file: str, workspace: Workspace) -> Iterator[tuple[int, str]]:
    """Yield the lines about the file, with the line number that each names, each once."""
    seen = set[str]()
    for line in printed.decode(errors="replace").split("\n"):
        for prefix in (file, f"./{file}", join(workspace.root, file)):
            rest = line.strip().removeprefix(prefix)
            if (place := _PLACE.match(rest)) and line.strip().startswith(prefix) and rest not in seen:
                seen.add(rest)
                yield int(place[1]), shorten(f"{file}{rest}", _MAX_LINE_CHARS)
                break


def _find_config(workspace: Workspace, file: str, checker: Checker) -> str:
    """Return the file that configures a checker for a file, the nearest one; empty when there is none."""
    folder = file
    for _ in range(_MAX_FOLDERS_UP):
        folder = dirname(folder)
        for name in checker.configs:
            with suppress(PathRefusedError, OSError):
                if workspace.locate(found := join(folder, name)).kind == "file":
                    return found
        if checker.table and checker.table in _read_text(workspace, found := join(folder, "pyproject.toml")):
            return found
        if not folder:
            break
    return ""


def _read_text(workspace: Workspace, path: str) -> str:
    with suppress(PathRefusedError, OSError), workspace.open_file(path, None) as opened:
        return os.pread(opened.fd, _MAX_CONFIG_BYTES, 0).decode(errors="replace")
    return ""
