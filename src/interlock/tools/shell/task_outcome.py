"""The outcome of a background task: what changed while it ran, and what it verified.

Other calls run beside a task, so it is unknown who changed what; that something changed is what counts. Where a check
that ended later found the workspace as the task left it, nothing differs since that check, and reporting the change
again would only make that check look stale.
"""

import msgspec

from ...domain.egress import EgressReport
from ...domain.outcome import SideEffect
from ...domain.state.verification import UNKNOWN_DIGEST, is_comparable
from ...domain.tool import JsonObject, ToolContext
from ...sandbox.interface import CommandExit
from ...sandbox.network.egress import make_connection_effects
from .command import to_relative_path
from .command_effects import CommandRequest, WorkspaceBefore, inspect_workspace, make_verification, read_report_text
from .command_result import (
    MAX_PATHS_LISTED,
    VERIFIED_STATE_KEY,
    WORKSPACE,
    build_verification_facts,
    describe_verdict,
    make_effects,
    to_printable_path,
)
from .egress import build_connection_facts
from .fingerprint import WorkspaceFingerprint, compare_fingerprints
from .spool import OutputSpool
from .verification import CommandVerification, ScriptOutput

_EFFECT_PREFIX = "while it ran, "
_POSSIBLE_CHANGE = SideEffect(
    kind="modified", target=WORKSPACE, detail="it may have changed something: this could not be checked"
)


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a background task."""

    effects: tuple[SideEffect, ...] = ()
    #: Those of them that no digest of the workspace covers: in folders of installed or built things.
    shallow_effects: tuple[SideEffect, ...] = ()
    #: The digest of the workspace when it was over.
    workspace: str = UNKNOWN_DIGEST
    #: Guarded files that were created or replaced.
    guarded: tuple[str, ...] = ()
    #: Why it could not be inspected.
    problem: str = ""
    verification: CommandVerification | None = None
    #: Facts for the log, where it verified something or made connections.
    facts: JsonObject = {}

    @property
    def verdict(self) -> str:
        """Verdict of the check, or empty."""
        return "" if self.verification is None else describe_verdict(self.verification)

    def with_connections(self, report: EgressReport) -> "TaskOutcome":
        """Return the outcome with the connections that the task made."""
        connected = make_connection_effects(report)
        return msgspec.structs.replace(
            self,
            effects=(*self.effects, *connected),
            shallow_effects=(*self.shallow_effects, *connected),
            facts={**self.facts, **build_connection_facts(report)},
        )

    def effects_since_check(self, context: ToolContext) -> tuple[SideEffect, ...]:
        """Return the side effects to report to the run, which may have checked since."""
        is_as_checked = is_comparable(self.workspace) and context.state.get(VERIFIED_STATE_KEY) == self.workspace
        return self.shallow_effects if is_as_checked else self.effects


def make_unknown_outcome(*, can_write: bool, why: str = "") -> TaskOutcome:
    """Return the outcome of a task whose end was not observed."""
    effects = (_POSSIBLE_CHANGE,) if can_write else ()
    return TaskOutcome(effects=effects, shallow_effects=effects, problem=why)


def inspect_outcome(  # noqa: PLR0913, PLR0917 - all that is known of it
    request: CommandRequest,
    before: WorkspaceBefore,
    spool: OutputSpool,
    ended: CommandExit,
    command: str,
    started_call: str,
) -> TaskOutcome:
    """Inspect the workspace after the end of a task. All of its output has been read."""
    spool.finish()
    after = inspect_workspace(request, before.guarded)
    verification = make_verification(request, ScriptOutput(*read_report_text(spool), ended), before.files, after.files)
    facts: JsonObject = {}
    if verification is not None:
        cwd = to_printable_path(to_relative_path(ended.cwd, request.config.workspace.root))
        facts = {"cwd": cwd, **build_verification_facts(verification, command, started_call)}
    return TaskOutcome(
        effects=_find_effects(request, before.files, after.files),
        shallow_effects=_find_effects(request, _keep_shallow(before.files), _keep_shallow(after.files)),
        workspace=UNKNOWN_DIGEST if after.files is None else after.files.digest,
        guarded=tuple(map(to_printable_path, after.guarded[:MAX_PATHS_LISTED])),
        problem=after.problem,
        verification=verification,
        facts=facts,
    )


def _find_effects(
    request: CommandRequest, before: WorkspaceFingerprint | None, after: WorkspaceFingerprint | None
) -> tuple[SideEffect, ...]:
    if not request.can_write:
        return ()
    if before is None or after is None:
        return (_POSSIBLE_CHANGE,)
    changes = compare_fingerprints(before, after)
    return make_effects(changes, _EFFECT_PREFIX) if changes.count or changes.complete else (_POSSIBLE_CHANGE,)


def _keep_shallow(files: WorkspaceFingerprint | None) -> WorkspaceFingerprint | None:
    return None if files is None else msgspec.structs.replace(files, stamps={})
