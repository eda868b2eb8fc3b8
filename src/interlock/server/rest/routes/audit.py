"""Audit: exports that can be verified elsewhere, proofs, forwarding, checkpoints and the journal."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from ....audit.schemas import MEDIA_TYPES, FormName, SchemaName
from ...core.identity.permissions import Operation
from ..body import body, takes
from ..caller import Caller, Served, caller
from ..encoding import answer, answers
from ..schemas.audit import (
    CheckpointList,
    CheckpointShape,
    ForwardedShape,
    ForwarderList,
    ForwarderShape,
    JournalList,
    JournalShape,
    KeyList,
    ProofShape,
    ServerCheckShape,
)
from ..schemas.requests import ForwardWish

router = APIRouter(tags=["audit"])

_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Every event of the run. With the schema `interlock` it ends with a signed checkpoint.",
        "content": {media: {"schema": {}} for media in MEDIA_TYPES.values()},
    }
}


class ExportFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: FormName | None = Field(None, description="Default: what readers of the schema take, `json` for most.")
    schema_: SchemaName = Field("interlock", alias="schema")


class AfterFilters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=2**53 - 1)
    limit: int = Field(100, ge=1, le=1_000)


@router.get("/runs/{run_id}/audit/export", operation_id="exportRun", **answers(None, more=_EXPORT))
async def export_run(
    run_id: str,
    by: Annotated[Caller, caller(Operation.EXPORT_RUN)],
    service: Served,
    filters: Annotated[ExportFilters, Query()],
) -> Response:
    """The whole trail of a run, as a file."""
    export = await service.auditing.export(by.who, run_id, filters.schema_, filters.format)
    headers = {
        "Content-Disposition": f'attachment; filename="{export.file_name}"',
        "X-Interlock-Events": str(export.count),
        "X-Interlock-Signed": "no" if export.signed is None else "yes",
    }
    return StreamingResponse(export.chunks, 200, headers, export.media_type)


@router.get("/runs/{run_id}/audit/verify", operation_id="verifyRun", **answers(ProofShape))
async def verify_run(run_id: str, by: Annotated[Caller, caller(Operation.VERIFY_RUN)], service: Served) -> Response:
    """Are its events what was written, and what was ever signed about them?"""
    return answer(ProofShape.of(run_id, await service.auditing.verify_run(by.who, run_id)))


@router.post("/runs/{run_id}/audit/forward", operation_id="forwardRun", **answers(ForwardedShape), **takes(ForwardWish))
async def forward_run(
    run_id: str,
    by: Annotated[Caller, caller(Operation.FORWARD_RUN)],
    service: Served,
    wish: Annotated[ForwardWish, body(ForwardWish)],
) -> Response:
    """Send all of its events to a configured destination now. New events go to every destination by themselves."""
    return answer(ForwardedShape.of(await service.auditing.forward(by.who, run_id, wish.destination)))


@router.get("/audit/forwarders", operation_id="listForwarders", **answers(ForwarderList))
async def list_forwarders(by: Annotated[Caller, caller(Operation.READ_FORWARDERS)], service: Served) -> Response:
    """The destinations, how far each is behind, and what went wrong last."""
    found = await service.auditing.forwarders(by.who)
    return answer(ForwarderList(forwarders=list(map(ForwarderShape.of, found))))


@router.get("/audit/checkpoints", operation_id="listCheckpoints", **answers(CheckpointList))
async def list_checkpoints(
    by: Annotated[Caller, caller(Operation.READ_CHECKPOINTS)],
    service: Served,
    filters: Annotated[AfterFilters, Query()],
) -> Response:
    """What was signed, in order."""
    found = await service.auditing.checkpoints(by.who, filters.after, filters.limit)
    return answer(CheckpointList(checkpoints=list(map(CheckpointShape.of, found))))


@router.get("/audit/key", operation_id="listSigningKeys", **answers(KeyList))
async def list_signing_keys(by: Annotated[Caller, caller(Operation.READ_PUBLISHED)], service: Served) -> Response:
    """The public keys that checkpoints are signed with."""
    return answer(KeyList(keys=list(await service.auditing.keys())))


@router.get("/audit/journal", operation_id="listJournal", **answers(JournalList))
async def list_journal(
    by: Annotated[Caller, caller(Operation.READ_JOURNAL)],
    service: Served,
    filters: Annotated[AfterFilters, Query()],
) -> Response:
    """What people did to the server itself, oldest first."""
    entries = list(map(JournalShape.of, await service.auditing.journal(by.who, filters.after, filters.limit)))
    return answer(JournalList(entries=entries, next_after=entries[-1].seq if entries else filters.after))


@router.get("/audit/verify", operation_id="verifyAll", **answers(ServerCheckShape))
async def verify_all(by: Annotated[Caller, caller(Operation.VERIFY_SERVER)], service: Served) -> Response:
    """Every run, the journal, and everything that was signed."""
    return answer(ServerCheckShape.of(await service.auditing.verify_all(by.who)))
