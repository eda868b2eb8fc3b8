"""The way of a question to a person, for one call of an MCP client.

1. Where the answer of the client counts, its user is asked there: with `elicitation/create`, or at protocol versions
   without requests of servers by `input_required`, which the client answers with its next request. Only the choice of
   `approve` approves; that a form was sent, declined or closed says nothing, and the question stays open.
2. The call is held for a while. An answer from anywhere, such as the console, ends that at once, and the call runs.
3. The client gets `PENDING`. The question stays open, and the same call again continues here.
"""

import asyncio
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...domain.call import Answer, Question
from ...domain.errors import AnswerRefusedError, DecisionConflictError, RunEndedError
from ...domain.json import encode
from ...gate.gate import Gate
from ...rendering.text import shorten
from .clients import Caller, Context

#: `off`: clients are not asked. `claim`: where a rule says `approver: client`. `trusted`: what their users answer
#: counts like a person's answer elsewhere.
ElicitMode: TypeAlias = Literal["off", "claim", "trusted"]

APPROVAL_META = "dev.interlock/approval"
_INPUT_KEY = "approval"
_PROGRESS_SECONDS = 10.0
#: How long a recorded answer may take to reach the call that waits for it.
_APPLY_SECONDS = 10.0
_MAX_ARGUMENT_CHARS = 1_500
_HASH_CHARS = 19
#: Nothing is chosen when the form opens: Enter alone does not approve.
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "title": "Decision", "enum": ["deny", "approve"]}},
    "required": ["decision"],
}


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How questions reach people."""

    hold_seconds: float = 50.0
    elicit: ElicitMode = "claim"
    #: The console, where people answer. Empty: it is not known.
    url: str = ""


class ApprovalState(msgspec.Struct, frozen=True, tag="approval"):
    """What a sealed request state says: the question that a client was asked."""

    run_id: str
    action_id: str
    payload_hash: str


class Asking:
    """Asks about one call."""

    def __init__(self, gate: Gate, options: AskOptions, ctx: Context, caller: Caller, *, ask_client: bool) -> None:
        self._gate = gate
        self._options = options
        self._ctx = ctx
        self._caller = caller
        #: The client was not asked yet.
        self._ask_client = ask_client and _can_ask(ctx)
        #: What the client is asked with its answer to this request.
        self.input_required: types.InputRequiredResult | None = None

    async def hold(self, question: Question) -> None:
        """Ask the client, or hold the call. Return when it comes back with its question."""
        if self._ask_client and self._counts(question):
            self._ask_client = False
            if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                self.input_required = self._require_input(question)
                return
            await self._elicit(question)
        await self._wait(question, self._options.hold_seconds)

    async def take_response(self, asked: ApprovalState, responses: types.InputResponses | None) -> None:
        """Record what the client answered to `input_required`."""
        said = (responses or {}).get(_INPUT_KEY)
        await self._record(asked.run_id, asked.action_id, asked.payload_hash, said)

    def _counts(self, question: Question) -> bool:
        """Return True if an answer of the client would count."""
        if question.kind != "approval" or question.needs_person or self._options.elicit == "off":
            return False
        return self._options.elicit == "trusted" or question.approver == "client"

    def _require_input(self, question: Question) -> types.InputRequiredResult:
        form = types.ElicitRequestFormParams(message=_describe(question), requested_schema=_FORM)
        state = ApprovalState(question.run_id, question.action_id, question.payload_hash)
        return types.InputRequiredResult(
            input_requests={_INPUT_KEY: types.ElicitRequest(params=form)}, request_state=encode(state).decode()
        )

    async def _elicit(self, question: Question) -> None:
        try:
            said = await self._ctx.session.elicit_form(_describe(question), _FORM, self._ctx.request_id)
        except (MCPError, ValueError):
            return  # it cannot be asked after all
        if await self._record(question.run_id, question.action_id, question.payload_hash, said):
            await self._wait(question, _APPLY_SECONDS)

    async def _record(self, run_id: str, action_id: str, payload_hash: str, said: Any) -> bool:
        """Record a decision of the client's user. Return False when there is none, or when it does not count: the
        question stays open.
        """
        if not isinstance(said, types.ElicitResult) or said.action != "accept":
            return False
        decision = (said.content or {}).get("decision")
        if decision not in ("approve", "deny"):
            return False
        answer = Answer(
            approved=decision == "approve",
            by=self._caller.principal,
            reason="" if decision == "approve" else f"Denied in {self._caller.client}.",
            channel="elicitation",
            assurance="proved" if self._options.elicit == "trusted" else "claimed",
        )
        # Another answer may have been first, or the call may have changed: what is recorded then decides.
        with suppress(AnswerRefusedError, DecisionConflictError, RunEndedError):
            await self._gate.inbox.deliver(run_id, action_id, answer, payload_hash)
            return True
        return False

    async def _wait(self, question: Question, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        message = f"Waiting for approval {question.action_id}."
        while (left := began + seconds - loop.time()) > 0:
            await self._ctx.session.report_progress(round(loop.time() - began, 3), None, message)
            await asyncio.sleep(min(left, _PROGRESS_SECONDS))

    def pending(self, question: Question | None) -> types.CallToolResult:
        """Return what the client gets while the question is open. None: the call waits behind another one."""
        if question is None:
            text = "PENDING: the call waits for another one, and was not executed. Make it again later."
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        kind = "approval by a person" if question.kind == "approval" else "an answer of a person"
        text = (
            f"PENDING: {question.tool_name} waits for {kind} ({question.action_id}, payload "
            f"{question.payload_hash[:_HASH_CHARS]}). It was not executed. Do not repeat the call in a loop, and do "
            "not look for another way to do the same. Say that it waits for approval in Interlock, and continue with "
            "something else or stop. After it was approved, make exactly the same call again: then it runs, once."
        )
        meta = {
            "state": "pending",
            "action_id": question.action_id,
            "payload_hash": question.payload_hash,
            "url": f"{self._options.url}/approvals/{question.action_id}" if self._options.url else "",
        }
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True, _meta={APPROVAL_META: meta})


def _can_ask(ctx: Context) -> bool:
    """Return True if the client declares that it can show a form to its user."""
    capabilities = ctx.session.client_capabilities
    declared = None if capabilities is None else capabilities.elicitation
    # Before there were modes, an empty declaration meant forms.
    return declared is not None and (declared.form is not None or declared.url is None)


def _describe(question: Question) -> str:
    arguments = shorten(encode(question.arguments).decode(), _MAX_ARGUMENT_CHARS)
    return f"{question.prompt}\n\n{question.tool_name} {arguments}\nPayload {question.payload_hash[:_HASH_CHARS]}"
