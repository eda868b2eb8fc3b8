"""Commands that run in an overlay: tried before a person is asked, or kept so that they can be undone.

In a trial the workspace is an overlay and no host can be reached, so nothing of the command stays. What it changed is a
`ChangeSet`, what it printed is kept with it, and both are identified by one digest. When a person approved that digest,
the handler commits the change set: the command does not run again.

What programs write into caches of their own (`__pycache__`, `.pytest_cache`) is dropped after a trial.
"""

import asyncio
from collections.abc import Callable

import msgspec

from ...changes.change_set import ChangeSet
from ...changes.commit import CommitFailed, Committed, Drifted
from ...changes.contents import ChangeLimits, MissingContentError
from ...changes.store import ChangeStore
from ...domain.errors import PreconditionError, SandboxSetupError
from ...domain.tool import CallContext, CheckProblem, JsonObject, ToolContext
from ...domain.trial import Trial
from ...sandbox.interface import CommandExit
from ...sandbox.workspace.workspace import Workspace
from ..files.baseline import display_path
from ..files.change_summary import summarize_changes
from ..files.change_trials import ChangeTrials, TriedChanges
from .command import CommandOutput, EndedCommand, build_result, run_command, run_to_completion, run_to_end
from .command_effects import CommandRequest, WorkspaceBefore, fingerprint_workspace
from .command_result import CommandResult, describe_exit
from .fingerprint import is_cache, is_rebuilt
from .profile import GuardedFiles

_MAX_OUTPUT_CHARS = 2_000
_MAX_FILES_NAMED = 5
#: An overlay refuses to rename a folder of the workspace; most programs copy it then, and others print this.
_EXDEV = ("Invalid cross-device link", "EXDEV", "cross-device link not permitted")


class OverlayProblemError(Exception):
    """A command cannot run in an overlay. Nothing of it stays."""


class TriedCommand(TriedChanges, frozen=True, kw_only=True):
    """What is kept of the trial of a command."""

    #: The digest of the workspace that it ran in.
    workspace: str
    ended: CommandExit
    output: CommandOutput


