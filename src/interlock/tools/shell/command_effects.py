"""The effects of a command on the workspace: its state before and after, and what that means for a check.

A problem while inspecting is not a failure of the command: then its changes are unknown.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...domain.errors import SandboxDeniedError, SandboxSetupError
from ...domain.payload import ExecutionEnvironment
from ...domain.state.verification import UNKNOWN_DIGEST
from ...rendering.text import describe_error
from ...sandbox.interface import CommandSandbox, ExclusiveUntil, OverlayPaths
from ...sandbox.network.egress import CommandEgress
from .fingerprint import WorkspaceFingerprint, take_fingerprint
from .profile import CommandTimeout, GuardedFiles, ProfileName, ShellConfig
from .spool import OutputSpool
from .verification import CommandVerification, ScriptOutput, build_verification, has_check_program

_MAX_REPORT_BYTES = 1 << 20


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command that may start now."""

    script: str
    #: From the root of the workspace.
    cwd: str
    timeout: CommandTimeout
    profile: ProfileName
    config: ShellConfig
    commands: CommandSandbox
    #: The files that its approval is bound to.
    expected_environment: ExecutionEnvironment | None = None
    #: The hosts that it reaches through a proxy. None: none.
    egress: CommandEgress | None = None
    #: It continues beside other commands once it has begun.
    background: bool = False
    #: Where its changes of the workspace go; None: into the workspace.
    overlay: OverlayPaths | None = None

    @property
    def exclusive_until(self) -> ExclusiveUntil:
        """Return for how long no other command may change its files."""
        if self.overlay is not None:
            return "end"
        if self.expected_environment is None or not self.expected_environment.can_change:
            return ""
        return "start" if self.background else "end"

    @property
    def can_write(self) -> bool:
        """True if the profile allows writing."""
        return self.profile != "read-only"

    @property
    def argvs(self) -> Sequence[Sequence[str]]:
        """Commands of the script as lists of words; empty if it cannot be parsed."""
        return self.config.parse_script(self.script) or ()


class WorkspaceBefore(NamedTuple):
    """The state of the workspace before; not inspected where nothing can be written."""

    files: WorkspaceFingerprint | None = None
    guarded: GuardedFiles | None = None


class WorkspaceAfter(NamedTuple):
    """The state of the workspace after the command. None: not inspected."""

    files: WorkspaceFingerprint | None = None
    #: Guarded files that were created or replaced.
    guarded: tuple[str, ...] = ()
    #: Why it could not be inspected.
    problem: str = ""


def fingerprint_workspace(config: ShellConfig) -> WorkspaceFingerprint:
    """Take the fingerprint of the workspace."""
    with config.workspace.open_root() as root:
        return take_fingerprint(root.fd, listings=config.listings)


def inspect_workspace(request: CommandRequest, guarded: GuardedFiles | None) -> WorkspaceAfter:
    """Find out what a command changed, as far as its effects need it."""
    try:
        if guarded is not None:
            return WorkspaceAfter(
                fingerprint_workspace(request.config), tuple(GuardedFiles(request.config).changed_since(guarded))
            )
        return WorkspaceAfter(fingerprint_workspace(request.config) if has_check_program(request.argvs) else None)
    except (SandboxDeniedError, SandboxSetupError, OSError) as error:
        return WorkspaceAfter(problem=f"What the command changed cannot be looked at: {describe_error(error)}")


def make_verification(
    request: CommandRequest,
    output: ScriptOutput,
    before: WorkspaceFingerprint | None,
    after: WorkspaceFingerprint | None,
) -> CommandVerification | None:
    """Return the verification; None: the command neither tests nor checks. Where nothing could be written, the state
    before counts.
    """
    if not has_check_program(argvs := request.argvs):
        return None
    if before is None and request.can_write:
        after = None  # what it ran in is not known
    elif before is None:
        before = after
    digests = (UNKNOWN_DIGEST if files is None else files.digest for files in (before, after))
    return build_verification(request.script, argvs, output, *digests)


def read_report_text(spool: OutputSpool) -> tuple[str, bool]:
    """Return the output, and whether it is complete: only its ends where it is long."""
    if spool.total_bytes <= _MAX_REPORT_BYTES:
        return spool.read_all(0, _MAX_REPORT_BYTES).decode("utf-8", "replace"), True
    head, tail = spool.read_all(0, _MAX_REPORT_BYTES // 4), spool.tail(_MAX_REPORT_BYTES * 3 // 4)
    return b"\n".join((head, tail)).decode("utf-8", "replace"), False
