"""Runs: create, list, show, cancel; and the agents that can be run."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from ....rendering.run_states import DisplayState, RunKind
from ...core.identity.permissions import Operation
from ...core.index.rows import Page, RunOrder, RunQuery, RunRow
from ...core.runs.agent_stop import AgentStopResult
from ...core.runs.queries import Overview
from ...core.runs.run_service import NewRun
from ...core.runs.undo_service import UndoPreview, UndoResult, UndoSelection
from ..body import RequestModel, parse_time
from ..caller import Call
from ..responses import build_response, json_response
from ..routing import API_PREFIX, Header, Routes
from ..schemas.requests import (
    CancelRunRequest,
    CreateRunRequest,
    InvokeAgentRequest,
    SendMessageRequest,
    StopAgentRequest,
    UndoRunRequest,
)
from ..schemas.runs import AgentList, MessageResponse, OverviewResponse, RunList, RunResponse, RunStatus

route = Routes("runs")

_IdempotencyKey = Annotated[
    str,
    Header("Idempotency-Key"),
    Meta(max_length=200, description="A request with the same key again has the same result."),
]
TextFilter = Annotated[str, Meta(max_length=256)] | None
_Limit = Annotated[int, Meta(ge=1, le=1_000)]
_EXISTING_RUN_RESPONSE = {200: {"description": "The run that was created before with the same key."}}


class PageFilters(RequestModel, frozen=True, kw_only=True):
    """What every list can be asked for."""

    limit: _Limit = 50
    cursor: Annotated[str, Meta(max_length=64, description="`next_cursor` of the page before.")] = ""


class RunFilters(PageFilters, frozen=True, kw_only=True):
    """Filters of runs."""

    status: Annotated[list[RunStatus], Meta(max_length=5)] | None = None
    agent: TextFilter = None
    requester: TextFilter = None
    kind: Annotated[RunKind, Meta(description="Runs of agents, or sessions of clients.")] | None = None
    parent: Annotated[TextFilter, Meta(description="Only child runs of this run.")] = None
    q: Annotated[str, Meta(max_length=200, description="Words in the task, the id or questions.")] | None = None
    state: Annotated[list[DisplayState], Meta(max_length=13, description="Finer than the status.")] | None = None
    created_since: Annotated[TextFilter, Meta(description="Started at this time or later.")] = None
    created_before: Annotated[TextFilter, Meta(description="Started before this time.")] = None
    sort: Annotated[RunOrder, Meta(description="All but `oldest` begin with the highest value.")] = RunOrder.NEWEST


class UndoFilters(RequestModel, frozen=True, kw_only=True):
    """What to undo. Default: everything that the run changed."""

    call: Annotated[str, Meta(max_length=1_000, description="Only what this call changed.")] = ""
    after: Annotated[int, Meta(ge=-1, le=2**53 - 1, description="Only what was changed after this event.")] | None = (
        None
    )


class ActivityFilters(RequestModel, frozen=True, kw_only=True):
    """The limit of recent activity."""

    limit: _Limit = 50


@route("GET", "/agents", Operation.LIST_RUNS, AgentList)
async def list_agents(call: Call) -> dict[str, Sequence[Any]]:
    """List the agents whose runs you may see."""
    return {"agents": await call.service.run_queries.list_agents(call.principal)}


@route("POST", "/runs", Operation.CREATE_RUN, RunResponse, status=201, responses=_EXISTING_RUN_RESPONSE)
async def create_run(call: Call, body: CreateRunRequest, idempotency_key: _IdempotencyKey = "") -> Response:
    """Create a run. It runs in the background; follow its events, or poll its status."""
    return await _create_run(call, body.agent, body, idempotency_key)


@route(
    "POST", "/agents/{agent}/invoke", Operation.CREATE_RUN, RunResponse, status=201, responses=_EXISTING_RUN_RESPONSE
)
async def invoke_agent(
    call: Call, agent: str, body: InvokeAgentRequest, idempotency_key: _IdempotencyKey = ""
) -> Response:
    """Create a run of this agent."""
    return await _create_run(call, agent, body, idempotency_key)


@route("GET", "/runs", Operation.LIST_RUNS, RunList, alias="/runs")
async def list_runs(call: Call, query: RunFilters) -> Page[RunRow]:
    """List runs, by default newest first. Child runs are excluded, unless `parent` asks for them."""
    return await call.service.run_queries.list_runs(
        call.principal,
        RunQuery(
            statuses=frozenset(query.status) if query.status else None,
            agent=query.agent,
            requester=query.requester,
            kind=query.kind,
            parent_run_id=query.parent,
            text=query.q,
            states=frozenset(query.state) if query.state else None,
            started_since=None if query.created_since is None else parse_time("created_since", query.created_since),
            started_before=(
                None if query.created_before is None else parse_time("created_before", query.created_before)
            ),
            order=query.sort,
            limit=query.limit,
            cursor=query.cursor,
        ),
    )


@route("GET", "/runs/{run_id}", Operation.READ_RUN, RunResponse, alias="/runs/{run_id}")
async def get_run(call: Call, run_id: str) -> RunRow:
    """Return a run with its status and its times."""
    return await call.service.run_queries.get_run(call.principal, run_id)


@route("POST", "/runs/{run_id}/cancel", Operation.CANCEL_RUN, RunResponse)
async def cancel_run(call: Call, run_id: str, body: CancelRunRequest) -> RunRow:
    """Cancel the run and its child runs. Cancelling it again is fine."""
    return await call.service.run_service.cancel(call.principal, run_id, body.reason)


@route(
    "POST",
    "/runs/{run_id}/messages",
    Operation.SEND_MESSAGE,
    MessageResponse,
    status=201,
    responses={200: {"description": "The message that was sent before with the same key."}},
)
async def send_message(
    call: Call, run_id: str, body: SendMessageRequest, idempotency_key: _IdempotencyKey = ""
) -> Response:
    """Send the next message to a run that was created with `chat`. 409 while it is not your turn."""
    seq, is_new = await call.service.run_service.send_message(call.principal, run_id, body.text, idempotency_key)
    return json_response(MessageResponse(run_id=run_id, seq=seq), 201 if is_new else 200)


@route("GET", "/runs/{run_id}/undo", Operation.UNDO_RUN, UndoPreview)
async def preview_undo(call: Call, run_id: str, query: UndoFilters) -> UndoPreview:
    """Return what undoing the run's changes of its workspace would do, and change nothing."""
    selection = UndoSelection(call=query.call, after=query.after)
    return await call.service.undo_service.preview(call.principal, run_id, selection)