class CommandTrials(ChangeTrials):
    """Tries commands of one workspace, and commits what was tried."""

    def __init__(
        self,
        workspace: Workspace,
        store: ChangeStore,
        find_obstacle: Callable[[JsonObject, CallContext], str],
        make_request: Callable[[JsonObject, ToolContext], CommandRequest],
    ) -> None:
        """
        Args:
            workspace: Where the commands run.
            store: Where their changes are kept.
            find_obstacle: Returns why a call cannot be tried; empty when it can.
            make_request: Returns the command of a call, without a host to reach.
        """
        super().__init__(workspace, store)
        self.find_obstacle = find_obstacle
        self._make_request = make_request
        self._limits = ChangeLimits(is_kept=self._is_kept)
        #: What a command may do without a question is never cut, however much it is.
        self._all_changes = ChangeLimits(
            max_file_bytes=1 << 40, max_total_bytes=1 << 50, max_files=1 << 40, is_kept=self._is_kept
        )

    async def run(self, arguments: JsonObject, context: ToolContext) -> Trial:
        """Run a command in an overlay, and keep what it did."""
        request = self._make_request(arguments, context)
        before = await asyncio.to_thread(fingerprint_workspace, request.config)
        done, changed = await self._run_in_overlay(request, context, self._limits)
        return await run_to_completion(self._keep, request, before.digest, done.ended, done.output, changed)

    async def run_and_commit(self, request: CommandRequest, context: ToolContext) -> CommandResult:
        """Run a command that needs no approval in an overlay and commit it at once, so that it can be undone."""
        files = await asyncio.to_thread(fingerprint_workspace, request.config)
        try:
            done, changed = await self._run_in_overlay(request, context, self._all_changes)
        except OverlayProblemError as problem:
            context.warn(f"What this command changes cannot be undone: {problem}.")
            return await run_command(request, context)
        before = WorkspaceBefore(files, done.started.guarded)
        return await run_to_completion(
            self._commit_and_build, request, before, done.ended, done.output, changed, context
        )

    async def commit(self, digest: str, request: CommandRequest, context: ToolContext) -> CommandResult:
        """Commit what was tried, and return the result of the command."""
        return await run_to_completion(self._commit_tried, digest, request, context)

    async def _run_in_overlay(
        self, request: CommandRequest, context: ToolContext, limits: ChangeLimits
    ) -> tuple[EndedCommand, ChangeSet]:
        if not request.can_write:
            return await run_to_end(request, context), ChangeSet()
        try:
            overlay = await asyncio.to_thread(self._store.open_overlay, self._workspace)
        except SandboxSetupError as error:
            raise OverlayProblemError(str(error).rstrip(".")) from error
        with overlay:
            done = await run_to_end(msgspec.structs.replace(request, overlay=overlay), context)
            reached = request.config.network or done.output.egress.may_have_reached_hosts
            if not reached and any(map(done.output.text.count, _EXDEV)):
                # Nothing of it is outside of the overlay, so it may run again.
                raise OverlayProblemError("it moves folders, which an overlay refuses")
            return done, await run_to_completion(self._store.read_overlay, overlay, self._workspace, limits)

    def _is_kept(self, path: str) -> bool:
        """Keep no copy of what programs make again, such as `node_modules`: it is much, and cannot be undone."""
        return not is_rebuilt(path, self._workspace.root)

    def _keep(
        self, request: CommandRequest, workspace: str, ended: CommandExit, output: CommandOutput, changed: ChangeSet
    ) -> Trial:
        changed = ChangeSet(
            changes=tuple(one for one in changed.changes if not is_cache(one.path)), skipped=changed.skipped
        )
        self._store.keep(changed)
        tried = TriedCommand(changes=changed.digest(), workspace=workspace, ended=ended, output=output)
        digest = self._keep_tried(tried)
        summary = summarize_changes(changed, self._store.read_content)
        return Trial(
            digest=digest,
            outcome=describe_exit(ended, request.config.limits, request.timeout.seconds),
            changes=summary.changes,
            change_count=summary.change_count,
            diff=summary.diff,
            is_diff_cut=summary.is_diff_cut,
            output=output.text[-_MAX_OUTPUT_CHARS:],
            hosts=tuple(dict.fromkeys(row.host for row in output.egress.connections))[:_MAX_FILES_NAMED],
        )

    def _commit_tried(self, digest: str, request: CommandRequest, context: ToolContext) -> CommandResult:
        try:
            tried = self._load_tried(digest, TriedCommand)
            changed = self._store.load(tried.changes)
        except MissingContentError as error:
            message = f"What was tried is not kept any more ({error}). Call it again"
            raise PreconditionError(CheckProblem(message=message)) from None
        files = fingerprint_workspace(request.config)
        # A check in the trial says nothing about a workspace that has changed since.
        before = WorkspaceBefore(files if files.digest == tried.workspace else None, GuardedFiles(request.config))
        context.kept.extend((*tried.output.parts, *([tried.output.streams] if tried.output.streams else ())))
        return self._commit_and_build(request, before, tried.ended, tried.output, changed, context)

    def _commit_and_build(  # noqa: PLR0913, PLR0917 - all that is known of it
        self,
        request: CommandRequest,
        before: WorkspaceBefore,
        ended: CommandExit,
        output: CommandOutput,
        changed: ChangeSet,
        context: ToolContext,
    ) -> CommandResult:
        if changed.changes:
            match self._commit(changed, skip_drifted=not context.trial):
                case Committed(change_set=changed, drifted=drifted):
                    for file in drifted[:_MAX_FILES_NAMED]:
                        context.warn(f"Not written: {display_path(file.path)} was changed meanwhile ({file.reason}).")
                case Drifted(files=files):
                    named = ", ".join(display_path(file.path) for file in files[:_MAX_FILES_NAMED])
                    message = f"{named} changed since the command ran, so nothing was written. Call it again"
                    raise _make_error(CheckProblem(code="stale_file_baseline", message=message), output)
                case CommitFailed(reason=reason):
                    raise _make_error(CheckProblem(message=f"The changes could not be written: {reason}"), output)
        for skipped in changed.skipped[:_MAX_FILES_NAMED]:
            context.warn(f"Not kept: {display_path(skipped.path)}: {skipped.reason}.")
        result = build_result(request, before, ended, output, context)
        return msgspec.structs.replace(result, change_set=changed.digest() if changed.changes else "")


def _make_error(problem: CheckProblem, output: CommandOutput) -> Exception:
    """Return the error of a command whose changes were not written: nothing happened, unless it reached a host."""
    if output.egress.may_have_reached_hosts:
        return OSError(f"{problem.message}. It had reached hosts before")
    return PreconditionError(problem)
