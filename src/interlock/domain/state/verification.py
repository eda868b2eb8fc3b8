"""Verification state: whether the goal of a run was checked, by what, with which result, and before or after the last
change.

`VerificationState` is a fold over starts and ends in a run. It holds the newest check of each goal and the last
changes, never a history. `summarize` returns one of:

- `failed`: the newest check of some goal failed;
- `stale`: all passed, and something changed after one of them, or may have;
- `passed`: all passed, and nothing changed since;
- `none`: nothing was checked, or whether it passed is unknown.

**Goals.** A full run of the tests and a linter are two goals, and a pass of one says nothing about the other. Which
goal a check is about is in its facts: the `goal` that a tool names; else the program, with its subcommand, and the
folder; else the tool. A new check takes the place of an old one that it covers: one by the same command, or of the same
goal and at least as wide. It is as wide when it leaves nothing out by a filter, counts no fewer tests, and names no
files or some that the old ones are in. So one test file that passes does not make up for a full run that failed. Where
the command leaves it open the old check stays, and the result is asked for once more rather than assumed.

**Changes.** A check is about the state of things when it started. Whatever another call changed after that makes it
stale; what it changed itself does not. Digests of the workspace know better where two checks by one tool have them: an
equal one says that nothing changed up to there, a different one that something did, even if no call says so. What was
only `sent`, or committed to a repository, does not affect what was checked. A check that another call started, as one
in the background does, names that call as `started_call`: it counts from there, and is one more look by that call's
tool. Other calls ran beside it, so where the workspace was not the same before and after it, no digest says what it
checked. A run that was forked from another one has its memory, not its world: what was checked before the fork is stale
until it is looked at again.

A developer's tool takes part with `NormalizedOutput(kind="verification")`. Its facts, or the object `verification` in
them, may hold `ok`, `goal`, `program`, `command`, `exit_code`, `counts`, `workspace`, `workspace_before` and
`started_call`. All of them may be missing.
"""

from collections.abc import Sequence
from posixpath import basename
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from ..json import JsonObject, escape_surrogates
from ..observation import Observation
from ..outcome import UNKNOWN_SIDE_EFFECTS, SideEffects
from ..rendering import neutralize, truncate
from .check_scope import CheckScope, read_scope

VerificationStatus: TypeAlias = Literal["passed", "failed", "stale", "none"]

#: Workspace digests that cannot be compared: the workspace was not readable, or not completely.
UNKNOWN_DIGEST = "unknown"
PARTIAL_DIGEST_PREFIX = "truncated:"
#: Maximum number of goals that a run distinguishes.
MAX_CHECKS = 32
_COUNTS = ("passed", "failed", "errors", "skipped")
_MAX_COUNT = 10**9
_MAX_SHOWN_CHARS = 80
_MAX_TEXT_CHARS = 200
_MAX_LISTED = 3
_IGNORED_EFFECTS = frozenset(("sent",))
#: What a repository keeps for itself: a commit changes no file that was checked.
REPOSITORY_FOLDERS = frozenset((".git", ".hg", ".svn"))
_FORK_MESSAGE = "the run was forked from another one, and what changed since is not known"


class WorkspaceChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A change that a call made, or may have made."""

    seq: int
    call_id: str = ""
    #: The tool that made the change; empty: unknown.
    tool: str = ""
    #: The first thing that was changed; empty: not known. Where no call did it: a description.
    target: str = ""


class StartingCall(NamedTuple):
    """The call that started a check."""

    #: Its own changes do not count as later ones.
    seq: int
    tool: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a test or check. `ok` is None where the result is unknown."""

    call_id: str
    tool: str
    seq: int
    started_seq: int
    ok: bool | None
    scope: CheckScope
    #: Its first words; empty where there is no command.
    command: str = ""
    exit_code: int | None = None
    counts: dict[str, int] = {}
    workspace: str = ""

    @property
    def total(self) -> int | None:
        """The number of tests; None: unknown."""
        if "passed" not in self.counts or (self.scope.stops and not self.ok):
            return None
        return sum(self.counts.values())

    @property
    def name(self) -> str:
        """The command in backticks, or the goal if the command is unknown."""
        return f"`{self.command}`" if self.command else self.scope.goal

    def covers(self, other: "CheckResult") -> bool:
        """Return True if this result makes the older one obsolete."""
        mine, old = self.scope, other.scope
        if self.ok is None and other.ok is not None:
            return False
        if mine.command and mine.command == old.command and mine.folder == old.folder:
            return True
        if not mine.has_same_goal(old):
            return False
        counted = self.total is not None and other.total is not None
        if counted and cast(int, self.total) < cast(int, other.total):
            return False
        return mine.is_as_wide_as(old, counts_as_many=counted)


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The check and the change that a verification result is based on."""

    check: CheckResult
    #: The newest change after it.
    change: WorkspaceChange | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verification result of a run, with its evidence."""

    status: VerificationStatus
    #: The newest check of each goal, oldest first.
    evidence: tuple[Evidence, ...] = ()
    #: One sentence for people.
    message: str


