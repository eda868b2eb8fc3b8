"""Dry run: every recorded call is accepted, looked up, validated and judged again, as it would be now. Nothing is
executed and nobody is asked: what would be allowed or asked about stops there.

What a tool found when it looked at the world is taken from the record (`replay_tools.py`): the files of today are not
those of then. The arguments are what the model wrote; what a person made of them is not judged again.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from ..agent.agent import Agent
from ..domain.call import ToolIntent
from ..domain.chain import Entry
from ..domain.decision import Verdict
from ..domain.tool import Situation
from ..storage.artifacts import Artifacts
from .model import Stage, stage_of
from .read_recording import read_recording
from .recording import PastCall, Recording

#: What a person said about it then. `none`: nobody was asked, or nobody was there.
Said: TypeAlias = Literal["granted", "rejected", "expired", "none"]
#: How far a call came, from nothing to everything.
_ORDER = ("refused", "invalid", Verdict.DENY, Verdict.REQUEST_INPUT, Verdict.ASK, Verdict.ALLOW)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How far a call comes: `refused` before it is validated, `invalid`, or the verdict on it."""

    verdict: str
    reason: str = ""
    rules: tuple[str, ...] = ()


class DryRow(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    call_id: str
    tool: str
    arguments: str
    was: Judged
    now: Judged
    said: Said = "none"
    #: Did it run then?
    ran: bool = False
    #: Why it cannot be judged again; then `now` is `was`.
    lost: str = ""

    @property
    def changed(self) -> bool:
        return (self.was.verdict, self.was.rules) != (self.now.verdict, self.now.rules)

    @property
    def looser(self) -> bool:
        """Would the call go further than it did?"""
        return _ORDER.index(self.now.verdict) > _ORDER.index(self.was.verdict)


class DryRun(msgspec.Struct, frozen=True):
    run_id: str
    rows: tuple[DryRow, ...]

    @property
    def changed(self) -> tuple[DryRow, ...]:
        return tuple(row for row in self.rows if row.changed)


async def dry_run(entries: Sequence[Entry], agent: Agent, artifacts: Artifacts | None = None) -> DryRun:
    """What would be decided now about the calls of a recorded run, with the tools and the policy of this agent."""
    recording = read_recording(entries, artifacts)
    agent = msgspec.structs.replace(agent, fail_safe=type(agent.fail_safe)())
    # Nothing has an outcome here: whatever gets as far as a start ends there.
    calls = {call_id: msgspec.structs.replace(call, started=False) for call_id, call in recording.calls.items()}
    stage = stage_of(msgspec.structs.replace(recording, calls=calls), agent)
    stage.app.parts = msgspec.structs.replace(stage.app.parts, interaction=_Nobody())
    try:
        rows = [await _row(call, stage) for call in recording.calls.values()]
    finally:
        await stage.app.close()
    return DryRun(recording.run_id, tuple(rows))


async def _row(call: PastCall, stage: Stage) -> DryRow:
    was = _judged(call)
    return DryRow(
        seq=call.seq,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        was=was,
        now=was if call.lost else _judged(await _again(call, stage)),
        said=_said(call),
        ran=call.started,
        lost=call.lost,
    )


async def _again(call: PastCall, stage: Stage) -> PastCall:
    """The call alone, in a run of its own: what waits for a person must not keep others from being judged."""
    situation = _situation(call, stage)
    run = stage.open(situation)
    await stage.app.execute(run, [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments)])
    await run.recorder.commit()
    return _first(read_recording(await stage.app.log.read(situation.run_id)), call)


def _situation(call: PastCall, stage: Stage) -> Situation:
    situation = stage.situation()
    agent = call.agent if call.agent in stage.agents else situation.agent
    name = f"{situation.run_id}#{call.seq}"
    return msgspec.structs.replace(situation, run_id=name, agent=agent, mode=call.mode, interactive=call.interactive)


def _first(recording: Recording, call: PastCall) -> PastCall:
    calls: Iterator[PastCall] = iter(recording.calls.values())
    return recording.calls.get(call.call_id) or next(calls)


def _judged(call: PastCall) -> Judged:
    failure = call.observation.failure if call.observation is not None else None
    if call.decision is not None and call.valid:
        return Judged(verdict=call.decision.verdict, reason=call.decision.reason, rules=call.decision.rule_ids)
    if call.valid is False:
        return Judged(verdict="invalid", reason="; ".join(call.errors))
    return Judged(verdict="refused", reason=failure.message if failure is not None else "")


def _said(call: PastCall) -> Said:
    if call.answer is None:
        return "none"
    if call.answer.expired:
        return "expired"
    return "granted" if call.answer.approved else "rejected"


class _Nobody:
    """Implements `InteractionProvider`: whatever is asked stays open."""

    approval_timeout_s = None
    approval_fallback: Literal["wait"] = "wait"
    interactive = False

    async def ask(self, question: object) -> None:
        return None
