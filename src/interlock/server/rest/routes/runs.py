"""Runs: made, listed, looked at, cancelled; and the agents that make them."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...core.identity.permissions import Operation
from ...core.index.rows import RunQuery
from ...core.runs.starting import NewRun
from ...core.runs.stopping import Stopped
from ..body import body, takes
from ..caller import Caller, Served, caller
from ..encoding import answer, answers, described
from ..schemas.requests import CancelWish, NewRunWish, RunTask, StopWish
from ..schemas.runs import AgentList, AgentShape, OverviewShape, RunList, RunShape, Status

router = APIRouter(tags=["runs"])

_Key = Annotated[
    str,
    Header(alias="Idempotency-Key", max_length=200, description="Sent again, it is the same run and not another one."),
]
_Text = Annotated[str | None, Field(max_length=256)]
_MADE_BEFORE: dict[int | str, dict[str, Any]] = {200: described(RunShape, "It was made before, with the same key.")}


class Limited(BaseModel):
    """What every list can be asked for."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=1_000)
    cursor: str = Field("", max_length=64, description="`next_cursor` of the page before.")


class RunFilters(Limited):
    status: list[Status] | None = Field(None, max_length=5)
    agent: _Text = None
    requester: _Text = None
    parent: _Text = Field(None, description="Runs inside calls of this run.")
    q: str | None = Field(None, max_length=200, description="Words in the task or the id.")


class ActivityFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=1_000)


@router.get("/agents", operation_id="listAgents", **answers(AgentList))
async def list_agents(by: Annotated[Caller, caller(Operation.LIST_RUNS)], service: Served) -> Response:
    """The agents whose runs you may see."""
    return answer(AgentList(agents=list(map(AgentShape.of, await service.reading.agents(by.who)))))


@router.post("/runs", operation_id="createRun", **answers(RunShape, status=201, more=_MADE_BEFORE), **takes(NewRunWish))
async def create_run(
    by: Annotated[Caller, caller(Operation.CREATE_RUN)],
    service: Served,
    wish: Annotated[NewRunWish, body(NewRunWish)],
    idempotency_key: _Key = "",
) -> Response:
    """Begin a run. It goes on by itself; follow its events, or look at its status."""
    return await _created(by, service, wish.agent, wish, idempotency_key)


@router.post(
    "/agents/{agent}/invoke",
    operation_id="invokeAgent",
    **answers(RunShape, status=201, more=_MADE_BEFORE),
    **takes(RunTask),
)
async def invoke_agent(
    agent: str,
    by: Annotated[Caller, caller(Operation.CREATE_RUN)],
    service: Served,
    wish: Annotated[RunTask, body(RunTask)],
    idempotency_key: _Key = "",
) -> Response:
    """Begin a run of this agent."""
    return await _created(by, service, agent, wish, idempotency_key)


@router.get("/runs", operation_id="listRuns", **answers(RunList))
async def list_runs(
    by: Annotated[Caller, caller(Operation.LIST_RUNS)], service: Served, filters: Annotated[RunFilters, Query()]
) -> Response:
    """Newest first. Runs inside calls of others are left out, unless `parent` asks for them."""
    page = await service.reading.runs(
        by.who,
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
    return answer(RunList(runs=list(map(RunShape.of, page.rows)), next_cursor=page.next_cursor))


@router.get("/runs/{run_id}", operation_id="getRun", **answers(RunShape))
async def get_run(run_id: str, by: Annotated[Caller, caller(Operation.READ_RUN)], service: Served) -> Response:
    """A run with its status and its times."""
    return answer(RunShape.of(await service.reading.run(by.who, run_id)))


@router.post(
    "/runs/{run_id}/cancel", operation_id="cancelRun", **answers(RunShape), **takes(CancelWish, required=False)
)
async def cancel_run(
    run_id: str,
    by: Annotated[Caller, caller(Operation.CANCEL_RUN)],
    service: Served,
    wish: Annotated[CancelWish, body(CancelWish)],
) -> Response:
    """End it, and the runs inside its calls. Once more is the same."""
    return answer(RunShape.of(await service.starting.cancel(by.who, run_id, wish.reason)))


@router.post("/agents/{agent}/stop", operation_id="stopAgent", **answers(Stopped), **takes(StopWish))
async def stop_agent(
    agent: str,
    by: Annotated[Caller, caller(Operation.STOP_AGENT)],
    service: Served,
    wish: Annotated[StopWish, body(StopWish)],
) -> Response:
    """End all of its runs at once. To keep it from beginning others, revoke its keys first."""
    return answer(await service.starting.stop(by.who, agent, wish.reason))


@router.get("/activity", operation_id="getActivity", **answers(OverviewShape))
async def get_activity(
    by: Annotated[Caller, caller(Operation.LIST_RUNS)], service: Served, filters: Annotated[ActivityFilters, Query()]
) -> Response:
    """What happened last in all runs that you may see, and how many of them wait for what."""
    return answer(OverviewShape.of(await service.reading.overview(by.who, filters.limit)))


async def _created(by: Caller, service: Served, agent: str, wish: RunTask, key: str) -> Response:
    new = NewRun(agent=agent, task=wish.task, on_behalf_of=wish.on_behalf_of, idempotency_key=key)
    row, is_new = await service.starting.create(by.who, new)
    return answer(RunShape.of(row), 201 if is_new else 200, {"Location": f"/runs/{row.run_id}"})
