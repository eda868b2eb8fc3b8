"""Runs: create, list, show, cancel; and the agents that can be run."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...core.identity.permissions import Operation
from ...core.index.rows import RunQuery
from ...core.runs.agent_stop import AgentStopResult
from ...core.runs.run_service import NewRun
from ..body import declare_body, json_body
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses, describe_response, json_response
from ..schemas.requests import CancelRunRequest, CreateRunRequest, InvokeAgentRequest, StopAgentRequest
from ..schemas.runs import AgentList, AgentResponse, OverviewResponse, RunList, RunResponse, RunStatus

router = APIRouter(tags=["runs"])

_IdempotencyKey = Annotated[
    str,
    Header(alias="Idempotency-Key", max_length=200, description="Sent again, it is the same run and not another one."),
]
_TextFilter = Annotated[str | None, Field(max_length=256)]
_EXISTING_RUN_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: describe_response(RunResponse, "It was made before, with the same key.")
}


class PageFilters(BaseModel):
    """What every list can be asked for."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=1_000)
    cursor: str = Field("", max_length=64, description="`next_cursor` of the page before.")


class RunFilters(PageFilters):
    """Filters of runs."""

    status: list[RunStatus] | None = Field(None, max_length=5)
    agent: _TextFilter = None
    requester: _TextFilter = None
    parent: _TextFilter = Field(None, description="Runs inside calls of this run.")
    q: str | None = Field(None, max_length=200, description="Words in the task or the id.")


class ActivityFilters(BaseModel):
    """The limit of recent activity."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=1_000)


@router.get("/agents", operation_id="listAgents", **declare_responses(AgentList))
async def list_agents(
    caller: Annotated[Caller, require_permission(Operation.LIST_RUNS)], service: ServiceDep
) -> Response:
    """List the agents whose runs you may see."""
    return json_response(
        AgentList(agents=list(map(AgentResponse.from_domain, await service.run_queries.list_agents(caller.principal))))
    )


@router.post(
    "/runs",
    operation_id="createRun",
    **declare_responses(RunResponse, status=201, extra=_EXISTING_RUN_RESPONSE),
    **declare_body(CreateRunRequest),
)
async def create_run(
    caller: Annotated[Caller, require_permission(Operation.CREATE_RUN)],
    service: ServiceDep,
    body: Annotated[CreateRunRequest, json_body(CreateRunRequest)],
    idempotency_key: _IdempotencyKey = "",
) -> Response:
    """Create a run. It runs in the background; follow its events, or poll its status."""
    return await _create_run(caller, service, body.agent, body, idempotency_key)


@router.post(
    "/agents/{agent}/invoke",
    operation_id="invokeAgent",
    **declare_responses(RunResponse, status=201, extra=_EXISTING_RUN_RESPONSE),
    **declare_body(InvokeAgentRequest),
)
async def invoke_agent(
    agent: str,
    caller: Annotated[Caller, require_permission(Operation.CREATE_RUN)],
    service: ServiceDep,
    body: Annotated[InvokeAgentRequest, json_body(InvokeAgentRequest)],
    idempotency_key: _IdempotencyKey = "",
) -> Response:
    """Create a run of this agent."""
    return await _create_run(caller, service, agent, body, idempotency_key)


@router.get("/runs", operation_id="listRuns", **declare_responses(RunList))
async def list_runs(
    caller: Annotated[Caller, require_permission(Operation.LIST_RUNS)],
    service: ServiceDep,
    filters: Annotated[RunFilters, Query()],
) -> Response:
    """List runs, newest first. Child runs are excluded, unless `parent` asks for them."""
    page = await service.run_queries.list_runs(
        caller.principal,
        RunQuery(
            statuses=frozenset(filters.status) if filters.status else None,
            agent=filters.agent,
            requester=filters.requester,
            parent_run_id=filters.parent,
            text=filters.q,
            limit=filters.limit,
            cursor=filters.cursor,
        ),
    )
    return json_response(RunList(runs=list(map(RunResponse.from_domain, page.rows)), next_cursor=page.next_cursor))


@router.get("/runs/{run_id}", operation_id="getRun", **declare_responses(RunResponse))
async def get_run(
    run_id: str, caller: Annotated[Caller, require_permission(Operation.READ_RUN)], service: ServiceDep
) -> Response:
    """Return a run with its status and its times."""
    return json_response(RunResponse.from_domain(await service.run_queries.get_run(caller.principal, run_id)))


@router.post(
    "/runs/{run_id}/cancel",
    operation_id="cancelRun",
    **declare_responses(RunResponse),
    **declare_body(CancelRunRequest, required=False),
)
async def cancel_run(
    run_id: str,
    caller: Annotated[Caller, require_permission(Operation.CANCEL_RUN)],
    service: ServiceDep,
    body: Annotated[CancelRunRequest, json_body(CancelRunRequest)],
) -> Response:
    """Cancel the run and its child runs. Cancelling it again is fine."""
    return json_response(
        RunResponse.from_domain(await service.run_service.cancel(caller.principal, run_id, body.reason))
    )


@router.post(
    "/agents/{agent}/stop",
    operation_id="stopAgent",
    **declare_responses(AgentStopResult),
    **declare_body(StopAgentRequest),
)
async def stop_agent(
    agent: str,
    caller: Annotated[Caller, require_permission(Operation.STOP_AGENT)],
    service: ServiceDep,
    body: Annotated[StopAgentRequest, json_body(StopAgentRequest)],
) -> Response:
    """Cancel all runs of the agent at once. To prevent new ones, revoke its keys first."""
    return json_response(await service.run_service.stop_agent(caller.principal, agent, body.reason))


@router.get("/activity", operation_id="getActivity", **declare_responses(OverviewResponse))
async def get_activity(
    caller: Annotated[Caller, require_permission(Operation.LIST_RUNS)],
    service: ServiceDep,
    filters: Annotated[ActivityFilters, Query()],
) -> Response:
    """Return the recent activity of all runs that you may see, and counts of runs and open questions."""
    return json_response(
        OverviewResponse.from_domain(await service.run_queries.get_overview(caller.principal, filters.limit))
    )


async def _create_run(caller: Caller, service: ServiceDep, agent: str, body: InvokeAgentRequest, key: str) -> Response:
    new = NewRun(agent=agent, task=body.task, on_behalf_of=body.on_behalf_of, idempotency_key=key)
    row, is_new = await service.run_service.create(caller.principal, new)
    return json_response(RunResponse.from_domain(row), 201 if is_new else 200, {"Location": f"/runs/{row.run_id}"})
