"""What came of a task in the background: what changed while it ran, and what it verified.

Other calls go on beside a task, so nobody knows who changed what while it ran; that something did is what counts. Where
a check that ended later found the workspace as the task left it, nothing is different since that check, and to tell of
it once more would only make that check look old.
"""

import msgspec

from ...domain.outcome import SideEffect
from ...domain.state.verification import UNKNOWN_STATE, is_comparable
from ...domain.tool import JsonObject, ToolContext
from ...sandbox.interface import Ended
from .command import from_root
from .command_effects import Before, Order, look_after, text_of, verified
from .command_result import CHECKED, MAX_PATHS_TOLD, WORKSPACE, check_facts, effects_of, shown_path, verdict_of
from .fingerprint import Fingerprint, changed
from .output import Spool
from .verification import Said, Verification

_WHEN = "while it ran, "
_MAY_HAVE = SideEffect(kind="modified", target=WORKSPACE, detail="it may have changed something: nobody could look")


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True):
    effects: tuple[SideEffect, ...] = ()
    #: Those of them that no digest of the workspace tells: in folders of installed or built things.
    effects_aside: tuple[SideEffect, ...] = ()
    #: The digest of the workspace when it was over.
    workspace: str = UNKNOWN_STATE
    #: Files that other programs obey, and that came or were exchanged.
    guarded: tuple[str, ...] = ()
    #: Why nobody could look.
    hindered: str = ""
    verification: Verification | None = None
    #: Facts for the log, where it verified something.
    facts: JsonObject = {}

    @property
    def verdict(self) -> str:
        return "" if self.verification is None else verdict_of(self.verification)

    def effects_after(self, context: ToolContext) -> tuple[SideEffect, ...]:
        """What the run is to be told of, which may have looked since."""
        is_as_checked = is_comparable(self.workspace) and context.state.get(CHECKED) == self.workspace
        return self.effects_aside if is_as_checked else self.effects


def unseen_end(*, can_write: bool, why: str = "") -> TaskEnd:
    """Nobody saw it."""
    effects = (_MAY_HAVE,) if can_write else ()
    return TaskEnd(effects=effects, effects_aside=effects, hindered=why)


def end_of(  # noqa: PLR0913, PLR0917 - all that is known of it
    order: Order, before: Before, spool: Spool, ended: Ended, command: str, started_call: str
) -> TaskEnd:
    """Looked for when it is over. All of its output has been taken."""
    spool.end()
    after = look_after(order, before.guarded)
    verification = verified(order, Said(*text_of(spool), ended), before.files, after.files)
    facts: JsonObject = {}
    if verification is not None:
        cwd = shown_path(from_root(ended.cwd, order.rules.workspace.root))
        facts = {"cwd": cwd, **check_facts(verification, command, started_call)}
    return TaskEnd(
        effects=_effects(order, before.files, after.files),
        effects_aside=_effects(order, _aside(before.files), _aside(after.files)),
        workspace=UNKNOWN_STATE if after.files is None else after.files.digest,
        guarded=tuple(map(shown_path, after.guarded[:MAX_PATHS_TOLD])),
        hindered=after.hindered,
        verification=verification,
        facts=facts,
    )


def _effects(order: Order, before: Fingerprint | None, after: Fingerprint | None) -> tuple[SideEffect, ...]:
    if not order.can_write:
        return ()
    if before is None or after is None:
        return (_MAY_HAVE,)
    changes = changed(before, after)
    return effects_of(changes, _WHEN) if changes.count or changes.complete else (_MAY_HAVE,)


def _aside(files: Fingerprint | None) -> Fingerprint | None:
    return None if files is None else msgspec.structs.replace(files, stamps={})