@route("POST", "/runs/{run_id}/undo", Operation.UNDO_RUN, UndoResult)
async def undo_run(call: Call, run_id: str, body: UndoRunRequest) -> UndoResult:
    """Undo exactly what the preview with this digest showed. Otherwise 409, with the new preview in `details`."""
    selection = UndoSelection(call=body.call, after=body.after)
    return await call.service.undo_service.undo(call.principal, run_id, selection, body.digest, call.channel)


@route("POST", "/agents/{agent}/stop", Operation.STOP_AGENT, AgentStopResult)
async def stop_agent(call: Call, agent: str, body: StopAgentRequest) -> AgentStopResult:
    """Cancel all runs of the agent at once. New ones are still possible: to refuse them, switch it off."""
    return await call.service.run_service.stop_agent(call.principal, agent, body.reason)


@route("GET", "/activity", Operation.LIST_RUNS, OverviewResponse)
async def get_activity(call: Call, query: ActivityFilters) -> Overview:
    """Return the recent activity of all runs that you may see, and counts of runs and open questions."""
    return await call.service.run_queries.get_overview(call.principal, query.limit)


async def _create_run(call: Call, agent: str, body: InvokeAgentRequest, key: str) -> Response:
    new = NewRun(agent=agent, task=body.task, on_behalf_of=body.on_behalf_of, idempotency_key=key, is_chat=body.chat)
    row, is_new = await call.service.run_service.create(call.principal, new)
    headers = {"Location": f"{API_PREFIX}/runs/{row.run_id}"}
    return json_response(build_response(RunResponse, row), 201 if is_new else 200, headers)
