"""The inside of a run: its events, its state at any of them, its calls, questions and artifacts."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from ...core.identity.permissions import Operation
from ...core.service import Service
from ..caller import Caller, Served, caller
from ..encoding import JSON, answer, answers, ref
from ..ranges import Span, read_range
from ..schemas.run_contents import CallList, CallShape, StateShape
from ..schemas.runs import (
    ArtifactList,
    ArtifactShape,
    AskedList,
    AskedShape,
    EventList,
    EventShape,
    StoredEvent,
    StoredEventList,
    asked_list,
)

router = APIRouter(tags=["runs"])

_Reader = Annotated[Caller, caller(Operation.READ_RUN)]
_MAX_SEQ = 2**53 - 1
_CHUNK_BYTES = 256 * 1024
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Done.",
        "content": {JSON: {"schema": {"anyOf": [ref(EventList), ref(StoredEventList)]}}},
    }
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ARTIFACT: dict[int | str, dict[str, Any]] = {
    200: {"description": "All of it.", "content": _BYTES},
    206: {"description": "The part that was asked for.", "content": _BYTES},
    416: {"description": "The range is not in it."},
}
#: An artifact is data of whoever made it: no browser may take it for a page of this server.
_AS_DATA = {"Content-Security-Policy": "sandbox; default-src 'none'", "Accept-Ranges": "bytes"}


class EventFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after_seq: int = Field(-1, ge=-1, le=_MAX_SEQ)
    limit: int = Field(100, ge=1, le=1_000)
    view: Literal["run", "log"] = Field("run", description="`run`: as operators see them. `log`: as they are stored.")


class StateFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    at: int | None = Field(None, ge=0, le=_MAX_SEQ, description="As of this event; else as of the last one.")


@router.get("/runs/{run_id}/events", operation_id="listEvents", **answers(EventList, more=_EVENTS))
async def list_events(run_id: str, by: _Reader, service: Served, filters: Annotated[EventFilters, Query()]) -> Response:
    """In the order in which they happened."""
    if filters.view == "log":
        stored = await service.reading.events(by.who, run_id, filters.after_seq, filters.limit)
        return answer(
            StoredEventList(
                events=list(map(StoredEvent.of, stored.entries)),
                next_after_seq=stored.next_after_seq,
                last_seq=stored.last_seq,
            )
        )
    page = await service.reading.run_events(by.who, run_id, filters.after_seq, filters.limit)
    shown = [EventShape.of(run_id, event) for event in page.events]
    return answer(EventList(events=shown, next_after_seq=page.next_after_seq, last_seq=page.last_seq))


@router.get("/runs/{run_id}/state", operation_id="getState", **answers(StateShape))
async def get_state(run_id: str, by: _Reader, service: Served, filters: Annotated[StateFilters, Query()]) -> Response:
    """The state of the run as of one of its events."""
    return answer(StateShape.of(await service.reading.state(by.who, run_id, filters.at)))


@router.get("/runs/{run_id}/calls", operation_id="listCalls", **answers(CallList))
async def list_calls(run_id: str, by: _Reader, service: Served) -> Response:
    """In the order in which the model proposed them."""
    return answer(CallList(calls=list(await service.reading.calls(by.who, run_id))))


@router.get("/runs/{run_id}/calls/{call_id}", operation_id="getCall", **answers(CallShape))
async def get_call(run_id: str, call_id: str, by: _Reader, service: Served) -> Response:
    """One call in three lenses: what the model saw, what the person saw, what happened."""
    return answer(CallShape.of(await service.reading.call(by.who, run_id, call_id)))


@router.get("/runs/{run_id}/actions", operation_id="listActions", **answers(AskedList))
async def list_actions(run_id: str, by: _Reader, service: Served) -> Response:
    """The questions of a run, oldest first."""
    return answer(asked_list(await service.reading.actions(by.who, run_id)))


@router.get("/runs/{run_id}/actions/{action_id}", operation_id="getAction", **answers(AskedShape))
async def get_action(run_id: str, action_id: str, by: _Reader, service: Served) -> Response:
    return answer(AskedShape.of(await service.reading.action(by.who, run_id, action_id)))


@router.get("/runs/{run_id}/artifacts", operation_id="listArtifacts", **answers(ArtifactList))
async def list_artifacts(run_id: str, by: _Reader, service: Served) -> Response:
    """What the run keeps in full."""
    found = await service.reading.artifacts(by.who, run_id)
    return answer(ArtifactList(artifacts=list(map(ArtifactShape.of, found))))


@router.get("/runs/{run_id}/artifacts/{artifact_id}", operation_id="getArtifact", **answers(None, more=_ARTIFACT))
async def get_artifact(
    run_id: str,
    artifact_id: Annotated[str, Path(max_length=200)],
    by: _Reader,
    service: Served,
    range: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Its bytes, or one range of them. It is always a download."""
    size = await service.reading.artifact_size(by.who, run_id, artifact_id)
    span = read_range(range, size)
    name = artifact_id.rpartition(":")[2][:16]
    headers = _AS_DATA | {
        "Content-Disposition": f'attachment; filename="artifact-{name}.bin"',
        "Content-Length": str(span.length),
    }
    if span.is_part:
        headers["Content-Range"] = f"bytes {span.start}-{span.end - 1}/{size}"
    first = await service.reading.artifact_bytes(artifact_id, span.start, min(span.length, _CHUNK_BYTES))
    return StreamingResponse(
        _pieces(service, artifact_id, span, first),
        206 if span.is_part else 200,
        headers,
        "application/octet-stream",
    )


async def _pieces(service: Service, artifact_id: str, span: Span, first: bytes) -> AsyncGenerator[bytes]:
    yield first
    at = span.start + len(first)
    while at < span.end:
        piece = await service.reading.artifact_bytes(artifact_id, at, min(_CHUNK_BYTES, span.end - at))
        if not piece:
            return
        yield piece
        at += len(piece)
