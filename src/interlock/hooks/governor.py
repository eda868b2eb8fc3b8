"""The decisions about the calls of one coding agent in one folder.

The agent executes its tools; a call of the gate lasts from the hook before the tool to the hook after it. What the log
says decides, not what this process remembers: after a restart, a call that was started is never permitted again, and
the hook after it still records that it happened.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from ..domain.call import Question, ToolIntent
from ..domain.decision import Decision
from ..domain.decision import Verdict as PolicyVerdict
from ..domain.errors import CallFailedError, ConfigurationError, PreconditionError
from ..domain.event import CallProposed, decode_event
from ..domain.json import JsonObject, encode_sorted
from ..domain.state.ledger import CallEntry, Ledger
from ..domain.state.lifecycle import CallState
from ..domain.tool import CallContext, CheckProblem, SandboxScope, ToolContext, ToolDefinition
from ..gate.gate import Gate, Settled
from ..gate.sessions import CallLocation, Session, Sessions
from ..history.fold import load_run
from ..policy.engine.example_event import example_event
from ..policy.engine.rule import Rule
from ..policy.engine.rule_policy import RulePolicy
from ..registry.json_schema import tool_from_schema
from ..sandbox.handlers.executor import HandlerExecutor
from .contract import AgentContract, Confirmed, PermissionAsked, ToolEvent, ToolProposed, ToolReported, Verdict
from .foreign_tools import TOOLS, ForeignTool, TranslatedCall, translate

_ANY = {"type": "object"}
_FRAMEWORK = "hooks"
#: The agent has its own limits.
_TIMEOUT_SECONDS = 7 * 24 * 3600.0
#: How many verdicts and sessions are remembered.
_MAX_REMEMBERED = 1_000
_PASS = Verdict(kind="pass")
_LEFT = "The agent left before it was answered"
#: True while a call is looked at that the agent reports as done.
_REPORTED: ContextVar[bool] = ContextVar("interlock_hooks_reported", default=False)


class AgentToolError(Exception):
    """The agent says that its tool failed."""


class ExternalExecutor(HandlerExecutor):
    """Names the program that executes the tools."""

    def __init__(self, client: str) -> None:
        super().__init__()
        self._name = f"external/{client}"

    def executor_name(self, tool: ToolDefinition) -> str:
        """Return the name of the agent."""
        return self._name


class _External:
    """A call on its way: permitted when the agent may execute it, and over when it says what came of it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.permitted: asyncio.Future[JsonObject] = loop.create_future()
        self.outcome: asyncio.Future[Any] = loop.create_future()
        #: Set when a person has to answer first.
        self.asked = asyncio.Event()


class _Running(msgspec.Struct):
    """A call that the agent executes now."""

    place: CallLocation
    call: TranslatedCall
    external: _External
    task: "asyncio.Task[Settled]"

    async def end(self, error: Exception | None, value: Any = None) -> None:
        """Record what came of it."""
        if not self.external.outcome.done():
            if error is None:
                self.external.outcome.set_result(value)
            else:
                self.external.outcome.set_exception(error)
        await self.task


