"""The result of a command, and its forms for the model, for a person and for the log.

`CommandResult` is raw: made where the command ran, never shown. Normalizing it gives the excerpt that a
model reads, the line that a person reads, and the facts of the log. A run of tests or checks becomes a verification: a
fact about the state that the workspace was in, so that a later edit makes it stale.
"""

from posixpath import basename

import msgspec

from ...changes.change_set import CHANGE_SET_FACT
from ...domain.egress import EgressReport
from ...domain.outcome import ArtifactRef, NextTool, OutputSize, SideEffect
from ...domain.state.verification import REPOSITORY_FOLDERS, is_comparable
from ...domain.tool import JsonObject, NormalizedOutput, PermissionMode
from ...rendering.excerpt import build_search_hint, find_first_failure
from ...sandbox.interface import CommandExit, CommandLimits
from ...sandbox.network.egress import make_connection_effects
from .egress import build_connection_facts, build_egress_notes
from .fingerprint import WorkspaceChanges
from .output_excerpt import OutputExcerpt
from .profile import CommandTimeout, ProfileName
from .verification import CommandVerification
from .violations import ADVICE, SandboxViolation

MAX_PATHS_LISTED = 20
#: What the run remembers by this name: the digest of the workspace as the last check left it.
VERIFIED_STATE_KEY = "workspace:checked"
#: The target of a side effect on files of the workspace.
WORKSPACE = "workspace"
_MAX_COMMAND_CHARS = 80
#: What pip prints when it installs into the home, which is another one for each command.
_PIP_HOME = b"Defaulting to user installation"
_MAX_PATH_CHARS = 200
_MB = 1 << 20


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command printed, with secrets redacted."""

    #: The ends of each stream where it is long; the artifact has all of it.
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    excerpt: OutputExcerpt
    #: All of the output in the order in which it came; and which part of it is of which stream.
    parts: tuple[ArtifactRef, ...] = ()
    streams: ArtifactRef | None = None
    #: For reports of checks: the output, or its ends.
    text: str
    is_complete: bool
    #: The connections that it made or tried to make.
    egress: EgressReport = EgressReport()


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The raw result of a command."""

    #: Without the secrets in it.
    command: str
    ended: CommandExit
    timeout: CommandTimeout
    output: CommandOutput
    #: Folders from the root of the workspace, absolute outside of it, not yet as they are shown. Empty: not known.
    started_in: str
    ended_in: str
    profile: ProfileName
    backend: str
    limits: CommandLimits
    #: None: its changes are unknown.
    changes: WorkspaceChanges | None = None
    #: Files that other programs obey, and that it created or exchanged.
    guarded: tuple[str, ...] = ()
    violations: tuple[SandboxViolation, ...] = ()
    verification: CommandVerification | None = None
    #: The digest of its change set, by which it can be undone. Empty: it has none.
    change_set: str = ""
    mode: PermissionMode = PermissionMode.DEFAULT

    @property
    def ok(self) -> bool:
        """True if the command exited with code 0."""
        return self.ended.reason == "exited" and self.ended.exit_code == 0

    @property
    def duration_ms(self) -> float:
        """Duration in milliseconds."""
        return round(self.ended.duration_seconds * 1000, 3)


def normalize_command(result: CommandResult) -> NormalizedOutput:
    """Convert the result of a command for the model."""
    summary = summarize_result(result)
    return NormalizedOutput(
        ok=result.ok,
        code=_result_code(result.ended),
        summary=summary,
        text="\n".join(filter(None, (result.output.excerpt.text.rstrip("\n"), *build_notes(result)))),
        user_text=_build_user_text(result, summary),
        exit_code=result.ended.exit_code,
        side_effects=_find_effects(result),
        facts=build_facts(result),
        size=_measure_output(result),
        next_hint=_make_next_hint(result),
        next_tool=_make_next_tool(result),
        kind="verification" if result.verification is not None else "tool",
        state=make_verified_state(result.verification),
    )


def make_verified_state(verification: CommandVerification | None) -> JsonObject:
    """Return the state for `NormalizedOutput.state`. A digest that cannot be compared is not remembered."""
    if verification is None:
        return {}
    return {VERIFIED_STATE_KEY: verification.workspace if is_comparable(verification.workspace) else None}


