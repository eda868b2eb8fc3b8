"""Live events: of one run until it is over, or of all visible runs."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ....domain.event import TERMINAL_EVENTS
from ....history.run_view import to_run_events
from ...core.identity.permissions import Operation, get_visibility, is_allowed
from ...core.index.rows import RunRow
from ...core.live.live_event import LiveEvent
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses
from ..errors import FieldProblem, invalid_request
from ..schemas.runs import EventResponse, StoredEventResponse
from ..streams import HEARTBEAT_SECONDS, MEDIA_TYPE, StreamSource, encode_message, open_event_stream

router = APIRouter(tags=["live"])

_MAX_POSITION = 2**53 - 1
_STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id`, `event`, `data` (JSON). The last one is `end`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
_LastEventId = Annotated[
    str, Header(alias="Last-Event-ID", max_length=20, description="Where a reader that comes back goes on.")
]
_View = Literal["run", "log"]


class RunStreamFilters(BaseModel):
    """Where a stream of one run begins, and its view."""

    model_config = ConfigDict(extra="forbid")

    after_seq: int = Field(-1, ge=-1, le=_MAX_POSITION)
    view: _View = "run"


class AllStreamFilters(BaseModel):
    """Where a stream of all runs begins, and its view."""

    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(None, ge=0, le=_MAX_POSITION, description="A position; else what comes from now on.")
    view: _View = "run"


@router.get("/runs/{run_id}/events/stream", operation_id="streamRun", **declare_responses(None, extra=_STREAM_RESPONSE))
async def stream_run(
    run_id: str,
    caller: Annotated[Caller, require_permission(Operation.READ_RUN)],
    service: ServiceDep,
    filters: Annotated[RunStreamFilters, Query()],
    last_event_id: _LastEventId = "",
) -> Response:
    """Stream the events of a run after one of them, then as they come, until the run is over."""
    row = await service.run_queries.get_run(caller.principal, run_id)
    last_position = _parse_event_id(last_event_id)
    after = filters.after_seq if last_position is None else last_position
    encode = _ENCODERS[filters.view]
    is_finished = row.is_over and row.last_seq <= after

    async def over(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
        has_ended = is_finished or any(
            live.event is not None and isinstance(live.event.fact, TERMINAL_EVENTS) for live in page
        )
        return _build_end_data(await service.index.get_run(run_id)) if has_ended else None

    async def allowed() -> bool:
        principal = await caller.reauthenticate()
        return principal is not None and is_allowed(principal, Operation.READ_RUN, row)

    return await open_event_stream(
        StreamSource(
            reader=service.hub.open_reader(run_id, after, owner=caller.principal.name),
            encode=lambda told: told.render_once(f"run:{filters.view}", lambda one: encode(one, one.entry.seq)),
            find_end=over,
            check_access=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
    )


@router.get("/events/stream", operation_id="streamAll", **declare_responses(None, extra=_STREAM_RESPONSE))
async def stream_all(
    caller: Annotated[Caller, require_permission(Operation.LIST_RUNS)],
    service: ServiceDep,
    filters: Annotated[AllStreamFilters, Query()],
    last_event_id: _LastEventId = "",
) -> Response:
    """Stream the events of all runs that you may see, as they come."""
    visibility = get_visibility(caller.principal)
    last_position = _parse_event_id(last_event_id)
    after = filters.after if last_position is None else last_position
    encode = _ENCODERS[filters.view]

    async def allowed() -> bool:
        principal = await caller.reauthenticate()
        return (
            principal is not None
            and get_visibility(principal) == visibility
            and is_allowed(principal, Operation.LIST_RUNS)
        )

    return await open_event_stream(
        StreamSource(
            reader=service.hub.open_reader(
                None, after, agents=visibility.agents, person=visibility.person, owner=caller.principal.name
            ),
            encode=lambda told: told.render_once(f"all:{filters.view}", lambda one: encode(one, one.position)),
            find_end=_never_end,
            check_access=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
    )


def _encode_run_events(live: LiveEvent, position: int) -> bytes:
    if live.event is None:
        return b""
    events = (EventResponse.from_domain(live.entry.run_id, event) for event in to_run_events(live.event))
    return b"".join(encode_message(event.type, event, position) for event in events)


def _encode_stored_event(live: LiveEvent, position: int) -> bytes:
    name = "unreadable" if live.event is None else live.event.type
    return encode_message(name, StoredEventResponse.from_domain(live.entry), position)


_ENCODERS = {"run": _encode_run_events, "log": _encode_stored_event}


async def _never_end(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
    return None


def _build_end_data(row: RunRow | None) -> dict[str, Any]:
    return {"reason": "run_over"} | ({} if row is None else {"status": row.status, "message": row.message})


def _parse_event_id(last_event_id: str) -> int | None:
    if not last_event_id:
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= _MAX_POSITION):
        raise invalid_request(FieldProblem(field="Last-Event-ID", problem="is none that this stream has given out"))
    return int(last_event_id)
