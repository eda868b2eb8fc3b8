"""`interlock doctor`: what holds commands back on this host, and what to do about it."""

import msgspec
import typer

from ...sandbox.host.facts import Host, read_host
from ...sandbox.host.probe import Finding, choose, probe
from ...sandbox.host.programs import Program, find_bwrap, find_ripgrep, program_problems
from ...sandbox.interface import CAPABILITIES, Confinement
from ..display.output import say, say_json
from ..exit_codes import ExitCode
from ..options import Json

_EXITS = (
    "Exit codes: 0 commands are confined; 1 less than they should be, or not at all, or a bundled program is not what "
    "its package had in it."
)
#: What the digest of a program was compared with.
_CHECKED = {
    "": "",
    "record": ", digest as its package says; this version or platform is not pinned",
    "pinned": ", digest as pinned",
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    host: Host
    #: The best first.
    backends: list[Finding]
    #: Of the backend that is used.
    confinement: Confinement
    bubblewrap: Program | None
    ripgrep: Program | None
    #: Why programs that wheels brought are not used, and what to do.
    problems: tuple[str, ...] = ()


@app.command(epilog=_EXITS)
def doctor(as_json: Json = False) -> None:
    """Show what holds commands back on this host, and what to do about it."""
    found = Diagnosis(
        host=read_host(),
        backends=probe(),
        confinement=choose().confinement,
        bubblewrap=find_bwrap(),
        ripgrep=find_ripgrep(),
        problems=program_problems(),
    )
    if as_json:
        say_json(found)
    else:
        for line in lines(found):
            say(line)
    if found.confinement.degraded or found.problems:
        raise typer.Exit(ExitCode.FAILED)


def lines(found: Diagnosis) -> list[str]:
    """For people."""
    used = found.confinement
    return [
        _host(found.host),
        f"commands run with: {used.backend}{', which holds back less than it should' if used.degraded else ''}",
        *(f"  note: {note}" for note in used.notes if "interlock doctor" not in note),
        *(line for finding in found.backends for line in _backend(finding)),
        _program("bubblewrap", found.bubblewrap),
        _program("ripgrep", found.ripgrep),
        *found.problems,
        _kernel(found.host),
    ]


def _host(host: Host) -> str:
    user = "root" if host.user_id == 0 else f"user {host.user_id}"
    return f"{host.system} {host.kernel} on {host.machine}, as {user}{', in a container' if host.container else ''}"


def _backend(finding: Finding) -> list[str]:
    if finding.works:
        can = [f"  [{'x' if name in finding.capabilities else ' '}] {words}" for name, words in CAPABILITIES.items()]
        return [f"{finding.backend}: works", *can]
    advice = [f"  what to do: {finding.advice}"] if finding.advice else []
    return [f"{finding.backend}: does not work: {finding.why_not}", *advice]


def _program(name: str, program: Program | None) -> str:
    if program is None:
        return f"{name}: not found"
    return f"{name}: {program.version}, from {program.origin} ({program.path}){_CHECKED[program.checked]}"


def _kernel(host: Host) -> str:
    landlock = f"version {host.landlock_abi}" if host.landlock_abi else "no"
    seccomp, openat2 = ("yes" if has else "no" for has in (host.seccomp, host.openat2))
    return f"kernel: Landlock {landlock}, seccomp {seccomp}, openat2 {openat2}, cgroups {host.cgroup}"
