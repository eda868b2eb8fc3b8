"""The contents of a run: its events, its state at any of them, its calls, questions and artifacts."""

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from ....history.actions import Action
from ....history.call_view import CallView
from ....history.state_view import RunStateView
from ...core.identity.permissions import Operation
from ...core.service import Service
from ..body import RequestModel
from ..caller import Call
from ..errors import ApiError
from ..responses import build_response
from ..routing import Header, Routes
from ..schemas.runs import (
    ApprovalDetailList,
    ApprovalDetailResponse,
    ArtifactList,
    CallList,
    CallResponse,
    EventList,
    RunStateResponse,
    StoredEventList,
    to_event_response,
)

route = Routes("runs")

_MAX_SEQ = 2**53 - 1
_CHUNK_BYTES = 256 * 1024
_BINARY_CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ARTIFACT_RESPONSES = {
    200: {"description": "The whole artifact.", "content": _BINARY_CONTENT},
    206: {"description": "The requested range.", "content": _BINARY_CONTENT},
    416: {"description": "The range is outside of the artifact."},
}
#: An artifact is untrusted data: no browser may render it as a page of this server.
_DOWNLOAD_HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'", "Accept-Ranges": "bytes"}
_match_range = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII).fullmatch


class EventFilters(RequestModel, frozen=True, kw_only=True):
    """Filters of a run's events."""

    after_seq: Annotated[int, Meta(ge=-1, le=_MAX_SEQ)] = -1
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    view: Annotated[
        Literal["run", "log"], Meta(description="`run`: as operators see them. `log`: as they are stored.")
    ] = "run"


class StateFilters(RequestModel, frozen=True, kw_only=True):
    """The event at which the state is wanted."""

    at: Annotated[int, Meta(ge=0, le=_MAX_SEQ, description="The event. Default: the last one.")] | None = None


class ByteRange(NamedTuple):
    """A byte range of an artifact."""

    start: int
    end: int
    is_partial: bool

    @property
    def length(self) -> int:
        """Number of bytes in the range."""
        return self.end - self.start


@route(
    "GET",
    "/runs/{run_id}/events",
    Operation.READ_RUN,
    (EventList, StoredEventList),
    alias="/runs/{run_id}/events",
)
async def list_events(call: Call, run_id: str, query: EventFilters) -> EventList | StoredEventList:
    """List the events of a run, in order."""
    queries = call.service.run_queries
    if query.view == "log":
        stored = await queries.list_events(call.principal, run_id, query.after_seq, query.limit)
        return build_response(StoredEventList, stored)
    page = await queries.list_run_events(call.principal, run_id, query.after_seq, query.limit)
    events = [to_event_response(run_id, event) for event in page.events]
    return EventList(events=events, next_after_seq=page.next_after_seq, last_seq=page.last_seq)


@route("GET", "/runs/{run_id}/state", Operation.READ_RUN, RunStateResponse)
async def get_state(call: Call, run_id: str, query: StateFilters) -> RunStateView:
    """Return the state of the run as of one of its events."""
    return await call.service.run_queries.get_state(call.principal, run_id, query.at)


@route("GET", "/runs/{run_id}/calls", Operation.READ_RUN, CallList)
async def list_calls(call: Call, run_id: str) -> dict[str, Sequence[Any]]:
    """List the calls of a run, in the order in which the model proposed them."""
    return {"calls": await call.service.run_queries.list_calls(call.principal, run_id)}


@route("GET", "/runs/{run_id}/calls/{call_id}", Operation.READ_RUN, CallResponse)
async def get_call(call: Call, run_id: str, call_id: str) -> CallView:
    """Return one call in three views: the model's, the person's, and what was executed."""
    return await call.service.run_queries.get_call(call.principal, run_id, call_id)


@route("GET", "/runs/{run_id}/approvals", Operation.READ_RUN, ApprovalDetailList)
async def list_run_approvals(call: Call, run_id: str) -> dict[str, Sequence[Action]]:
    """List the approvals, inputs and consents of a run, oldest first."""
    return {"approvals": await call.service.run_queries.list_actions(call.principal, run_id)}


@route(
    "GET",
    "/runs/{run_id}/approvals/{action_id}",
    Operation.READ_RUN,
    ApprovalDetailResponse,
    alias="/runs/{run_id}/actions/{action_id}",
)
async def get_run_approval(call: Call, run_id: str, action_id: str) -> Action:
    """Return one approval of a run, with everything that it is bound to."""
    return await call.service.run_queries.get_action(call.principal, run_id, action_id)


@route("GET", "/runs/{run_id}/artifacts", Operation.READ_RUN, ArtifactList)
async def list_artifacts(call: Call, run_id: str) -> dict[str, Sequence[Any]]:
    """List the artifacts of a run."""
    return {"artifacts": await call.service.run_queries.list_artifacts(call.principal, run_id)}


@route("GET", "/runs/{run_id}/artifacts/{artifact_id}", Operation.READ_RUN, responses=_ARTIFACT_RESPONSES)
async def get_artifact(
    call: Call,
    run_id: str,
    artifact_id: Annotated[str, Meta(max_length=200)],
    range: Annotated[str, Meta(max_length=100), Header("range")] = "",
) -> Response:
    """Return the bytes of an artifact, or one range of them. Always a download."""
    queries = call.service.run_queries
    size = await queries.get_artifact_size(call.principal, run_id, artifact_id)
    byte_range = parse_range(range, size)
    name = artifact_id.rpartition(":")[2][:16]
    headers = _DOWNLOAD_HEADERS | {
        "Content-Disposition": f'attachment; filename="artifact-{name}.bin"',
        "Content-Length": str(byte_range.length),
    }
    if byte_range.is_partial:
        headers["Content-Range"] = f"bytes {byte_range.start}-{byte_range.end - 1}/{size}"
    first_chunk = await queries.read_artifact(artifact_id, byte_range.start, min(byte_range.length, _CHUNK_BYTES))
    return StreamingResponse(
        _read_chunks(call.service, artifact_id, byte_range, first_chunk),
        206 if byte_range.is_partial else 200,
        headers,
        "application/octet-stream",
    )


def parse_range(header: str, size: int) -> ByteRange:
    """Parse `Range` of RFC 9110, for one range. An invalid header is ignored. Raise `ApiError` 416 where it is
    unsatisfiable.
    """
    if size < 0:
        raise ApiError(409, "artifact_lost", "The artifact is no longer in the store.")
    match = _match_range(header.strip().replace(" ", ""))
    whole = ByteRange(0, size, is_partial=False)
    if match is None or match[0] == "bytes=-":
        return whole
    first, last = match[1], match[2]
    if not first:  # so many at the end
        byte_range = ByteRange(max(0, size - int(last)), size, is_partial=True)
    else:
        end = min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return whole
        byte_range = ByteRange(int(first), end, is_partial=True)
    if byte_range.length <= 0:
        raise ApiError(
            416,
            "range_outside",
            f"The range is outside of the artifact, which has {size} bytes.",
            {"size": size},
            {"Content-Range": f"bytes */{size}"},
        )
    return byte_range


async def _read_chunks(
    service: Service, artifact_id: str, byte_range: ByteRange, first_chunk: bytes
) -> AsyncGenerator[bytes]:
    yield first_chunk
    position = byte_range.start + len(first_chunk)
    while position < byte_range.end:
        chunk = await service.run_queries.read_artifact(
            artifact_id, position, min(_CHUNK_BYTES, byte_range.end - position)
        )
        if not chunk:
            return
        yield chunk
        position += len(chunk)
