"""The contents of a run: its events, its state at any of them, its calls, questions and artifacts."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from ...core.identity.permissions import Operation
from ...core.service import Service
from ..byte_ranges import ByteRange, parse_range
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import JSON_MEDIA_TYPE, declare_responses, json_response, register_schema
from ..schemas.run_contents import CallList, CallResponse, RunStateResponse
from ..schemas.runs import (
    ActionDetailList,
    ActionDetailResponse,
    ArtifactList,
    ArtifactResponse,
    EventList,
    EventResponse,
    StoredEventList,
    StoredEventResponse,
    list_action_details,
)

router = APIRouter(tags=["runs"])

_RunReader = Annotated[Caller, require_permission(Operation.READ_RUN)]
_MAX_SEQ = 2**53 - 1
_CHUNK_BYTES = 256 * 1024
_EVENTS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Done.",
        "content": {
            JSON_MEDIA_TYPE: {"schema": {"anyOf": [register_schema(EventList), register_schema(StoredEventList)]}}
        },
    }
}
_BINARY_CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ARTIFACT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "All of it.", "content": _BINARY_CONTENT},
    206: {"description": "The part that was asked for.", "content": _BINARY_CONTENT},
    416: {"description": "The range is not in it."},
}
#: An artifact is untrusted data: no browser may render it as a page of this server.
_DOWNLOAD_HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'", "Accept-Ranges": "bytes"}


class EventFilters(BaseModel):
    """Filters of a run's events."""

    model_config = ConfigDict(extra="forbid")

    after_seq: int = Field(-1, ge=-1, le=_MAX_SEQ)
    limit: int = Field(100, ge=1, le=1_000)
    view: Literal["run", "log"] = Field("run", description="`run`: as operators see them. `log`: as they are stored.")


class StateFilters(BaseModel):
    """The event at which the state is wanted."""

    model_config = ConfigDict(extra="forbid")

    at: int | None = Field(None, ge=0, le=_MAX_SEQ, description="As of this event; else as of the last one.")


@router.get("/runs/{run_id}/events", operation_id="listEvents", **declare_responses(EventList, extra=_EVENTS_RESPONSE))
async def list_events(
    run_id: str, caller: _RunReader, service: ServiceDep, filters: Annotated[EventFilters, Query()]
) -> Response:
    """List the events of a run, in order."""
    if filters.view == "log":
        stored = await service.run_queries.list_events(caller.principal, run_id, filters.after_seq, filters.limit)
        return json_response(
            StoredEventList(
                events=list(map(StoredEventResponse.from_domain, stored.entries)),
                next_after_seq=stored.next_after_seq,
                last_seq=stored.last_seq,
            )
        )
    page = await service.run_queries.list_run_events(caller.principal, run_id, filters.after_seq, filters.limit)
    events = [EventResponse.from_domain(run_id, event) for event in page.events]
    return json_response(EventList(events=events, next_after_seq=page.next_after_seq, last_seq=page.last_seq))


@router.get("/runs/{run_id}/state", operation_id="getState", **declare_responses(RunStateResponse))
async def get_state(
    run_id: str, caller: _RunReader, service: ServiceDep, filters: Annotated[StateFilters, Query()]
) -> Response:
    """Return the state of the run as of one of its events."""
    return json_response(
        RunStateResponse.from_domain(await service.run_queries.get_state(caller.principal, run_id, filters.at))
    )


@router.get("/runs/{run_id}/calls", operation_id="listCalls", **declare_responses(CallList))
async def list_calls(run_id: str, caller: _RunReader, service: ServiceDep) -> Response:
    """List the calls of a run, in the order in which the model proposed them."""
    return json_response(CallList(calls=list(await service.run_queries.list_calls(caller.principal, run_id))))


@router.get("/runs/{run_id}/calls/{call_id}", operation_id="getCall", **declare_responses(CallResponse))
async def get_call(run_id: str, call_id: str, caller: _RunReader, service: ServiceDep) -> Response:
    """Return one call in three views: the model's, the person's, and what was executed."""
    return json_response(
        CallResponse.from_domain(await service.run_queries.get_call(caller.principal, run_id, call_id))
    )


@router.get("/runs/{run_id}/actions", operation_id="listActions", **declare_responses(ActionDetailList))
async def list_actions(run_id: str, caller: _RunReader, service: ServiceDep) -> Response:
    """Return the questions of a run, oldest first."""
    return json_response(list_action_details(await service.run_queries.list_actions(caller.principal, run_id)))


@router.get("/runs/{run_id}/actions/{action_id}", operation_id="getAction", **declare_responses(ActionDetailResponse))
async def get_action(run_id: str, action_id: str, caller: _RunReader, service: ServiceDep) -> Response:
    return json_response(
        ActionDetailResponse.from_domain(await service.run_queries.get_action(caller.principal, run_id, action_id))
    )


@router.get("/runs/{run_id}/artifacts", operation_id="listArtifacts", **declare_responses(ArtifactList))
async def list_artifacts(run_id: str, caller: _RunReader, service: ServiceDep) -> Response:
    """List the artifacts of a run."""
    found = await service.run_queries.list_artifacts(caller.principal, run_id)
    return json_response(ArtifactList(artifacts=list(map(ArtifactResponse.from_domain, found))))


@router.get(
    "/runs/{run_id}/artifacts/{artifact_id}",
    operation_id="getArtifact",
    **declare_responses(None, extra=_ARTIFACT_RESPONSE),
)
async def get_artifact(
    run_id: str,
    artifact_id: Annotated[str, Path(max_length=200)],
    caller: _RunReader,
    service: ServiceDep,
    range: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Return the bytes of an artifact, or one range of them. Always a download."""
    size = await service.run_queries.get_artifact_size(caller.principal, run_id, artifact_id)
    byte_range = parse_range(range, size)
    name = artifact_id.rpartition(":")[2][:16]
    headers = _DOWNLOAD_HEADERS | {
        "Content-Disposition": f'attachment; filename="artifact-{name}.bin"',
        "Content-Length": str(byte_range.length),
    }
    if byte_range.is_partial:
        headers["Content-Range"] = f"bytes {byte_range.start}-{byte_range.end - 1}/{size}"
    first_chunk = await service.run_queries.read_artifact(
        artifact_id, byte_range.start, min(byte_range.length, _CHUNK_BYTES)
    )
    return StreamingResponse(
        _read_chunks(service, artifact_id, byte_range, first_chunk),
        206 if byte_range.is_partial else 200,
        headers,
        "application/octet-stream",
    )


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
