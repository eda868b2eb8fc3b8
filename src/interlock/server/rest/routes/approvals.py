"""The inbox: what waits for people, and what they answer. The first answer stands."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from ...core.identity.permissions import Operation
from ...core.index.rows import ActionQuery
from ...core.runs.approvals import Approval
from ...core.service import Service
from ..body import body, takes
from ..caller import Caller, Served, caller
from ..encoding import answer, answers
from ..errors import FieldProblem, invalid
from ..schemas.requests import ApproveWish, ProvideWish, RefuseWish, RejectWish
from ..schemas.runs import ActionList, ActionShape, ActionStatus, DecidedShape, QuestionShape
from ..times import nanoseconds
from .runs import Limited

router = APIRouter(tags=["decisions"])

_Looking = Annotated[Caller, caller(Operation.LIST_QUESTIONS)]
_Reading = Annotated[Caller, caller(Operation.READ_QUESTION)]
_Deciding = Annotated[Caller, caller(Operation.DECIDE)]
_Answering = Annotated[Caller, caller(Operation.ANSWER)]


class QuestionFilters(Limited):
    status: list[ActionStatus] | None = Field(None, max_length=6, description="Default: PENDING.")
    agent: str | None = Field(None, max_length=256)
    run_id: str | None = Field(None, max_length=256)


@router.get("/approvals", operation_id="listApprovals", **answers(ActionList))
async def list_approvals(by: _Looking, service: Served, filters: Annotated[QuestionFilters, Query()]) -> Response:
    """What waits for a yes or a no, oldest first."""
    return await _listed(by, service, filters, "approval")


@router.get("/approvals/{action_id}", operation_id="getApproval", **answers(QuestionShape))
async def get_approval(action_id: str, by: _Reading, service: Served) -> Response:
    """A question with everything that the answer is bound to, and whether you may give it."""
    return answer(QuestionShape.of(await service.reading.question(by.who, action_id)))


@router.post("/approvals/{action_id}/approve", operation_id="approve", **answers(DecidedShape), **takes(ApproveWish))
async def approve(
    action_id: str, by: _Deciding, service: Served, wish: Annotated[ApproveWish, body(ApproveWish)]
) -> Response:
    """Let exactly what has this hash run. The run goes on by itself."""
    approval = Approval(
        payload_hash=wish.payload_hash,
        reason=wish.reason,
        scope=wish.scope,
        until=_until(wish.until),
        rule=wish.rule,
        arguments=wish.arguments,
    )
    return answer(DecidedShape.of(await service.deciding.approve(by.who, action_id, approval)))


@router.post("/approvals/{action_id}/reject", operation_id="reject", **answers(DecidedShape), **takes(RejectWish))
async def reject(
    action_id: str, by: _Deciding, service: Served, wish: Annotated[RejectWish, body(RejectWish)]
) -> Response:
    """Say no. What that does to the run is the agent's to say; by default it fails."""
    decided = await service.deciding.reject(by.who, action_id, wish.reason, wish.payload_hash)
    return answer(DecidedShape.of(decided))


@router.get("/inputs", operation_id="listInputs", **answers(ActionList))
async def list_inputs(by: _Looking, service: Served, filters: Annotated[QuestionFilters, Query()]) -> Response:
    """What waits for a value, oldest first."""
    return await _listed(by, service, filters, "input")


@router.get("/inputs/{action_id}", operation_id="getInput", **answers(QuestionShape))
async def get_input(action_id: str, by: _Reading, service: Served) -> Response:
    return answer(QuestionShape.of(await service.reading.question(by.who, action_id)))


@router.post("/inputs/{action_id}/provide", operation_id="provide", **answers(DecidedShape), **takes(ProvideWish))
async def provide(
    action_id: str, by: _Answering, service: Served, wish: Annotated[ProvideWish, body(ProvideWish)]
) -> Response:
    """Give the value that was asked for. The run goes on by itself."""
    return answer(DecidedShape.of(await service.deciding.provide(by.who, action_id, wish.value, wish.payload_hash)))


@router.post(
    "/inputs/{action_id}/refuse", operation_id="refuse", **answers(DecidedShape), **takes(RefuseWish, required=False)
)
async def refuse(
    action_id: str, by: _Answering, service: Served, wish: Annotated[RefuseWish, body(RefuseWish)]
) -> Response:
    return answer(DecidedShape.of(await service.deciding.refuse(by.who, action_id, wish.reason)))


async def _listed(by: Caller, service: Service, filters: QuestionFilters, kind: str) -> Response:
    page = await service.reading.questions(
        by.who,
        ActionQuery(
            statuses=frozenset(filters.status or ("PENDING",)),
            kinds=frozenset((kind,)),
            agent=filters.agent,
            run_id=filters.run_id,
            limit=filters.limit,
            cursor=filters.cursor,
        ),
    )
    return answer(ActionList(actions=list(map(ActionShape.of, page.rows)), next_cursor=page.next_cursor))


def _until(text: str | None) -> int:
    return 0 if text is None else read_time("until", text)


def read_time(field: str, text: str) -> int:
    """In nanoseconds since 1970."""
    try:
        return nanoseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError) as error:
        raise invalid(FieldProblem(field=field, problem=f"is no time like 2030-01-31T12:00:00Z: {error}")) from None
