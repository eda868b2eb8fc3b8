"""The audit page: exports, verification, checkpoints, forwarders and the audit log."""

from inspect import getsource
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....audit import standalone_verifier
from ....audit.checkpoint import CheckpointStatement
from ....audit.proof import SignedVerification
from ....audit.schemas import SCHEMAS
from ....audit.signed_checkpoint import SignedCheckpoint
from ...core.errors import InvalidRequestError
from ...core.identity.permissions import Operation, RunOwnershipData, is_allowed
from ...core.identity.principal import Principal
from ...core.service import Service
from ..rendering import PAGE_HEADERS, PageRenderer
from ..session import Visitor

PER_PAGE = 50
EXPORT_FORMATS = ("ndjson", "json")
_MAX_RUN_ID_CHARS = 200
_Position = Annotated[int, Query(ge=0, le=2**53)]


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in the list."""

    number: int
    at: str
    key: str
    position: int
    runs: int
    #: The run, where it is about one alone.
    run_id: str
    digest: str


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router, page = APIRouter(), _AuditPage(service, pages)
    router.add_api_route("/audit", page.show, methods=["GET"])
    router.add_api_route("/audit/verify", page.verify_all, methods=["GET"])
    router.add_api_route("/audit/export", page.export, methods=["GET"])
    router.add_api_route("/audit/verifier.py", page.download_verifier, methods=["GET"])
    return router


class _AuditPage:
    def __init__(self, service: Service, pages: PageRenderer) -> None:
        self._service = service
        self._audit_service = service.audit_service
        self._pages = pages

    async def show(  # noqa: PLR0913 - one for each word in the address
        self,
        request: Request,
        visitor: Visitor,
        *,
        run: str = "",
        verify: str = "",
        journal_before: _Position = 0,
        checkpoints_after: _Position = 0,
    ) -> Response:
        run_id, proof = run.strip()[:_MAX_RUN_ID_CHARS], None
        if run_id and verify:
            proof = await self._audit_service.verify_run(visitor.principal, run_id)
        values: dict[str, Any] = {
            "run_id": run_id,
            "proof": proof,
            "verdict": proof and _summarize_proof(proof),
            "check": None,
        }
        values |= await self._load_sections(visitor.principal, journal_before, checkpoints_after)
        return await self._pages.render_page(request, visitor, "audit.html", **values)

    async def verify_all(self, request: Request, visitor: Visitor) -> Response:
        check = await self._audit_service.verify_all(visitor.principal)
        values: dict[str, Any] = {"run_id": "", "proof": None, "verdict": None, "check": check}
        values |= await self._load_sections(visitor.principal, 0, 0)
        return await self._pages.render_page(request, visitor, "audit.html", **values)

    async def export(
        self,
        visitor: Visitor,
        run: str = "",
        schema: str = "interlock",
        format: str = "ndjson",
    ) -> Response:
        """The API has the export; the run's id is part of its address there."""
        run_id = run.strip()[:_MAX_RUN_ID_CHARS]
        if schema not in SCHEMAS or format not in EXPORT_FORMATS:
            raise InvalidRequestError("schema", f"has to be one of {', '.join(SCHEMAS)}, in json or ndjson")
        await self._service.guard.get_run(visitor.principal, run_id, Operation.EXPORT_RUN)
        return RedirectResponse(f"/runs/{quote(run_id, safe='')}/audit/export?format={format}&schema={schema}", 303)

    async def download_verifier(self, visitor: Visitor) -> Response:
        """The program that checks an export without us."""
        headers = PAGE_HEADERS | {"Content-Disposition": 'attachment; filename="interlock_verifier.py"'}
        return Response(getsource(standalone_verifier), media_type="text/x-python", headers=headers)

    async def _load_sections(self, principal: Principal, journal_before: int, checkpoints_after: int) -> dict[str, Any]:
        can_see = {operation.name.lower(): is_allowed(principal, operation) for operation in _SECTIONS}
        values: dict[str, Any] = {
            "sees": can_see,
            "schemas": tuple(SCHEMAS),
            "forms": EXPORT_FORMATS,
            "per_page": PER_PAGE,
        }
        values["may_export"] = any(
            is_allowed(principal, Operation.EXPORT_RUN, RunOwnershipData(agent=agent))
            for agent in self._service.runners.served_agents
        )
        values["keys"] = await self._audit_service.list_keys()
        if can_see["read_checkpoints"]:
            signed = await self._audit_service.list_checkpoints(principal, checkpoints_after, PER_PAGE)
            values["checkpoints"] = [_build_checkpoint_row(each) for each in signed]
        if can_see["read_forwarders"]:
            values["forwarders"] = await self._audit_service.list_forwarders(principal)
        if can_see["read_journal"]:
            count, _ = await self._service.audit_log.read_head()
            end = min(journal_before - 1, count) if journal_before else count
            entries = await self._audit_service.list_audit_log(
                principal, max(0, end - PER_PAGE), min(PER_PAGE, max(0, end))
            )
            values |= {"journal": entries[::-1], "journal_count": count}
        return values


_SECTIONS = (
    Operation.VERIFY_SERVER,
    Operation.READ_CHECKPOINTS,
    Operation.READ_FORWARDERS,
    Operation.READ_JOURNAL,
)


def _summarize_proof(proof: SignedVerification) -> tuple[str, str]:
    """How it looks, and what it says first."""
    if not proof.ok:
        return "bad", "Not what was written"
    return ("good", "As it was written, and signed") if proof.complete else ("wait", "Unbroken, not all of it signed")


def _build_checkpoint_row(signed: SignedCheckpoint) -> CheckpointRow:
    statement = msgspec.json.decode(signed.document, type=CheckpointStatement)
    run_id = next(iter(statement.runs), "") if len(statement.runs) == 1 and statement.journal is None else ""
    return CheckpointRow(
        number=statement.number,
        at=statement.at,
        key=statement.key,
        position=statement.position,
        runs=len(statement.runs),
        run_id=run_id,
        digest=signed.digest,
    )
