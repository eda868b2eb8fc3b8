"""Audit: verifiable exports, proofs, forwarding, checkpoints and the audit log."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from ....audit.proof import SignedVerification
from ....audit.schemas import MEDIA_TYPES, ExportFormat, SchemaName
from ...core.audit.service import DeadLetterRetry, ServerCheck
from ...core.audit_sinks.forwarder import RunForwardResult
from ...core.identity.permissions import Operation
from ..body import RequestModel
from ..caller import Call
from ..routing import Routes
from ..schemas.audit import (
    AuditLogEntryList,
    CheckpointList,
    DeadLetterList,
    ForwarderList,
    ForwardRunResponse,
    ProofResponse,
    ServerCheckResponse,
    SigningKeyList,
)
from ..schemas.requests import ForwardRunRequest

route = Routes("audit")

_Position = Annotated[int, Meta(ge=1, le=2**53 - 1)]

_EXPORT_RESPONSE: dict[int, dict[str, Any]] = {
    200: {
        "description": "Every event of the run. With the schema `interlock` it ends with a signed checkpoint.",
        "content": {media: {"schema": {}} for media in MEDIA_TYPES.values()},
    }
}


class ExportFilters(RequestModel, frozen=True, kw_only=True):
    """Format and schema of an export."""

    format: Annotated[
        ExportFormat | None, Meta(description="Default: the usual format of the schema, `json` for most.")
    ] = None
    schema: SchemaName = "interlock"


class CursorFilters(RequestModel, frozen=True, kw_only=True):
    """Cursor and limit of a list."""

    after: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


@route(
    "GET",
    "/runs/{run_id}/audit/export",
    Operation.EXPORT_RUN,
    responses=_EXPORT_RESPONSE,
    alias="/runs/{run_id}/audit/export",
)
async def export_run(call: Call, run_id: str, query: ExportFilters) -> Response:
    """Export the whole log of a run, as a file."""
    export = await call.service.audit_service.export_run(call.principal, run_id, query.schema, query.format)
    headers = {
        "Content-Disposition": f'attachment; filename="{export.file_name}"',
        "X-Interlock-Events": str(export.count),
        "X-Interlock-Signed": "no" if export.signed is None else "yes",
    }
    return StreamingResponse(export.chunks, 200, headers, export.media_type)


@route("GET", "/runs/{run_id}/audit/verify", Operation.VERIFY_RUN, ProofResponse)
async def verify_run(call: Call, run_id: str) -> tuple[str, SignedVerification]:
    """Verify the events of a run against the hash chain and the signed checkpoints."""
    return run_id, await call.service.audit_service.verify_run(call.principal, run_id)


@route("POST", "/runs/{run_id}/audit/forward", Operation.FORWARD_RUN, ForwardRunResponse)
async def forward_run(call: Call, run_id: str, body: ForwardRunRequest) -> RunForwardResult:
    """Send all events of the run to a configured destination now. New events are sent automatically."""
    return await call.service.audit_service.forward_run(call.principal, run_id, body.destination)


@route("GET", "/audit/forwarders", Operation.READ_FORWARDERS, ForwarderList)
async def list_forwarders(call: Call) -> dict[str, Sequence[Any]]:
    """List the destinations, how far each is behind, and its last error."""
    return {"forwarders": await call.service.audit_service.list_forwarders(call.principal)}


@route("GET", "/audit/forwarders/{name}/dead-letters", Operation.READ_FORWARDERS, DeadLetterList)
async def list_dead_letters(call: Call, name: str, query: CursorFilters) -> dict[str, Any]:
    """List the events that a destination rejected, by their place in the log, with the reasons."""
    found = await call.service.audit_service.list_dead_letters(call.principal, name, query.after, query.limit)
    return {"dead_letters": found, "next_after": found[-1].position if found else query.after}


@route(
    "POST",
    "/audit/forwarders/{name}/dead-letters/{number}/retry",
    Operation.RETRY_DEAD_LETTERS,
    DeadLetterRetry,
)
async def retry_dead_letter(call: Call, name: str, number: _Position) -> DeadLetterRetry:
    """Send the rejected event at this `position` again. It stays a dead letter unless the destination takes it."""
    return await call.service.audit_service.retry_dead_letters(call.principal, name, number)


@route("POST", "/audit/forwarders/{name}/dead-letters/retry", Operation.RETRY_DEAD_LETTERS, DeadLetterRetry)
async def retry_dead_letters(call: Call, name: str) -> DeadLetterRetry:
    """Send the first 1,000 rejected events again, for up to 20 seconds."""
    return await call.service.audit_service.retry_dead_letters(call.principal, name)


@route("GET", "/audit/checkpoints", Operation.READ_CHECKPOINTS, CheckpointList)
async def list_checkpoints(call: Call, query: CursorFilters) -> dict[str, Sequence[Any]]:
    """List the signed checkpoints, in order."""
    found = await call.service.audit_service.list_checkpoints(call.principal, query.after, query.limit)
    return {"checkpoints": found}


@route("GET", "/audit/keys", Operation.READ_PUBLISHED, SigningKeyList)
async def list_signing_keys(call: Call) -> dict[str, Sequence[Any]]:
    """List the public keys that checkpoints are signed with."""
    return {"keys": await call.service.audit_service.list_keys()}


@route("GET", "/audit/log", Operation.READ_JOURNAL, AuditLogEntryList)
async def list_audit_log(call: Call, query: CursorFilters) -> dict[str, Any]:
    """List the audit log of the server itself, oldest first."""
    entries = await call.service.audit_service.list_audit_log(call.principal, query.after, query.limit)
    return {"entries": entries, "next_after": entries[-1].seq if entries else query.after}


@route("GET", "/audit/verify", Operation.VERIFY_SERVER, ServerCheckResponse)
async def verify_all(call: Call) -> ServerCheck:
    """Verify every run, the audit log, and all checkpoints."""
    return await call.service.audit_service.verify_all(call.principal)