class VerificationState(msgspec.Struct, omit_defaults=True):
    """The newest check of each goal, and the last changes of a run."""

    checks: list[CheckResult] = []
    #: The newest change, and the newest by another call: so there is always one that a given call did not make.
    changes: list[WorkspaceChange] = []
    #: Calls that run now, and since when. Without its start, a check counts from its observation.
    running: dict[str, int] = {}
    #: The last event that was copied from another run; -1: none.
    forked_at: int = -1

    def record_change(self, seq: int, side_effects: SideEffects, call_id: str = "", tool: str = "") -> None:
        """Record the side effects of an ended call, also when there are none."""
        if not side_effects:
            return
        if side_effects == UNKNOWN_SIDE_EFFECTS:
            target = ""
        elif not (
            targets := [
                effect.target
                for effect in side_effects
                if effect.kind not in _IGNORED_EFFECTS and basename(effect.target) not in REPOSITORY_FOLDERS
            ]
        ):
            return
        else:
            target = _one_line(targets[0], _MAX_TEXT_CHARS)
        other = next((change for change in self.changes if change.call_id != call_id), None)
        newest = WorkspaceChange(seq, call_id, tool, target)
        self.changes = [newest] if other is None else [newest, other]

    def record_observation(self, observation: Observation, seq: int, starter: StartingCall | None = None) -> None:
        """Record an observation. One without a recorded end, as after a crash, also says what may have changed."""
        call_id = observation.call_id
        started_seq = self.running.pop(call_id, seq)
        if observation.side_effects:
            self.record_change(seq, observation.side_effects, call_id, observation.tool)
        if observation.kind == "verification":
            self._add_check(_read_check(observation, seq, starter or StartingCall(started_seq, observation.tool)))

    def summarize(self) -> Verification:
        """Summarize all checks and say whether files changed after them."""
        evidence = tuple(Evidence(check, self._change_after(check)) for check in self.checks)
        failed = [one for one in evidence if one.check.ok is False]
        passed = [one for one in evidence if one.check.ok]
        stale = [one for one in passed if one.change is not None]
        status: VerificationStatus = "failed" if failed else "stale" if stale else "passed" if passed else "none"
        message = _describe(status, failed or stale or passed or evidence)
        return Verification(status=status, evidence=evidence, message=message)

    def _add_check(self, check: CheckResult) -> None:
        """Add a check. With too many goals, another pass adds nothing; a failure always does."""
        kept = [old for old in self.checks if not check.covers(old)]
        if len(kept) >= MAX_CHECKS:
            spare = next((at for at, old in enumerate(kept) if old.ok is None), -1)
            if spare < 0 and check.ok is not False:
                return
            kept.pop(max(spare, 0))
        self.checks = [*kept, check]

    def _change_after(self, check: CheckResult) -> WorkspaceChange | None:
        after = check.started_seq
        if is_comparable(check.workspace):
            last = self._latest_comparable_check(check.tool) or check
            if last.workspace != check.workspace:
                return self._newest_change(check, after) or WorkspaceChange(last.seq)
            if last is not check:
                after = last.seq
        return self._newest_change(check, after)

    def _latest_comparable_check(self, tool: str) -> CheckResult | None:
        """Return the last check by this tool that covered the whole workspace."""
        looks = (check for check in reversed(self.checks) if check.tool == tool and is_comparable(check.workspace))
        return next(looks, None)

    def _newest_change(self, check: CheckResult, after: int) -> WorkspaceChange | None:
        by_others = (change for change in self.changes if change.seq > after and change.call_id != check.call_id)
        return next(by_others, None) or (
            WorkspaceChange(self.forked_at, target=_FORK_MESSAGE) if after <= self.forked_at else None
        )


def is_comparable(workspace: str) -> bool:
    """Return True if a digest of the workspace can be compared with another one."""
    return bool(workspace) and workspace != UNKNOWN_DIGEST and not workspace.startswith(PARTIAL_DIGEST_PREFIX)


