"""`interlock doctor`: how commands are sandboxed on this host, which programs they find, and how to improve it."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from shutil import which

import msgspec
import typer

from ...domain.errors import SandboxSetupError
from ...sandbox.commands.probe import BackendStatus, choose_sandbox, probe_backends
from ...sandbox.host.host_info import HostInfo, read_host_info
from ...sandbox.host.programs import HostProgram, find_bwrap, find_program_problems, find_ripgrep, is_inside
from ...sandbox.interface import CAPABILITIES, Confinement
from ...sandbox.tasks.client import list_workspaces
from ...sandbox.tasks.protocol import TaskEntry
from ...sandbox.workspace.toolchain import Toolchain, ToolchainPart, detect_toolchain
from ..config.policy_files import load_policy
from ..config.project_trust import TrustedProject
from ..config.settings import load_settings
from ..config.user_paths import find_user_paths
from ..display.output import echo_result, make_visible
from ..exit_codes import ExitCode
from ..options import JsonOption, create_app

_EXITS = (
    "Exit codes: 0 commands are confined; 1 they are confined only in part or not at all, a bundled program was "
    "modified, or a policy file is invalid."
)
#: What the digest of a program was compared with.
_DIGEST_LABELS = {
    "": "",
    "record": ", digest matches its package; this version or platform is not pinned",
    "pinned": ", digest matches the pinned one",
}

#: What projects are built and tested with.
_PROGRAMS = (
    *("python", "python3", "pip", "pytest", "ruff", "uv", "poetry", "conda", "node", "npm", "npx", "pnpm", "yarn"),
    *("bun", "deno", "cargo", "rustc", "go", "java", "mvn", "gradle", "ruby", "bundle", "make", "cmake", "git"),
)

app = create_app()


class FoundProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the shell finds, and where commands find it."""

    name: str
    shell: str
    #: Empty: commands do not have it.
    sandbox: str