def _result_code(ended: CommandExit) -> str:
    if ended.reason != "exited":
        return {"timeout": "command_timed_out", "stopped": "command_cancelled"}.get(ended.reason, "command_killed")
    if ended.exit_code == 0:
        return "ok"
    return "command_killed" if ended.signal else "command_failed"


def summarize_result(result: CommandResult) -> str:
    """Summarize a result in one line: the verdict of a check, or the exit."""
    ended = result.ended
    verification = result.verification
    if ended.reason == "exited" and verification is not None and (verdict := describe_verdict(verification)):
        return verdict
    return describe_exit(ended, result.limits, result.timeout.seconds)


def describe_exit(ended: CommandExit, limits: CommandLimits, timeout_seconds: float) -> str:
    """Describe how a command ended."""
    after = f"after {ended.duration_seconds:.1f} s"
    match ended.reason:
        case "timeout":
            return f"ended {after}: its timeout was {timeout_seconds:g} s"
        case "stopped":
            return f"stopped {after}"
        case "memory_limit":
            return f"killed {after}: it used more than {limits.memory_bytes // _MB:,} MiB of memory"
        case "process_limit":
            return f"killed {after}: it had more than {limits.processes:,} processes"
        case "output_limit":
            return f"killed {after}: it printed more than {limits.output_bytes // _MB:,} MiB"
        case "exited":
            return f"ended by {ended.signal} {after}" if ended.signal else f"exit {ended.exit_code} {after}"


def describe_verdict(verification: CommandVerification) -> str:
    """Return the verdict as text; empty where there is none."""
    report = verification.report
    if verification.ok:
        return f"{verification.label} passed."
    if verification.ok is None:
        return ""
    if report is not None:
        return f"{verification.label} failed: {report.summary.partition(': ')[2] or report.summary}"
    if verification.exit_code:
        return f"{verification.label} failed: exit {verification.exit_code}"
    return ""


def build_notes(result: CommandResult) -> list[str]:
    """Return notes for the model beside the output."""
    lines: list[str] = []
    if result.timeout.is_clamped:
        lines.append(f"[timeout_seconds was lowered to {result.timeout.seconds:g}, which is the most]")
    if result.ended_in and result.ended_in != result.started_in:
        folder = to_printable_path(result.ended_in)
        lines.append(f"[the shell ended in {folder}; the next command starts in the workspace again; pass cwd]")
    for violation in result.violations:
        lines.append(f"[sandbox, probably ({violation.cause}): {ADVICE[violation.cause]}]")
    lines += build_egress_notes(result.output.egress, result.mode)
    if _PIP_HOME in result.output.stdout and result.profile != "unconfined":
        lines.append("[what pip installed into the home is gone with this command; use a venv in the workspace]")
    if result.output.excerpt.omitted and not result.output.parts:
        lines.append("[what is left out could not be kept]")
    return lines


def _build_user_text(result: CommandResult, summary: str) -> str:
    verification = result.verification
    if verification is not None and summary != describe_exit(result.ended, result.limits, result.timeout.seconds):
        counts = ", ".join(f"{count} {name}" for name, count in verification.counts.items() if count)
        return f"{summary.rstrip('.')}: {counts}" if verification.ok and counts else summary
    return f"$ {display_command(result.command)}: {summary}"


def display_command(command: str) -> str:
    """Return its first line, if that is not too long."""
    line, _, rest = command.strip().partition("\n")
    cut = line[:_MAX_COMMAND_CHARS]
    return f"{cut}…" if rest or cut != line else cut


def _find_effects(result: CommandResult) -> tuple[SideEffect, ...] | None:
    """Return the side effects; None if they are unknown. A change counts, however the command ended."""
    connected = make_connection_effects(result.output.egress)
    if result.profile == "read-only":
        return connected
    changes = result.changes
    if changes is None or not (changes.count or changes.complete):
        return None
    return (*make_effects(changes), *connected)


def make_effects(changes: WorkspaceChanges, when: str = "") -> tuple[SideEffect, ...]:
    """Build the side effect for changes of the workspace, or of a repository in it alone."""
    if not changes.count:
        return ()
    paths = (*changes.created, *changes.modified, *changes.deleted)
    is_repository = len(paths) == 1 and basename(paths[0]) in REPOSITORY_FOLDERS
    target = to_printable_path(paths[0]) if is_repository else WORKSPACE
    return (SideEffect(kind="modified", target=target, detail=when + _describe_changes(changes)),)


