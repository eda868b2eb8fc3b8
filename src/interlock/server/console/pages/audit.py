"""The audit page: exports, verification, checkpoints, forwarders and the audit log."""

from inspect import getsource
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ....audit import standalone_verifier
from ....audit.checkpoint import CheckpointStatement
from ....audit.proof import SignedVerification
from ....audit.schemas import SCHEMAS
from ....audit.signed_checkpoint import SignedCheckpoint
from ...core.errors import InvalidRequestError
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ..rendering import PAGE_HEADERS
from ..session import Pages, Visit

PER_PAGE = 50
EXPORT_FORMATS = ("ndjson", "json")
_MAX_RUN_ID_CHARS = 200
_Position = Annotated[int, Meta(ge=0, le=2**53)]


_SECTIONS = (
    Operation.VERIFY_SERVER,
    Operation.READ_CHECKPOINTS,
    Operation.READ_FORWARDERS,
    Operation.READ_JOURNAL,
)

page = Pages()


@page("GET", "/audit")
async def show(
    visit: Visit, run: str = "", verify: str = "", log_before: _Position = 0, checkpoints_after: _Position = 0
) -> Response:
    """Render the audit page; verify a run if requested."""
    run_id, proof = run.strip()[:_MAX_RUN_ID_CHARS], None
    if run_id and verify:
        proof = await visit.service.audit_service.verify_run(visit.principal, run_id)
    sections = await _load_sections(visit, log_before, checkpoints_after)
    verdict = proof and _summarize_proof(proof)
    return await visit.render("audit.html", run_id=run_id, proof=proof, verdict=verdict, check=None, **sections)


@page("GET", "/audit/verify")
async def verify_all(visit: Visit) -> Response:
    """Verify all runs and render the result."""
    check = await visit.service.audit_service.verify_all(visit.principal)
    sections = await _load_sections(visit, 0, 0)
    return await visit.render("audit.html", run_id="", proof=None, verdict=None, check=check, **sections)


@page("GET", "/audit/export")
async def export(visit: Visit, run: str = "", schema: str = "interlock", format: str = "ndjson") -> Response:
    """Redirect to the export of the API, where the run's id is part of the address."""
    run_id = run.strip()[:_MAX_RUN_ID_CHARS]
    if schema not in SCHEMAS or format not in EXPORT_FORMATS:
        raise InvalidRequestError("schema", f"has to be one of {', '.join(SCHEMAS)}, in json or ndjson")
    await visit.service.guard.get_run(visit.principal, run_id, Operation.EXPORT_RUN)
    return RedirectResponse(f"/v1/runs/{quote(run_id, safe='')}/audit/export?format={format}&schema={schema}", 303)


@page("GET", "/audit/verifier.py")
async def download_verifier(visit: Visit) -> Response:
    """Download the program that verifies an export without Interlock."""
    headers = PAGE_HEADERS | {"Content-Disposition": 'attachment; filename="interlock_verifier.py"'}
    return Response(getsource(standalone_verifier), media_type="text/x-python", headers=headers)


async def _load_sections(visit: Visit, log_before: int, checkpoints_after: int) -> dict[str, Any]:
    service, principal, audit = visit.service, visit.principal, visit.service.audit_service
    can_see = {operation.name.lower(): is_allowed(principal, operation) for operation in _SECTIONS}
    values: dict[str, Any] = {
        "sees": can_see,
        "schemas": tuple(SCHEMAS),
        "forms": EXPORT_FORMATS,
        "per_page": PER_PAGE,
        "may_export": any(
            is_allowed(principal, Operation.EXPORT_RUN, RunOwnershipData(agent=agent))
            for agent in service.runners.served_agents
        ),
        "keys": await audit.list_keys(),
    }
    if can_see["read_checkpoints"]:
        signed = await audit.list_checkpoints(principal, checkpoints_after, PER_PAGE)
        values["checkpoints"] = [_build_checkpoint_row(each) for each in signed]
    if can_see["read_forwarders"]:
        values["forwarders"] = await audit.list_forwarders(principal)
    if can_see["read_journal"]:
        count, _ = await service.audit_log.read_head()
        end = min(log_before - 1, count) if log_before else count
        entries = await audit.list_audit_log(principal, max(0, end - PER_PAGE), min(PER_PAGE, max(0, end)))
        values |= {"audit_log": entries[::-1], "audit_log_count": count}
    return values


def _summarize_proof(proof: SignedVerification) -> tuple[str, str]:
    """Return the tone and headline of a verification."""
    if not proof.ok:
        return "danger", "Verification failed"
    return ("success", "Intact and signed") if proof.complete else ("warning", "Intact, not all of it signed")


def _build_checkpoint_row(signed: SignedCheckpoint) -> dict[str, Any]:
    """Return a checkpoint as listed; `run_id` is set where it is about one run alone."""
    statement = msgspec.json.decode(signed.document, type=CheckpointStatement)
    run_id = next(iter(statement.runs), "") if len(statement.runs) == 1 and statement.journal is None else ""
    return msgspec.structs.asdict(statement) | {
        "runs": len(statement.runs),
        "run_id": run_id,
        "digest": signed.digest,
    }
