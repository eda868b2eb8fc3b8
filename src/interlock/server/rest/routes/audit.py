"""Audit: verifiable exports, proofs, forwarding, checkpoints and the audit log."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from ....audit.schemas import MEDIA_TYPES, ExportFormat, SchemaName
from ...core.identity.permissions import Operation
from ..body import declare_body, json_body
from ..caller import Caller, ServiceDep, require_permission
from ..encoding import declare_responses, json_response
from ..schemas.audit import (
    AuditLogEntryList,
    AuditLogEntryResponse,
    CheckpointList,
    CheckpointResponse,
    ForwarderList,
    ForwarderResponse,
    ForwardRunResponse,
    ProofResponse,
    ServerCheckResponse,
    SigningKeyList,
)
from ..schemas.requests import ForwardRunRequest

router = APIRouter(tags=["audit"])

_EXPORT_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Every event of the run. With the schema `interlock` it ends with a signed checkpoint.",
        "content": {media: {"schema": {}} for media in MEDIA_TYPES.values()},
    }
}


class ExportFilters(BaseModel):
    """Format and schema of an export."""

    model_config = ConfigDict(extra="forbid")

    format: ExportFormat | None = Field(None, description="Default: what readers of the schema take, `json` for most.")
    schema_: SchemaName = Field("interlock", alias="schema")


class CursorFilters(BaseModel):
    """Cursor and limit of a list."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=2**53 - 1)
    limit: int = Field(100, ge=1, le=1_000)


@router.get("/runs/{run_id}/audit/export", operation_id="exportRun", **declare_responses(None, extra=_EXPORT_RESPONSE))
async def export_run(
    run_id: str,
    caller: Annotated[Caller, require_permission(Operation.EXPORT_RUN)],
    service: ServiceDep,
    filters: Annotated[ExportFilters, Query()],
) -> Response:
    """Export the whole log of a run, as a file."""
    export = await service.audit_service.export_run(caller.principal, run_id, filters.schema_, filters.format)
    headers = {
        "Content-Disposition": f'attachment; filename="{export.file_name}"',
        "X-Interlock-Events": str(export.count),
        "X-Interlock-Signed": "no" if export.signed is None else "yes",
    }
    return StreamingResponse(export.chunks, 200, headers, export.media_type)


@router.get("/runs/{run_id}/audit/verify", operation_id="verifyRun", **declare_responses(ProofResponse))
async def verify_run(
    run_id: str, caller: Annotated[Caller, require_permission(Operation.VERIFY_RUN)], service: ServiceDep
) -> Response:
    """Verify the events of a run against the hash chain and the signed checkpoints."""
    return json_response(
        ProofResponse.from_domain(run_id, await service.audit_service.verify_run(caller.principal, run_id))
    )


@router.post(
    "/runs/{run_id}/audit/forward",
    operation_id="forwardRun",
    **declare_responses(ForwardRunResponse),
    **declare_body(ForwardRunRequest),
)
async def forward_run(
    run_id: str,
    caller: Annotated[Caller, require_permission(Operation.FORWARD_RUN)],
    service: ServiceDep,
    body: Annotated[ForwardRunRequest, json_body(ForwardRunRequest)],
) -> Response:
    """Send all events of the run to a configured destination now. New events are sent automatically."""
    return json_response(
        ForwardRunResponse.from_domain(
            await service.audit_service.forward_run(caller.principal, run_id, body.destination)
        )
    )


@router.get("/audit/forwarders", operation_id="listForwarders", **declare_responses(ForwarderList))
async def list_forwarders(
    caller: Annotated[Caller, require_permission(Operation.READ_FORWARDERS)], service: ServiceDep
) -> Response:
    """List the destinations, how far each is behind, and its last error."""
    found = await service.audit_service.list_forwarders(caller.principal)
    return json_response(ForwarderList(forwarders=list(map(ForwarderResponse.from_domain, found))))


@router.get("/audit/checkpoints", operation_id="listCheckpoints", **declare_responses(CheckpointList))
async def list_checkpoints(
    caller: Annotated[Caller, require_permission(Operation.READ_CHECKPOINTS)],
    service: ServiceDep,
    filters: Annotated[CursorFilters, Query()],
) -> Response:
    """List the signed checkpoints, in order."""
    found = await service.audit_service.list_checkpoints(caller.principal, filters.after, filters.limit)
    return json_response(CheckpointList(checkpoints=list(map(CheckpointResponse.from_domain, found))))


@router.get("/audit/key", operation_id="listSigningKeys", **declare_responses(SigningKeyList))
async def list_signing_keys(
    caller: Annotated[Caller, require_permission(Operation.READ_PUBLISHED)], service: ServiceDep
) -> Response:
    """List the public keys that checkpoints are signed with."""
    return json_response(SigningKeyList(keys=list(await service.audit_service.list_keys())))


@router.get("/audit/journal", operation_id="listJournal", **declare_responses(AuditLogEntryList))
async def list_journal(
    caller: Annotated[Caller, require_permission(Operation.READ_JOURNAL)],
    service: ServiceDep,
    filters: Annotated[CursorFilters, Query()],
) -> Response:
    """List the audit log of the server itself, oldest first."""
    entries = list(
        map(
            AuditLogEntryResponse.from_domain,
            await service.audit_service.list_audit_log(caller.principal, filters.after, filters.limit),
        )
    )
    return json_response(AuditLogEntryList(entries=entries, next_after=entries[-1].seq if entries else filters.after))


@router.get("/audit/verify", operation_id="verifyAll", **declare_responses(ServerCheckResponse))
async def verify_all(
    caller: Annotated[Caller, require_permission(Operation.VERIFY_SERVER)], service: ServiceDep
) -> Response:
    """Verify every run, the audit log, and all checkpoints."""
    return json_response(ServerCheckResponse.from_domain(await service.audit_service.verify_all(caller.principal)))
