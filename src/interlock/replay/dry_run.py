"""Dry runs: every recorded call is accepted, looked up, validated and evaluated again, with today's code. Nothing is
executed or asked: calls stop where they would be allowed or asked about.

What a tool's check found is taken from the record (`tools.py`): today's files differ from those of then. The arguments
are the model's; a person's edits are not evaluated again.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ..agent.agent import Agent
from ..domain.call import ToolIntent
from ..domain.decision import Verdict
from ..domain.event import LogEntry
from ..domain.tool import CallContext
from ..storage.artifacts import ArtifactStore
from .model import ReplayEnvironment, build_environment
from .recording import ReplayCall
from .recording_reader import read_recording

#: The person's answer then. `none`: no person was asked or available.
RecordedDecision: TypeAlias = Literal["granted", "rejected", "expired", "none"]
#: How far a call came, from nothing to everything.
_VERDICT_ORDER = ("refused", "invalid", Verdict.DENY, Verdict.REQUEST_INPUT, Verdict.ASK, Verdict.ALLOW)


class DryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How far a call comes: `refused` before it is validated, `invalid`, or the verdict on it."""

    verdict: str
    reason: str = ""
    rules: tuple[str, ...] = ()


class DryRunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call, its decision then, and its decision now."""

    seq: int
    call_id: str
    tool: str
    arguments: str
    was: DryVerdict
    now: DryVerdict
    said: RecordedDecision = "none"
    #: Whether it ran then.
    ran: bool = False
    #: Why it cannot be evaluated again; then `now` is `was`.
    lost: str = ""

    @property
    def changed(self) -> bool:
        """True if the verdict or the rules are different now."""
        return (self.was.verdict, self.was.rules) != (self.now.verdict, self.now.rules)

    @property
    def looser(self) -> bool:
        """True when the call would go further than it did."""
        return _VERDICT_ORDER.index(self.now.verdict) > _VERDICT_ORDER.index(self.was.verdict)


class DryRun(msgspec.Struct, frozen=True):
    """The result of a dry run."""

    run_id: str
    rows: tuple[DryRunRow, ...]

    @property
    def changed(self) -> tuple[DryRunRow, ...]:
        """Rows that are decided differently now."""
        return tuple(row for row in self.rows if row.changed)


async def dry_run(entries: Sequence[LogEntry], agent: Agent, artifacts: ArtifactStore | None = None) -> DryRun:
    """Return what would be decided now about the calls of a recorded run, with this agent's tools and policy."""
    recording = await asyncio.to_thread(read_recording, entries, artifacts)
    agent = msgspec.structs.replace(agent, fail_safe=type(agent.fail_safe)())
    # Nothing has an outcome here: whatever gets as far as a start ends there.
    calls = {call_id: msgspec.structs.replace(call, started=False) for call_id, call in recording.calls.items()}
    environment = build_environment(msgspec.structs.replace(recording, calls=calls), agent)
    environment.app.parts = msgspec.structs.replace(environment.app.parts, interaction=_NoInteraction())
    try:
        rows = [await _build_row(call, environment) for call in recording.calls.values()]
    finally:
        await environment.app.close()
    return DryRun(recording.run_id, tuple(rows))


async def _build_row(call: ReplayCall, environment: ReplayEnvironment) -> DryRunRow:
    was = _read_verdict(call)
    return DryRunRow(
        seq=call.seq,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        was=was,
        now=was if call.lost else _read_verdict(await _evaluate_again(call, environment)),
        said=_read_decision(call),
        ran=call.started,
        lost=call.lost,
    )


async def _evaluate_again(call: ReplayCall, environment: ReplayEnvironment) -> ReplayCall:
    """Evaluate the call in a separate run: one that waits for a person must not block others."""
    situation = _call_context(call, environment)
    run = environment.open(situation)
    await environment.app.execute(
        run, [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments)]
    )
    await run.recorder.commit()
    calls = read_recording(await environment.app.log.read(situation.run_id)).calls
    return calls.get(call.call_id) or next(iter(calls.values()))


def _call_context(call: ReplayCall, environment: ReplayEnvironment) -> CallContext:
    situation = environment.build_context()
    agent = call.agent if call.agent in environment.agents else situation.agent
    name = f"{situation.run_id}#{call.seq}"
    return msgspec.structs.replace(situation, run_id=name, agent=agent, mode=call.mode, interactive=call.interactive)


def _read_verdict(call: ReplayCall) -> DryVerdict:
    failure = call.observation.failure if call.observation is not None else None
    if call.decision is not None and call.valid:
        return DryVerdict(verdict=call.decision.verdict, reason=call.decision.reason, rules=call.decision.rule_ids)
    if call.valid is False:
        return DryVerdict(verdict="invalid", reason="; ".join(call.errors))
    return DryVerdict(verdict="refused", reason=failure.message if failure is not None else "")


def _read_decision(call: ReplayCall) -> RecordedDecision:
    if call.answer is None:
        return "none"
    if call.answer.expired:
        return "expired"
    return "granted" if call.answer.approved else "rejected"


class _NoInteraction:
    """Implementation of `InteractionProvider` that leaves every question open."""

    approval_timeout_s = None
    approval_fallback: Literal["wait"] = "wait"
    interactive = False

    async def ask(self, question: object) -> None:
        return None