def find_starting_call_id(observation: Observation) -> str:
    """Return the id of the call that started what this one verifies; empty: this call itself."""
    return _to_text(_verification_facts(observation).get("started_call")) if observation.kind == "verification" else ""


def _verification_facts(observation: Observation) -> JsonObject:
    return _to_object(observation.facts.get("verification")) or observation.facts


def _read_check(observation: Observation, seq: int, starter: StartingCall) -> CheckResult:
    facts = _verification_facts(observation)
    command = _to_text(facts.get("command"))
    exit_code = facts.get("exit_code", observation.exit_code)
    return CheckResult(
        call_id=observation.call_id,
        tool=starter.tool,
        seq=seq,
        started_seq=starter.seq,
        ok=_is_ok(observation, facts),
        scope=_build_scope(observation, facts, command),
        command=_one_line(command.strip().partition("\n")[0], _MAX_SHOWN_CHARS).replace("`", "'"),
        exit_code=exit_code if type(exit_code) is int and abs(exit_code) < _MAX_COUNT else None,
        counts=_read_counts(_to_object(facts.get("counts"))),
        workspace=_read_workspace_digest(facts),
    )


def _read_workspace_digest(facts: JsonObject) -> str:
    workspace = _to_text(facts.get("workspace"))[:_MAX_TEXT_CHARS]
    was_alone = not facts.get("started_call")
    return workspace if was_alone or facts.get("workspace_before") == workspace else UNKNOWN_DIGEST


def _is_ok(observation: Observation, facts: JsonObject) -> bool | None:
    """Return the result of a check. A failure counts wherever it is reported."""
    reported = facts.get("ok", observation.ok)
    if reported is False or (not observation.ok and reported is not None):
        return False
    return True if reported is True else None


def _build_scope(observation: Observation, facts: JsonObject, command: str) -> CheckScope:
    if goal := _to_text(facts.get("goal")):
        return CheckScope(_one_line(goal, _MAX_TEXT_CHARS))
    program = _one_line(_to_text(facts.get("program")), _MAX_TEXT_CHARS)
    if not command:
        return CheckScope(program or observation.tool)
    folder = _to_text(observation.facts.get("cwd"))[:_MAX_TEXT_CHARS]
    return read_scope(program or observation.tool, command, folder)


def _read_counts(counts: JsonObject) -> dict[str, int]:
    reported = ((name, counts.get(name)) for name in _COUNTS)
    return {name: count for name, count in reported if type(count) is int and 0 <= count <= _MAX_COUNT}


def _to_object(value: Any) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _to_text(value: Any) -> str:
    """Return the value as the log has it."""
    return escape_surrogates(value) if isinstance(value, str) else ""


def _one_line(text: str, max_chars: int) -> str:
    return truncate(" ".join(neutralize(text[: 2 * max_chars]).split()), max_chars)


def _describe(status: VerificationStatus, deciding: Sequence[Evidence]) -> str:
    if not deciding:
        return "No test or check was run."
    newest = deciding[-1]
    name, change = newest.check.name, newest.change
    match status:
        case "none":
            return f"{name} ran, but whether it passed is unknown."
        case "passed":
            names = [f"{one.check.name}{_describe_result(one.check)}" for one in deciding]
            return f"{_join_names(names)} passed, and nothing changed after that."
        case "failed":
            again = "" if change is None else f", and was not run again after {_describe_change(change)}"
            return f"{name} failed{_describe_result(newest.check)}{again}{_describe_remaining(deciding)}."
        case "stale":
            later = _describe_change(cast(WorkspaceChange, change))
            return (
                f"{name} passed{_describe_result(newest.check)}, and after that {later}{_describe_remaining(deciding)}."
            )


def _describe_result(check: CheckResult) -> str:
    parts = [f"{count} {name}" for name, count in check.counts.items() if count]
    if check.exit_code is not None:
        parts.insert(0, f"exit code {check.exit_code}")
    return f" ({', '.join(parts)})" if parts else ""


def _describe_change(change: WorkspaceChange) -> str:
    if not change.call_id:
        return change.target or f"something changed that no call reported (seen at event {change.seq})"
    did = f"changed {_one_line(change.target, _MAX_SHOWN_CHARS)}" if change.target else "may have changed something"
    return f"{change.tool or 'a call'} {did} (event {change.seq})"


def _describe_remaining(deciding: Sequence[Evidence]) -> str:
    return f" (and {len(deciding) - 1} more like this)" if len(deciding) > 1 else ""


def _join_names(names: Sequence[str]) -> str:
    shown = [*names[:_MAX_LISTED], f"{len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