def _describe_changes(changes: WorkspaceChanges) -> str:
    named = (("created", changes.created), ("modified", changes.modified), ("deleted", changes.deleted))
    listed = [f"{verb} {to_printable_path(path)}" for verb, paths in named for path in paths[:MAX_PATHS_LISTED]][
        :MAX_PATHS_LISTED
    ]
    more = f", and {changes.count - len(listed)} more" if changes.count > len(listed) else ""
    return f"{changes.count} changed: {', '.join(listed)}{more}"


def to_printable_path(path: str) -> str:
    """Return a path on one line, without unprintable characters, and not too long. A name may hold any bytes."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in path[:_MAX_PATH_CHARS])


def _measure_output(result: CommandResult) -> OutputSize | None:
    excerpt = result.output.excerpt
    if not excerpt.produced:
        return None
    kept = sum(part.size_bytes for part in result.output.parts)
    return OutputSize(produced=excerpt.produced, kept=kept, shown=excerpt.shown, omitted=excerpt.omitted)


def _make_next_hint(result: CommandResult) -> str:
    """Return what can be looked at next: where a check failed first, and the output that is not shown."""
    hints: list[str] = []
    report = result.verification.report if result.verification is not None else None
    if not result.ok and report is not None and report.first_failure is not None:
        first = report.first_failure
        hints.append(f"The first failure is at {first.file}:{first.line}. Read it before editing.")
    if result.ended.reason == "timeout":
        hints.append("For commands that take long: background=true, then wait_task.")
    if result.output.excerpt.omitted and not result.output.excerpt.shown:
        hints.append("The output is binary, so it is kept and not shown.")
    elif result.output.excerpt.omitted:
        hints.append("The output was cut. Read the rest with read_artifact.")
    return " ".join(hints)


def _make_preview(result: CommandResult) -> str:
    """Return the line that says what failed: of a report, else the first failing line, else the last one."""
    report = result.verification.report if result.verification is not None else None
    if report is not None and report.first_failure is not None:
        return report.first_failure.message
    if not result.output.excerpt.shown:
        return ""
    text = result.output.excerpt.text.strip()
    at = find_first_failure(text)
    return build_search_hint(text, max(0, text.rfind("\n") + 1) if at < 0 else at)


def _make_next_tool(result: CommandResult) -> NextTool | None:
    if not result.output.excerpt.omitted or not result.output.excerpt.shown or not result.output.parts:
        return None
    hint: JsonObject = {"artifact_id": result.output.parts[0].id}
    if result.output.excerpt.around:
        hint["around"] = result.output.excerpt.around
    return NextTool(tool="read_artifact", input_hint=hint)


def build_facts(result: CommandResult) -> JsonObject:
    """Build the facts about a command for the log."""
    ended = result.ended
    facts: JsonObject = {
        "command": result.command,
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "reason": ended.reason,
        "duration_ms": result.duration_ms,
        "cwd": to_printable_path(result.ended_in),
        "profile": result.profile,
        "backend": result.backend,
        "stdout_bytes": result.output.stdout_bytes,
        "stderr_bytes": result.output.stderr_bytes,
        "peak_memory_bytes": ended.peak_memory_bytes,
        "timeout_seconds": result.timeout.seconds,
    }
    if not result.ok and (preview := _make_preview(result)):
        facts["preview"] = preview
    if result.output.parts:
        facts["output"] = result.output.parts[0].id
    if result.output.streams is not None:
        facts["streams"] = result.output.streams.id
    if result.violations:
        facts["violations"] = [violation._asdict() for violation in result.violations]
    if result.guarded:
        facts["guarded"] = [to_printable_path(path) for path in result.guarded[:MAX_PATHS_LISTED]]
    if result.change_set:
        facts[CHANGE_SET_FACT] = result.change_set
    if result.verification is not None:
        facts |= build_verification_facts(result.verification, result.command)
    return facts | build_connection_facts(result.output.egress)


def build_verification_facts(verification: CommandVerification, command: str, started_call: str = "") -> JsonObject:
    """Build the facts about a check for the log."""
    facts: JsonObject = {"verification": verification.to_facts(command, started_call)}
    if verification.report is not None:
        facts["report"] = msgspec.to_builtins(verification.report)
    return facts
