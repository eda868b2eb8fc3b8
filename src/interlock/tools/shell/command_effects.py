"""The workspace around a command: as it was before, what is different after it, and what that makes of a check.

Whatever hinders looking is not the failure of a command that ran: then it is not known what it changed.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from ...domain.errors import SandboxDeniedError, SandboxSetupError
from ...domain.payload import Surroundings
from ...domain.state.verification import UNKNOWN_STATE
from ...rendering.sentences import error_text
from ...sandbox.interface import Alone, CommandSandbox
from .fingerprint import Fingerprint, fingerprint
from .output import Spool
from .profile import Guarded, ProfileName, Seconds, ShellRules
from .verification import Said, Verification, verifies, verify

_MAX_REPORT_BYTES = 1 << 20

#: The words of each simple command of a script; None when it cannot be read.
Words: TypeAlias = Callable[[str], Sequence[Sequence[str]] | None]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command that may start now."""

    script: str
    #: From the root of the workspace.
    cwd: str
    seconds: Seconds
    profile: ProfileName
    rules: ShellRules
    commands: CommandSandbox
    words: Words
    #: The files that its approval is bound to.
    bound: Surroundings | None = None
    #: It continues beside other commands once it has begun.
    background: bool = False

    @property
    def alone(self) -> Alone:
        """Return for how long no other command may change its files."""
        if self.bound is None or not self.bound.can_change:
            return ""
        return "start" if self.background else "end"

    @property
    def can_write(self) -> bool:
        return self.profile != "read-only"

    @property
    def argvs(self) -> Sequence[Sequence[str]]:
        return self.words(self.script) or ()


class Before(NamedTuple):
    """The workspace as it was; where nothing can be written, nobody need have looked."""

    files: Fingerprint | None = None
    guarded: Guarded | None = None


class After(NamedTuple):
    """The same when the command is over. None: nobody looked, or could."""

    files: Fingerprint | None = None
    #: What came or was exchanged, of the files that other programs obey.
    guarded: tuple[str, ...] = ()
    #: Why nobody could look.
    hindered: str = ""


def files_of(rules: ShellRules) -> Fingerprint:
    with rules.workspace.open_root() as root:
        return fingerprint(root.fd)


def look_after(order: Order, guarded: Guarded | None) -> After:
    try:
        if guarded is not None:
            return After(files_of(order.rules), tuple(Guarded(order.rules).changed_since(guarded)))
        return After(files_of(order.rules) if verifies(order.argvs) else None)
    except (SandboxDeniedError, SandboxSetupError, OSError) as error:
        return After(hindered=f"What the command changed cannot be looked at: {error_text(error)}")


def verified(order: Order, said: Said, before: Fingerprint | None, after: Fingerprint | None) -> Verification | None:
    """None: it neither tests nor checks. Where nothing could be written, it may be as it was before."""
    if not verifies(argvs := order.argvs):
        return None
    if before is None and not order.can_write:
        before = after
    digests = (UNKNOWN_STATE if files is None else files.digest for files in (before, after))
    return verify(order.script, argvs, said, *digests)


def text_of(spool: Spool) -> tuple[str, bool]:
    """What was printed, and whether it is all of it: its ends, where it is long."""
    if spool.total_bytes <= _MAX_REPORT_BYTES:
        return spool.head(_MAX_REPORT_BYTES).decode("utf-8", "replace"), True
    head, tail = spool.head(_MAX_REPORT_BYTES // 4), spool.tail(_MAX_REPORT_BYTES * 3 // 4)
    return b"\n".join((head, tail)).decode("utf-8", "replace"), False