class Supervisor(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs background tasks of a workspace."""

    workspace: str
    pid: int
    tasks: tuple[TaskEntry, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The confinement of this host."""

    host: HostInfo
    #: The best first.
    backends: list[BackendStatus]
    #: Of the backend that is used.
    confinement: Confinement
    bubblewrap: HostProgram | None
    ripgrep: HostProgram | None
    #: Why programs that wheels brought are not used, and what to do.
    problems: tuple[str, ...] = ()
    #: For commands in this folder.
    toolchain: Toolchain = Toolchain()
    #: Programs that the shell finds in this folder.
    programs: tuple[FoundProgram, ...] = ()
    #: Those that run now, of all workspaces.
    supervisors: tuple[Supervisor, ...] = ()
    #: Problems in the policy files that apply in this folder.
    policy: tuple[str, ...] = ()


@app.command(epilog=_EXITS)
def doctor(as_json: JsonOption = False) -> None:
    """Show how commands are sandboxed on this host, which programs they find here, and how to improve it."""
    user_paths, workspace = find_user_paths(os.environ), os.path.realpath(os.getcwd())
    project = TrustedProject(workspace)
    settings = load_settings(user_paths, project).settings
    toolchain = detect_toolchain(workspace, os.environ, settings.toolchain)
    diagnosis = Diagnosis(
        host=read_host_info(),
        backends=probe_backends(),
        confinement=choose_sandbox().confinement,
        bubblewrap=find_bwrap(),
        ripgrep=find_ripgrep(),
        problems=find_program_problems(),
        toolchain=toolchain,
        programs=tuple(find_programs(toolchain, os.environ.get("PATH", ""))),
        supervisors=tuple(asyncio.run(find_supervisors(str(user_paths.tasks))) if user_paths.tasks is not None else ()),
        policy=tuple(map(str, load_policy(settings, user_paths, project, workspace).problems)),
    )
    echo_result(as_json, diagnosis, *format_diagnosis(diagnosis))
    if diagnosis.confinement.degraded or diagnosis.problems or diagnosis.policy:
        raise typer.Exit(ExitCode.FAILED)


def find_programs(toolchain: Toolchain, shell_path: str) -> Iterator[FoundProgram]:
    """Yield the well-known programs that the shell or a command finds."""
    for name in _PROGRAMS:
        shell, sandbox = which(name, path=shell_path) or "", toolchain.find_program(name)
        if shell or sandbox:
            yield FoundProgram(name=name, shell=shell, sandbox=sandbox)


async def find_supervisors(folder: str) -> list[Supervisor]:
    """Return the supervisors of background tasks that run now."""
    found: list[Supervisor] = []
    for workspace in list_workspaces(folder):
        identity = workspace.read_identity()
        if identity is not None:
            tasks: tuple[TaskEntry, ...] = ()
            with suppress(SandboxSetupError):  # of another version: it can still be ended
                tasks = await workspace.list_running()
            found.append(Supervisor(workspace=identity.workspace, pid=identity.pid, tasks=tasks))
    return found


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Format a diagnosis for people."""
    used, host = diagnosis.confinement, diagnosis.host
    user = "root" if host.user_id == 0 else f"user {host.user_id}"
    landlock = f"version {host.landlock_abi}" if host.landlock_abi else "no"
    seccomp, openat2 = ("yes" if has else "no" for has in (host.seccomp, host.openat2))
    return [
        f"{host.system} {host.kernel} on {host.machine}, as {user}{', in a container' if host.container else ''}",
        f"commands run with: {used.backend}{' (degraded: every command requires approval)' if used.degraded else ''}",
        *(f"  note: {note}" for note in used.notes if "interlock doctor" not in note),
        *(line for finding in diagnosis.backends for line in _format_backend(finding)),
        _format_program("bubblewrap", diagnosis.bubblewrap),
        _format_program("ripgrep", diagnosis.ripgrep),
        *diagnosis.problems,
        f"kernel: Landlock {landlock}, seccomp {seccomp}, openat2 {openat2}, cgroups {host.cgroup}",
        *_format_toolchain(diagnosis),
        *(line for supervisor in diagnosis.supervisors for line in _format_supervisor(supervisor)),
        *_format_policy(diagnosis.policy),
    ]


def _format_policy(problems: tuple[str, ...]) -> Iterator[str]:
    if problems:
        yield (
            "policy files: invalid. New commands do not start; a gateway that runs keeps the policy that it read before"
        )
        yield from (f"  {make_visible(problem)}" for problem in problems)


def _format_supervisor(supervisor: Supervisor) -> Iterator[str]:
    yield f"background tasks in {make_visible(supervisor.workspace)} (`kill {supervisor.pid}` ends them):"
    for task in supervisor.tasks:
        started = datetime.fromtimestamp(task.started_at, UTC).isoformat(timespec="seconds")
        run = make_visible(task.run_id)
        yield f"  {task.id} since {started}, of {run} (`interlock runs cancel {run}` ends the run and its tasks)"


def _format_toolchain(diagnosis: Diagnosis) -> Iterator[str]:
    toolchain = diagnosis.toolchain
    if not toolchain.workspace:
        return
    yield f"programs for commands in {make_visible(toolchain.workspace)}:"
    for part in toolchain.parts:
        if part.folders or (part.manager != "path" and os.path.isdir(part.programs)):
            yield f"  {make_visible(_format_part(part, toolchain.workspace))}"
    found = {each.name: each.sandbox for each in diagnosis.programs if each.sandbox}
    yield f"  found: {', '.join(found) or 'none'}"
    for program in diagnosis.programs:
        if not program.sandbox:
            yield f"  missing: {program.name}, which your shell finds at {make_visible(program.shell)}"
    yield from (f"  note: {make_visible(problem)}" for problem in toolchain.problems)


def _format_part(part: ToolchainPart, workspace: str) -> str:
    where = "read-only" if part.folders else "in the workspace" if is_inside(part.programs, workspace) else "system"
    return f"{part.manager}{f' {part.version}' if part.version else ''}: {part.programs} ({where})"


def _format_backend(finding: BackendStatus) -> list[str]:
    if finding.works:
        can = [f"  [{'x' if name in finding.capabilities else ' '}] {words}" for name, words in CAPABILITIES.items()]
        return [f"{finding.backend}: works", *can]
    advice = [f"  what to do: {finding.advice}"] if finding.advice else []
    return [f"{finding.backend}: does not work: {finding.why_not}", *advice]


def _format_program(name: str, program: HostProgram | None) -> str:
    if program is None:
        return f"{name}: not found"
    return f"{name}: {program.version}, from {program.origin} ({program.path}){_DIGEST_LABELS[program.checked]}"