class Governor:
    """Decides about the calls of one agent in one folder, and records them."""

    def __init__(self, contract: AgentContract, gate: Gate, requester: str, protected: Iterable[Rule] = ()) -> None:
        self._contract = contract
        self._gate = gate
        self._requester = requester
        self._sessions = Sessions(gate)
        self._protected = RulePolicy(protected, default="allow")
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: By our name: what was declared.
        self._declared: dict[str, ForeignTool] = {}
        self._external: dict[tuple[str, str], _External] = {}
        #: By what is called: held until it is known whether the call is permitted or waits.
        self._placing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: By session and call, or by session and what is called where calls have no ids.
        self._running: defaultdict[tuple[str, str], list[_Running]] = defaultdict(list)
        self._verdicts: OrderedDict[tuple[str, str], asyncio.Future[Verdict]] = OrderedDict()
        #: How often a call was made, for agents whose calls have no ids.
        self._counts: dict[str, int] = {}
        for tool in TOOLS[contract.client].values():
            self._declare(tool)

    @property
    def running_count(self) -> int:
        """How many calls the agent executes now."""
        return sum(map(len, self._running.values()))

    async def propose(self, event: ToolProposed, seconds: float, left: asyncio.Event) -> Verdict:
        """Decide about a call. A question is held open for `seconds` at most, or until the agent has left."""
        answered = self._expect_verdict(event)
        verdict = Verdict(kind="deny", reason="Interlock could not decide about this call.")
        try:
            verdict = await self._decide(event, seconds, left)
        finally:
            if not answered.done():
                answered.set_result(verdict)
        return verdict

    async def confirm(self, event: Confirmed) -> Verdict:
        """Say `ask` about a call that was deferred: where the agent ignores that, this decides."""
        verdict = await self._expect_verdict(event)
        self._verdicts.pop((event.session_id, event.call_id), None)  # the same call may be proposed again
        return Verdict(kind="ask", reason=verdict.reason) if verdict.kind == "defer" else _PASS

    async def _decide(self, event: ToolProposed, seconds: float, left: asyncio.Event) -> Verdict:
        call = self._translate(event)
        session = await self.open(event.session_id)
        name = self._declare(call.tool)
        key = _digest_call(name, call.arguments)
        slot = (event.session_id, event.call_id or key)
        if event.repeats and any(_digest_call(name, one.call.arguments) == key for one in self._list(event.session_id)):
            return Verdict(kind="allow")
        intent = ToolIntent(
            call_id=event.call_id or self._number(session, key), tool_name=name, arguments=call.arguments
        )
        # The same call at the same moment finds what became of the first one: its question, or its permission.
        lock = self._placing.setdefault(key, asyncio.Lock())
        async with lock:
            place = await self._sessions.find(session, intent)
            position = (place.run_id, place.call_id)
            if position in self._external:
                return Verdict(
                    kind="deny", reason="The same call is under way. Wait for its result. Nothing was executed."
                )
            self._external[position] = external = _External()

            async def hold(question: Question) -> None:
                external.asked.set()
                if event.asks == "hold":
                    await _wait(left, min(seconds, self._contract.hold_seconds))

            task = asyncio.create_task(self._sessions.call(session, intent, waits=hold, place=place))
            task.add_done_callback(lambda _: self._external.pop(position, None))
            asking = asyncio.create_task(external.asked.wait())
            await asyncio.wait([task, external.permitted, asking], return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
        await asyncio.wait([task, external.permitted], return_when=asyncio.FIRST_COMPLETED)
        if not external.permitted.done():
            return self._refuse(await task, event)
        await self._gate.flush(place.run_id)
        running = _Running(place, call, external, task)
        arguments = external.permitted.result()
        edited = None if arguments == call.arguments else call.restore(arguments)
        if arguments != call.arguments and (edited is None or not self._contract.takes_input):
            problem = f"A person changed the arguments, and {self._contract.client} cannot execute others"
            await running.end(PreconditionError(CheckProblem(message=problem)))
            return Verdict(kind="deny", reason=f"{problem}. Propose this instead: {encode_sorted(arguments).decode()}")
        if left.is_set():
            await running.end(PreconditionError(CheckProblem(message=_LEFT)))
            return Verdict(kind="deny", reason=f"{_LEFT}.")
        self._running[slot].append(running)
        return Verdict(kind="allow", input=edited)

    def _refuse(self, settled: Settled, event: ToolProposed) -> Verdict:
        question = settled.question
        if question is None:
            return Verdict(kind="deny", reason=_describe_refusal(settled))
        if event.asks == "defer":
            return Verdict(kind="defer", reason=describe_pending(question))
        if event.can_ask and question.approver == "client" and not question.needs_person:
            return Verdict(kind="ask", reason=question.prompt)
        return Verdict(kind="deny", reason=describe_pending(question))

    async def permission(self, event: PermissionAsked) -> Verdict:
        """Say `allow` where a person approved the call that the agent is about to ask its user about."""
        for running in self._find(event, take=False):
            ledger = (await load_run(self._gate.log, running.place.run_id)).ledger
            answers = [
                action.answer for action in ledger.actions.values() if action.question.call_id == running.place.call_id
            ]
            if any(answer is not None and answer.approved for answer in answers):
                return Verdict(kind="allow")
        return _PASS

    async def report(self, event: ToolReported) -> Verdict:
        """Record what came of a call."""
        found = self._find(event, take=True)
        if not found:
            await self._report_other(event)
        elif event.refused:
            problem = f"{self._contract.client} did not execute it: {_as_text(event.response)}"
            await found[0].end(PreconditionError(CheckProblem(message=problem)))
        else:
            await found[0].end(*_outcome_of(event))
        return _PASS

    async def _report_other(self, event: ToolReported) -> None:
        """Record what came of a call that was permitted before this process began, or by the person at the agent."""
        session = await self.open(event.session_id)
        call = self._translate(event)
        name = self._declare(call.tool)
        ledger = (await load_run(self._gate.log, session.run_id)).ledger
        call_id = event.call_id or _find_left(ledger, _digest_call(name, call.arguments))
        intent = ToolIntent(call_id=call_id, tool_name=name, arguments=call.arguments)
        place = CallLocation(session.run_id, call_id)
        if call_id not in ledger.calls:
            place = await self._sessions.find(session, intent)
            ledger = (await load_run(self._gate.log, place.run_id)).ledger
        entry = ledger.calls.get(place.call_id)
        if entry is None or event.refused:
            return
        action = ledger.actions.get(entry.action_id)
        if action is not None and action.is_open:
            await self._report_claimed(event, session, intent, place, action.question)
        elif _is_left(entry):
            token = _REPORTED.set(event.ok)
            try:
                await self._sessions.call(session, intent, place=msgspec.structs.replace(place, attached=True))
            finally:
                _REPORTED.reset(token)

    async def _report_claimed(
        self, event: ToolReported, session: Session, intent: ToolIntent, place: CallLocation, question: Question
    ) -> None:
        """Record that the agent executed a call which its own user approved, by its word."""
        client = self._contract.client
        if question.approver != "client" or question.needs_person:
            raise ConfigurationError(
                f"{client} executed a call that waits for approval ({question.action_id}). Its hooks were not followed."
            )
        by = f"user of {client}"
        await self._gate.inbox.approve(question, by=by, channel="hook", assurance="claimed")
        position = (place.run_id, place.call_id)
        self._external[position] = external = _External()
        error, value = _outcome_of(event)
        if error is None:
            external.outcome.set_result(value)
        else:
            external.outcome.set_exception(error)
        try:
            await self._sessions.call(session, intent, place=place)
        finally:
            self._external.pop(position, None)

    async def open(self, session_id: str) -> Session:
        """Return the session of an agent, and its run."""
        async with self._opening[session_id]:
            session = self._open.get(session_id)
            if session is None:
                session = await self._sessions.open(
                    requester=self._requester,
                    client=self._contract.client,
                    session_id=session_id,
                    framework=_FRAMEWORK,
                )
                self._open[session_id] = session
                self._forget_sessions()
                for call_id in (await load_run(self._gate.log, session.run_id)).ledger.calls:
                    key, _, number = call_id.rpartition("-")
                    if number.isdecimal():
                        self._counts[f"{session.run_id} {key}"] = int(number)
            return session

    async def begin(self, session_id: str) -> None:
        """Begin a session, or one that continues: its run may be a new one."""
        self._open.pop(session_id, None)
        await self.open(session_id)

    async def end(self, session_id: str) -> None:
        """End a session. What has no reported outcome now has an unknown one."""
        session = await self.open(session_id)
        for slot in [slot for slot in self._running if slot[0] == session_id]:
            for running in self._running.pop(slot):
                message = f"The session ended, and {self._contract.client} did not say what came of it."
                await running.end(CallFailedError("outcome_unknown", message))
        ledger = (await load_run(self._gate.log, session.run_id)).ledger
        for call_id in ledger.open_calls():
            if _is_left(ledger.calls[call_id]):
                await self._sessions.call(
                    session,
                    await self._read_intent(session, call_id, ledger),
                    place=CallLocation(session.run_id, call_id, attached=True),
                )
        await self._sessions.end(session)
        self._open.pop(session_id, None)

    async def _read_intent(self, session: Session, call_id: str, ledger: Ledger) -> ToolIntent:
        (entry,) = await self._gate.log.read(session.run_id, ledger.calls[call_id].proposed_seq - 1, 1)
        fact = decode_event(entry).fact
        arguments: Any = fact.raw_input if isinstance(fact, CallProposed) else {}
        return ToolIntent(call_id=call_id, tool_name=ledger.calls[call_id].tool, arguments=arguments)

    def _forget_sessions(self) -> None:
        while len(self._open) > _MAX_REMEMBERED:
            session_id, _ = self._open.popitem(last=False)
            self._opening.pop(session_id, None)

    def _expect_verdict(self, event: ToolEvent) -> "asyncio.Future[Verdict]":
        slot = (event.session_id, event.call_id)
        found = self._verdicts.get(slot)
        if found is None or (found.done() and isinstance(event, ToolProposed)):
            found = self._verdicts[slot] = asyncio.get_running_loop().create_future()
            if len(self._verdicts) > _MAX_REMEMBERED:
                self._verdicts.popitem(last=False)
        return found

    def _list(self, session_id: str) -> list[_Running]:
        return [one for slot, found in self._running.items() if slot[0] == session_id for one in found]

    def _find(self, event: ToolEvent, *, take: bool) -> list[_Running]:
        """Return the call that an event is about, if it runs."""
        call = self._translate(event)
        slot = (event.session_id, event.call_id or _digest_call(self._declare(call.tool), call.arguments))
        if not event.call_id and slot not in self._running:
            same = [one for one in self._list(event.session_id) if one.call.arguments == call.arguments]
            if not take:
                return same
            slot = next((slot for slot, found in self._running.items() if same and same[0] in found), slot)
        found = self._running.get(slot, [])
        if not found or not take:
            return found
        taken = found.pop(0)
        if not found:
            del self._running[slot]
        return [taken]

    def _translate(self, event: ToolEvent) -> TranslatedCall:
        return translate(self._contract.client, event, self._gate.workspace)

    def _number(self, session: Session, key: str) -> str:
        name = f"{session.run_id} {key}"
        self._counts[name] = number = self._counts.get(name, 0) + 1
        return f"{key}-{number}"

    def _declare(self, tool: ForeignTool) -> str:
        """Declare a tool, and return its name. Another one with the same name gets a name that says so."""
        known = self._declared.get(tool.name)
        identity = msgspec.structs.replace(tool, fields={}, add=None)
        name = tool.name
        if known is not None and known != identity:
            name = f"{tool.name[:48]}_{sha256(encode_sorted(identity)).hexdigest()[:8]}"
        if name not in self._declared:
            self._declared[name] = msgspec.structs.replace(identity, name=tool.name)
            self._gate.tools(self._make_tool(name, tool))
        return name

    def _make_tool(self, name: str, tool: ForeignTool) -> ToolDefinition:
        client = self._contract.client

        def reach(arguments: JsonObject, situation: CallContext) -> SandboxScope:
            folder = arguments.get("cwd")
            cwd = folder if isinstance(folder, str) and folder else situation.workspace
            return SandboxScope(sandbox="external", profile=client, cwd=cwd)

        def authorize(arguments: JsonObject, situation: CallContext) -> Decision | None:
            event = example_event(
                name, arguments, situation, risk=tool.risk, resources=tool.resources, origin=tool.origin
            )
            decision = self._protected.evaluate(event)
            return decision if decision.verdict is PolicyVerdict.DENY else None

        return tool_from_schema(
            name,
            f"{tool.name} of {client}",
            _ANY,
            self._execute,
            risk=tool.risk,
            resources=tool.resources,
            origin=tool.origin,
            source=tool.source or client,
            concurrency="safe",
            timeout_seconds=_TIMEOUT_SECONDS,
            reach=reach,
            authorize=authorize,
            reconcile=_was_reported,
        )

    async def _execute(self, arguments: JsonObject, context: ToolContext) -> Any:
        """Permit a call, and wait for what the agent reports."""
        external = self._external.get((context.run_id, context.call_id))
        if external is None:
            message = f"{self._contract.client} did not say what came of {context.tool_name}."
            raise CallFailedError("outcome_unknown", message)
        external.permitted.set_result(arguments)
        return await external.outcome


def describe_pending(question: Question) -> str:
    """Return what the model reads about a call that waits for a person."""
    return (
        f"PENDING: this call waits for a person's approval. Nothing was executed. Action {question.action_id}, "
        f"payload {question.payload_hash}. A person answers with `interlock approvals approve {question.action_id}`, "
        "or in the console. Do not try it in another way. Stop, and make exactly the same call again when it is "
        "approved: then it runs once."
    )


def _describe_refusal(settled: Settled) -> str:
    """Return what the model reads about a call that may not run now."""
    failure = None if settled.observation is None else settled.observation.failure
    if failure is None:
        return f"This call ran before, and does not run again. {settled.text}"
    advice = failure.details.get("advice")
    return f"{failure.message} {advice}" if isinstance(advice, str) and advice else failure.message


def _was_reported(arguments: JsonObject) -> bool | None:
    return True if _REPORTED.get() else None


def _outcome_of(event: ToolReported) -> tuple[Exception | None, Any]:
    return (None, event.response) if event.ok else (AgentToolError(_as_text(event.response)), None)


def _find_left(ledger: Ledger, prefix: str) -> str:
    """Return the call without a recorded end whose id begins so; empty when there is none."""
    return next((each for each in ledger.open_calls() if each.startswith(prefix) and _is_left(ledger.calls[each])), "")


def _is_left(entry: CallEntry) -> bool:
    """Return True for a call that started and has no recorded end."""
    return entry.is_outcome_unknown and entry.state not in (CallState.OBSERVED, CallState.ENDED)


def _digest_call(name: str, arguments: JsonObject) -> str:
    return f"{name}-{sha256(encode_sorted((name, arguments))).hexdigest()[:16]}"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode_sorted(value).decode()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
