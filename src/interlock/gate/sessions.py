"""Sessions of clients that make calls one by one: one run for each, and the same call again attaches to the first one.

A client that gets "waits for approval" makes the same call again later, perhaps from another process. It is found by
who asks for what: requester, client, workspace, tool and canonical arguments. Two indexes in the log, each read by its
key, lead there whatever the size of the log: the newest question about such a call, and the newest sessions of such a
client. The runs they name decide; an index entry alone proves nothing.

- A call that waits, was approved and did not start, or was rejected and not reported, is continued: it runs once, or
  the reason is reported once.
- A call that a process left behind when it died is continued as after any crash: it never silently runs again.
- A call like one whose outcome is unknown is made in the run that knows so: there a person is asked first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Any

import msgspec

from ..domain.call import Question, ToolIntent
from ..domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    DecisionConflictError,
    IllegalTransitionError,
    LogUnreadableError,
    RunClaimedError,
    RunEndedError,
    RunPausedError,
)
from ..domain.event import CallObserved, decode_event
from ..domain.json import InvalidJsonError, check_value, encode_sorted, parse
from ..domain.observation import Observation
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import CallState
from ..domain.tool import JsonObject
from ..history.fold import load_more, load_run
from ..storage.event_log import EffectClaim
from .gate import Gate, Judged, Settled, Waits
from .named_run import clean_run_id, join_run_id

#: How many earlier sessions of a client are looked at when a new one begins.
_MAX_EARLIER = 8
#: How many calls are remembered as ended, so that their runs need not be read again.
_MAX_ENDED = 4_096
#: How long a call waits for a process that has its run, before it looks again.
_LOOK_SECONDS = 0.5
_LEFT = "The client left."
#: An entry of an index is added, whatever is there already.
_ALWAYS = 2**62


class Session(msgspec.Struct, frozen=True):
    """A session of a client, and its run."""

    run_id: str
    #: Who the client acts for.
    requester: str = ""
    #: The name of the client. Rules know it as the agent.
    client: str = ""
    #: How its calls come here, such as `mcp`.
    framework: str = ""


class CallLocation(msgspec.Struct, frozen=True):
    """Where a call belongs: a new one of the session, or one that began before."""

    run_id: str
    call_id: str
    #: True when the call began before, in this or another session.
    attached: bool = False


class Sessions:
    """The sessions of clients behind one gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._log = gate.log
        #: Calls that wait or were left behind, by their key. Without a call id: the run that the next one is made in.
        self._held: dict[str, CallLocation] = {}
        #: The newest call that ended, by key.
        self._ended: OrderedDict[str, CallLocation] = OrderedDict()
        #: Calls whose question was withdrawn, each with the call that asked the same before.
        self._withdrawn: dict[CallLocation, CallLocation] = {}

    async def open(
        self, *, requester: str = "", client: str = "", session_id: str = "", framework: str = ""
    ) -> Session:
        """Begin a session, or continue one with the same id that is not over.

        Args:
            requester: Who the client acts for.
            client: The name of the client.
            session_id: The client's own stable id of the session. Default: a new one.
            framework: How its calls come here, for people who look at the run.
        """
        name = (requester, client, self._gate.workspace)
        key = _digest("session", *name, session_id)
        if session_id:
            for claim in await self._log.effect_claims(key, 1):
                if not (await load_run(self._log, claim.run_id)).ledger.is_over:
                    return Session(claim.run_id, requester, client, framework)
        unique = f"{session_id[:40]}-{token_hex(4)}" if session_id else token_hex(8)
        run_id = clean_run_id(join_run_id(client or framework or "client", requester, unique))
        session = Session(run_id, requester, client, framework)
        await self._recover(session)
        keys = (key, _digest("sessions", *name)) if session_id else (_digest("sessions", *name),)
        for index in keys:
            await self._add_to_index(index, CallLocation(run_id, "-"))
        return session

    async def find(self, session: Session, intent: ToolIntent) -> CallLocation:
        """Return where the call belongs. The same call again, of the same client, belongs to the one that it repeats
        while that waits for a person or has no recorded outcome.
        """
        return await self._find(session, intent, self._key_of(session, intent))

    async def _find(self, session: Session, intent: ToolIntent, key: str) -> CallLocation:
        place = self._held.get(key)
        if place is None and not self._gate.is_read_only(intent.tool_name):
            for claim in await self._log.effect_claims(key, 1):
                place = CallLocation(claim.run_id, claim.call_id, attached=True)
        if place is None or self._ended.get(key) == place:
            return CallLocation(session.run_id, intent.call_id)
        if not place.call_id:
            return CallLocation(place.run_id, intent.call_id)
        if _is_unfinished((await load_run(self._log, place.run_id)).ledger, place.call_id):
            self._held[key] = place
            return place
        self._held.pop(key, None)
        self._remember_end(key, place)
        return CallLocation(session.run_id, intent.call_id)

    async def call(
        self,
        session: Session,
        intent: ToolIntent,
        execute: Callable[[JsonObject], Awaitable[Any]] | None = None,
        *,
        waits: Waits = "pause",
        place: CallLocation | None = None,
    ) -> Settled:
        """Take a call through the pipeline, or continue the one that it repeats. For `waits` see `Gate.call`.

        Args:
            session: The session that makes it.
            intent: The call. A new one has a new id.
            execute: Executes a tool that is not Interlock's own.
            waits: What happens while a person has to answer.
            place: Where it belongs, if that was looked up before.
        """
        key = self._key_of(session, intent)
        place = place or await self._find(session, intent, key)
        while True:
            hold = self._holder(key, place, waits, withdraws=not self._gate.is_read_only(intent.tool_name))
            try:
                settled = await self._gate.call(
                    place.run_id,
                    msgspec.structs.replace(intent, call_id=place.call_id),
                    execute,
                    waits=hold,
                    agent=session.client,
                    framework=session.framework,
                    requester=session.requester,
                    is_session=True,
                )
            except RunClaimedError:
                if not place.attached:
                    raise
                watched = await self._watch(place, hold)
                if watched is None:
                    continue
                settled = watched
            first = self._withdrawn.pop(place, None)
            if first is not None and settled.observation is not None and _was_denied(settled.observation):
                place = first
                continue
            if settled.observation is not None:
                self._forget(key, place, settled.observation)
            return settled

    async def judge(
        self, session: Session, intent: ToolIntent, *, waits: Waits = "pause", place: CallLocation | None = None
    ) -> Judged:
        """Decide about a call that the client executes, or continue the one that it repeats. See `Gate.judge`."""
        key = self._key_of(session, intent)
        place = place or await self._find(session, intent, key)
        judged = await self._gate.judge(
            place.run_id,
            msgspec.structs.replace(intent, call_id=place.call_id),
            waits=self._holder(key, place, waits),
            agent=session.client,
            framework=session.framework,
            requester=session.requester,
            is_session=True,
        )
        if judged.observation is not None:
            self._forget(key, place, judged.observation)
        return judged

    async def warn(self, session: Session, message: str) -> None:
        """Record something that people should know. See `Gate.warn`."""
        await self._gate.warn(
            session.run_id,
            message,
            agent=session.client,
            framework=session.framework,
            requester=session.requester,
        )

    async def end(self, session: Session) -> None:
        """End a session. Its run is complete when nothing waits and every outcome is known, else it stays open."""
        await self._gate.release(session.run_id)
        ledger = (await load_run(self._log, session.run_id)).ledger
        if ledger.started and not ledger.is_over and not ledger.open_calls() and not ledger.unknown_calls:
            await self._complete(session.run_id)

    def _key_of(self, session: Session, intent: ToolIntent) -> str:
        """Return the key of a call: the same for the same call of the same client, whatever its id."""
        arguments = intent.arguments
        try:
            if type(arguments) is str:
                arguments = parse(arguments.encode() or b"{}")
            else:
                check_value(arguments)
            digest = sha256(encode_sorted((intent.tool_name, arguments))).hexdigest()
        except (InvalidJsonError, UnicodeEncodeError, TypeError, RecursionError):
            digest = f"unusable {intent.call_id}"  # it is refused, and repeats nothing
        return self._key_of_digest(session, digest)

    def _key_of_digest(self, session: Session, digest: str) -> str:
        return _digest("call", session.requester, session.client, self._gate.workspace, digest)

    def _holder(
        self, key: str, place: CallLocation, waits: Waits, *, withdraws: bool = False
    ) -> Callable[[Question], Awaitable[None]]:
        """Return what waits for an answer, and first makes the question known to other sessions.

        Args:
            withdraws: A question is withdrawn when another process asked the same at the same time.
        """

        async def hold(question: Question) -> None:
            if self._held.get(key) != msgspec.structs.replace(place, attached=True):
                first = await self._publish(key, place)
                if first is not None and withdraws and question.kind == "approval":
                    await self._withdraw(question, place, first)
                    await asyncio.Event().wait()  # whatever is recorded about the question ends this
                self._held[key] = msgspec.structs.replace(place, attached=True)
            if callable(waits):
                await waits(question)
            elif waits == "inline":
                await asyncio.Event().wait()

        return hold

    async def _publish(self, key: str, place: CallLocation) -> CallLocation | None:
        """Add a call that waits to the index. Return the one that is there and waits already, if there is one."""
        while True:
            newest = next(iter(await self._log.effect_claims(key, 1)), None)
            if newest is not None and (newest.run_id, newest.call_id) != (place.run_id, place.call_id):
                ledger = (await load_run(self._log, newest.run_id)).ledger
                if any(question.call_id == newest.call_id for question in ledger.open_questions()):
                    return CallLocation(newest.run_id, newest.call_id, attached=True)
            claim = EffectClaim(0, place.run_id, place.call_id, 0)
            if await self._log.claim_effect(key, claim, 0 if newest is None else newest.number):
                return None

    async def _withdraw(self, question: Question, place: CallLocation, first: CallLocation) -> None:
        self._withdrawn[place] = first
        with suppress(AnswerRefusedError, DecisionConflictError, RunEndedError):
            reason = f"The same call waits for approval in {first.run_id}."
            await self._gate.inbox.reject(question, by="interlock", reason=reason)

    async def _add_to_index(self, key: str, place: CallLocation) -> None:
        await self._log.claim_effect(key, EffectClaim(0, place.run_id, place.call_id, 0), _ALWAYS)

    def _forget(self, key: str, place: CallLocation, observation: Observation) -> None:
        """Forget a call that ended. The run that knows of an unknown outcome is remembered until one is known."""
        held = self._held.get(key)
        if held is not None and (held.call_id == place.call_id or (not held.call_id and observation.ok)):
            del self._held[key]
            self._remember_end(key, place)
            if observation.failure is not None and observation.side_effects == "unknown":
                self._held[key] = CallLocation(place.run_id, "")

    def _remember_end(self, key: str, place: CallLocation) -> None:
        self._ended[key] = msgspec.structs.replace(place, attached=True)
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    async def _recover(self, session: Session) -> None:
        """Remember what earlier sessions of the client left behind, and complete those that left nothing."""
        owned = await self._log.lease_holders()
        index = _digest("sessions", session.requester, session.client, self._gate.workspace)
        for claim in await self._log.effect_claims(index, _MAX_EARLIER):
            run_id = claim.run_id
            if run_id in owned:
                continue
            try:
                ledger = (await load_run(self._log, run_id)).ledger
            except (LogUnreadableError, IllegalTransitionError):
                continue
            if ledger.is_over or not ledger.started:
                continue
            left = ledger.open_calls()
            for call_id in left:
                place = CallLocation(run_id, call_id, attached=True)
                self._held.setdefault(self._key_of_digest(session, ledger.calls[call_id].digest), place)
            for digest in ledger.unknown_calls:
                self._held.setdefault(self._key_of_digest(session, digest), CallLocation(run_id, ""))
            if not left and not ledger.unknown_calls:
                await self._complete(run_id)

    async def _complete(self, run_id: str) -> None:
        # Another process may continue or end it at the same time.
        with suppress(RunPausedError, RunEndedError, RunClaimedError, ConfigurationError):
            await self._gate.complete(run_id, _LEFT)

    async def _watch(self, place: CallLocation, hold: Callable[[Question], Awaitable[None]]) -> Settled | None:
        """Wait for a call whose run another process has. Return None when that released it."""
        loaded = await load_run(self._log, place.run_id)
        holding: asyncio.Task[None] | None = None
        try:
            while True:
                seen = self._log.version()
                loaded = await load_more(self._log, loaded)
                entry = loaded.ledger.calls[place.call_id]
                if entry.state is CallState.OBSERVED:
                    (logged,) = await self._log.read(place.run_id, entry.observed_seq - 1, 1)
                    fact = decode_event(logged).fact
                    return Settled(fact.observation) if isinstance(fact, CallObserved) else None
                if not await self._log.lease_holder(place.run_id):
                    return None
                action = loaded.ledger.actions.get(entry.action_id)
                if action is not None and action.is_open:
                    holding = holding or asyncio.ensure_future(hold(action.question))
                    if holding.done():
                        return Settled(None, action.question)
                await self._log.wait_for_change(seen, _LOOK_SECONDS)
        finally:
            if holding is not None:
                holding.cancel()


def _is_unfinished(ledger: Ledger, call_id: str) -> bool:
    """Return True if the call has no recorded outcome, and its run can still give it one."""
    entry = ledger.calls.get(call_id)
    return not ledger.is_over and entry is not None and entry.state is not CallState.OBSERVED


def _was_denied(observation: Observation) -> bool:
    return observation.failure is not None and observation.failure.code == "user_denied"


def _digest(*parts: str) -> str:
    return sha256(encode_sorted(parts)).hexdigest()
