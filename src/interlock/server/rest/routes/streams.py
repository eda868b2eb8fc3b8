"""Live events: of one run until it is over, or of all visible runs."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from ....domain.event import TERMINAL_EVENTS
from ....history.run_view import to_run_events
from ...core.identity.permissions import Operation, get_visibility, is_allowed
from ...core.index.rows import RunRow
from ...core.live.live_event import LiveEvent
from ..body import RequestModel
from ..caller import Call
from ..errors import FieldProblem, invalid_request
from ..responses import build_response
from ..routing import Header, Routes
from ..schemas.runs import StoredEventResponse, to_event_response
from ..streams import HEARTBEAT_SECONDS, MEDIA_TYPE, StreamSource, encode_message, open_event_stream

route = Routes("live")

_MAX_POSITION = 2**53 - 1
_STREAM_RESPONSE = {
    200: {
        "description": "Server-sent events: `id`, `event`, `data` (JSON). The last one is `end`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
_LastEventId = Annotated[
    str,
    Header("Last-Event-ID"),
    Meta(max_length=20, description="The last event that was received; the stream continues after it."),
]
_View = Literal["run", "log"]


class RunStreamFilters(RequestModel, frozen=True, kw_only=True):
    """Where a stream of one run begins, and its view."""

    after_seq: Annotated[int, Meta(ge=-1, le=_MAX_POSITION)] = -1
    view: _View = "run"
    deltas: Annotated[bool, Meta(description="Also what is not recorded: text of the model and progress of tools.")] = (
        False
    )


class AllStreamFilters(RequestModel, frozen=True, kw_only=True):
    """Where a stream of all runs begins, and its view."""

    after: (
        Annotated[int, Meta(ge=0, le=_MAX_POSITION, description="Start after this position. Default: only new events.")]
        | None
    ) = None
    view: _View = "run"


@route("GET", "/runs/{run_id}/events/stream", Operation.READ_RUN, responses=_STREAM_RESPONSE)
async def stream_run(call: Call, run_id: str, query: RunStreamFilters, last_event_id: _LastEventId = "") -> Response:
    """Stream the events of a run after one of them, then as they come, until the run is over.

    With `deltas`, what the run says between its events, too: `model.delta`, `model.restarted` and `tool.progress`. They
    are transient: without `id`, and only of runs that this process of the server continues. A reader gets the answer
    that the model is writing from its beginning.
    """
    row = await call.service.run_queries.get_run(call.principal, run_id)
    last_position = _parse_event_id(last_event_id)
    after = query.after_seq if last_position is None else last_position
    encode = _ENCODERS[query.view]
    is_finished = row.is_over and row.last_seq <= after

    async def over(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
        has_ended = is_finished or any(
            live.event is not None and isinstance(live.event.fact, TERMINAL_EVENTS) for live in page
        )
        return _build_end_data(await call.service.index.get_run(run_id)) if has_ended else None

    async def allowed() -> bool:
        principal = await call.reauthenticate()
        return principal is not None and is_allowed(principal, Operation.READ_RUN, row)

    return await open_event_stream(
        call.request,
        StreamSource(
            reader=call.service.hub.open_reader(run_id, after, owner=call.principal.name, with_outputs=query.deltas),
            encode=lambda told: told.render_once(f"run:{query.view}", lambda one: encode(one, one.entry.seq)),
            find_end=over,
            check_access=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        ),
    )


@route("GET", "/events/stream", Operation.LIST_RUNS, responses=_STREAM_RESPONSE)
async def stream_all(call: Call, query: AllStreamFilters, last_event_id: _LastEventId = "") -> Response:
    """Stream the events of all runs that you may see, as they come."""
    visibility = get_visibility(call.principal)
    last_position = _parse_event_id(last_event_id)
    after = query.after if last_position is None else last_position
    encode = _ENCODERS[query.view]

    async def allowed() -> bool:
        principal = await call.reauthenticate()
        return (
            principal is not None
            and get_visibility(principal) == visibility
            and is_allowed(principal, Operation.LIST_RUNS)
        )

    return await open_event_stream(
        call.request,
        StreamSource(
            reader=call.service.hub.open_reader(
                None, after, agents=visibility.agents, person=visibility.person, owner=call.principal.name
            ),
            encode=lambda told: told.render_once(f"all:{query.view}", lambda one: encode(one, one.position)),
            find_end=_never_end,
            check_access=allowed,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        ),
    )


def _encode_run_events(live: LiveEvent, position: int) -> bytes:
    if live.event is None:
        return b""
    events = (to_event_response(live.entry.run_id, event) for event in to_run_events(live.event))
    return b"".join(encode_message(event.type, event, position) for event in events)


def _encode_stored_event(live: LiveEvent, position: int) -> bytes:
    name = "unreadable" if live.event is None else live.event.type
    return encode_message(name, build_response(StoredEventResponse, live.entry), position)


_ENCODERS = {"run": _encode_run_events, "log": _encode_stored_event}


async def _never_end(page: Sequence[LiveEvent]) -> dict[str, Any] | None:
    return None


def _build_end_data(row: RunRow | None) -> dict[str, Any]:
    return {"reason": "run_over"} | ({} if row is None else {"status": row.status, "message": row.message})


def _parse_event_id(last_event_id: str) -> int | None:
    if not last_event_id:
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= _MAX_POSITION):
        raise invalid_request(FieldProblem("Last-Event-ID", "is not an event id of this stream"))
    return int(last_event_id)
