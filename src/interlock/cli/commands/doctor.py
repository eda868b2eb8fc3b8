"""`interlock doctor`: what holds commands back on this host, and what to do about it."""

import msgspec
import typer

from ...sandbox.commands.probe import BackendStatus, choose_sandbox, probe_backends
from ...sandbox.host.host_info import HostInfo, read_host_info
from ...sandbox.host.programs import HostProgram, find_bwrap, find_program_problems, find_ripgrep
from ...sandbox.interface import CAPABILITIES, Confinement
from ..display.output import echo_result
from ..exit_codes import ExitCode
from ..options import JsonOption, create_app

_EXITS = (
    "Exit codes: 0 commands are confined; 1 less than they should be, or not at all, or a bundled program is not what "
    "its package had in it."
)
#: What the digest of a program was compared with.
_DIGEST_LABELS = {
    "": "",
    "record": ", digest as its package says; this version or platform is not pinned",
    "pinned": ", digest as pinned",
}

app = create_app()


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


@app.command(epilog=_EXITS)
def doctor(as_json: JsonOption = False) -> None:
    """Show what holds commands back on this host, and what to do about it."""
    diagnosis = Diagnosis(
        host=read_host_info(),
        backends=probe_backends(),
        confinement=choose_sandbox().confinement,
        bubblewrap=find_bwrap(),
        ripgrep=find_ripgrep(),
        problems=find_program_problems(),
    )
    echo_result(as_json, diagnosis, *format_diagnosis(diagnosis))
    if diagnosis.confinement.degraded or diagnosis.problems:
        raise typer.Exit(ExitCode.FAILED)


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Format a diagnosis for people."""
    used, host = diagnosis.confinement, diagnosis.host
    user = "root" if host.user_id == 0 else f"user {host.user_id}"
    landlock = f"version {host.landlock_abi}" if host.landlock_abi else "no"
    seccomp, openat2 = ("yes" if has else "no" for has in (host.seccomp, host.openat2))
    return [
        f"{host.system} {host.kernel} on {host.machine}, as {user}{', in a container' if host.container else ''}",
        f"commands run with: {used.backend}{', which holds back less than it should' if used.degraded else ''}",
        *(f"  note: {note}" for note in used.notes if "interlock doctor" not in note),
        *(line for finding in diagnosis.backends for line in _format_backend(finding)),
        _format_program("bubblewrap", diagnosis.bubblewrap),
        _format_program("ripgrep", diagnosis.ripgrep),
        *diagnosis.problems,
        f"kernel: Landlock {landlock}, seccomp {seccomp}, openat2 {openat2}, cgroups {host.cgroup}",
    ]


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
