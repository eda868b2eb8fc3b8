"""Live events: of one run until it is over, or of all runs that somebody may see."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ....domain.event import RUN_ENDS
from ....history.run_view import run_events
from ...core.identity.permissions import Operation, may, visible
from ...core.index.rows import RunRow
from ...core.live.event import LiveEvent
from ..caller import Caller, Served, caller
from ..encoding import answers
from ..errors import FieldProblem, invalid
from ..schemas.runs import EventShape, StoredEvent
from ..streams import HEARTBEAT_SECONDS, MEDIA_TYPE, Follow, event_stream, message

router = APIRouter(tags=["live"])

_MAX_PLACE = 2**53 - 1
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id`, `event`, `data` (JSON). The last one is `end`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
_LastId = Annotated[
    str, Header(alias="Last-Event-ID", max_length=20, description="Where a reader that comes back goes on.")
]
_View = Literal["run", "log"]


class RunStreamFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after_seq: int = Field(-1, ge=-1, le=_MAX_PLACE)
    view: _View = "run"


class AllStreamFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(None, ge=0, le=_MAX_PLACE, description="A position; else what comes from now on.")
    view: _View = "run"


@router.get("/runs/{run_id}/events/stream", operation_id="streamRun", **answers(None, more=_STREAM))
async def stream_run(
    run_id: str,
    by: Annotated[Caller, caller(Operation.READ_RUN)],
    service: Served,
    filters: Annotated[RunStreamFilters, Query()],
    last_event_id: _LastId = "",
) -> Response:
    """The events of a run after one of them, then as they come, until the run is over."""
    row = await service.reading.run(by.who, run_id)
    place = _place(last_event_id)
    after = filters.after_seq if place is None else place
    show = _SHOWN[filters.view]
    is_told = row.is_over and row.last_seq <= after

    async def over(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
        ended = is_told or any(told.event is not None and isinstance(told.event.fact, RUN_ENDS) for told in page)
        return _ended(await service.index.run(run_id)) if ended else None

    async def allowed() -> bool:
        who = await by.again()
        return who is not None and may(who, Operation.READ_RUN, row)

    return await event_stream(
        Follow(
            reader=service.hub.reader(run_id, after, owner=by.who.name),
            show=lambda told: told.once(f"run:{filters.view}", lambda one: show(one, one.entry.seq)),
            over=over,
            allowed=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
    )


@router.get("/events/stream", operation_id="streamAll", **answers(None, more=_STREAM))
async def stream_all(
    by: Annotated[Caller, caller(Operation.LIST_RUNS)],
    service: Served,
    filters: Annotated[AllStreamFilters, Query()],
    last_event_id: _LastId = "",
) -> Response:
    """The events of all runs that you may see, as they come."""
    seen = visible(by.who)
    place = _place(last_event_id)
    after = filters.after if place is None else place
    show = _SHOWN[filters.view]

    async def allowed() -> bool:
        who = await by.again()
        return who is not None and visible(who) == seen and may(who, Operation.LIST_RUNS)

    return await event_stream(
        Follow(
            reader=service.hub.reader(None, after, agents=seen.agents, person=seen.person, owner=by.who.name),
            show=lambda told: told.once(f"all:{filters.view}", lambda one: show(one, one.position)),
            over=_never,
            allowed=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
    )


def _as_run_events(told: LiveEvent, place: int) -> bytes:
    if told.event is None:
        return b""
    shown = (EventShape.of(told.entry.run_id, event) for event in run_events(told.event))
    return b"".join(message(event.type, event, place) for event in shown)


def _as_stored(told: LiveEvent, place: int) -> bytes:
    name = "unreadable" if told.event is None else told.event.type
    return message(name, StoredEvent.of(told.entry), place)


_SHOWN = {"run": _as_run_events, "log": _as_stored}


async def _never(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
    return None


def _ended(row: RunRow | None) -> dict[str, Any]:
    return {"reason": "run_over"} | ({} if row is None else {"status": row.status, "message": row.message})


def _place(last_event_id: str) -> int | None:
    if not last_event_id:
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= _MAX_PLACE):
        raise invalid(FieldProblem(field="Last-Event-ID", problem="is none that this stream has given out"))
    return int(last_event_id)
