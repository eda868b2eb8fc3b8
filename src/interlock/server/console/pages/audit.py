"""The audit page: take an export, check that what is kept is what was written, see what was signed, sent and done."""

from inspect import getsource
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ....audit import standalone_verifier
from ....audit.checkpoint import Statement
from ....audit.proof import Proof
from ....audit.schemas import SCHEMAS
from ....audit.signed_line import SignedCheckpoint
from ...core.errors import InvalidError
from ...core.identity.permissions import Operation, RunFacts, may
from ...core.identity.principal import Principal
from ...core.service import Service
from ..rendering import HEADERS, Pages
from ..session import Visitor

PER_PAGE = 50
FORMS = ("ndjson", "json")
_MAX_RUN_ID_CHARS = 200
_Place = Annotated[int, Query(ge=0, le=2**53)]


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at: str
    key: str
    position: int
    runs: int
    #: The run, where it is about one alone.
    run_id: str
    digest: str


def routes(service: Service, pages: Pages) -> APIRouter:
    router, page = APIRouter(), _AuditPage(service, pages)
    router.add_api_route("/audit", page.show, methods=["GET"])
    router.add_api_route("/audit/verify", page.verify_all, methods=["GET"])
    router.add_api_route("/audit/export", page.export, methods=["GET"])
    router.add_api_route("/audit/verifier.py", page.verifier, methods=["GET"])
    return router


class _AuditPage:
    def __init__(self, service: Service, pages: Pages) -> None:
        self._service = service
        self._auditing = service.auditing
        self._pages = pages

    async def show(  # noqa: PLR0913 - one for each word in the address
        self,
        request: Request,
        visitor: Visitor,
        *,
        run: str = "",
        verify: str = "",
        journal_before: _Place = 0,
        checkpoints_after: _Place = 0,
    ) -> Response:
        run_id, proof = run.strip()[:_MAX_RUN_ID_CHARS], None
        if run_id and verify:
            proof = await self._auditing.verify_run(visitor.principal, run_id)
        values: dict[str, Any] = {"run_id": run_id, "proof": proof, "verdict": proof and _verdict(proof), "check": None}
        values |= await self._lists(visitor.principal, journal_before, checkpoints_after)
        return await self._pages.page(request, visitor, "audit.html", **values)

    async def verify_all(self, request: Request, visitor: Visitor) -> Response:
        check = await self._auditing.verify_all(visitor.principal)
        values: dict[str, Any] = {"run_id": "", "proof": None, "verdict": None, "check": check}
        values |= await self._lists(visitor.principal, 0, 0)
        return await self._pages.page(request, visitor, "audit.html", **values)

    async def export(
        self,
        visitor: Visitor,
        run: str = "",
        schema: str = "interlock",
        format: str = "ndjson",
    ) -> Response:
        """The API has the export; the run's id is part of its address there."""
        run_id = run.strip()[:_MAX_RUN_ID_CHARS]
        if schema not in SCHEMAS or format not in FORMS:
            raise InvalidError("schema", f"has to be one of {', '.join(SCHEMAS)}, in json or ndjson")
        await self._service.guard.run(visitor.principal, run_id, Operation.EXPORT_RUN)
        return RedirectResponse(f"/runs/{quote(run_id, safe='')}/audit/export?format={format}&schema={schema}", 303)

    async def verifier(self, visitor: Visitor) -> Response:
        """The program that checks an export without us."""
        headers = HEADERS | {"Content-Disposition": 'attachment; filename="interlock_verifier.py"'}
        return Response(getsource(standalone_verifier), media_type="text/x-python", headers=headers)

    async def _lists(self, who: Principal, journal_before: int, checkpoints_after: int) -> dict[str, Any]:
        sees = {operation.name.lower(): may(who, operation) for operation in _SECTIONS}
        found: dict[str, Any] = {"sees": sees, "schemas": tuple(SCHEMAS), "forms": FORMS, "per_page": PER_PAGE}
        found["may_export"] = any(
            may(who, Operation.EXPORT_RUN, RunFacts(agent=agent)) for agent in self._service.fleet.served
        )
        found["keys"] = await self._auditing.keys()
        if sees["read_checkpoints"]:
            signed = await self._auditing.checkpoints(who, checkpoints_after, PER_PAGE)
            found["checkpoints"] = [_row(each) for each in signed]
        if sees["read_forwarders"]:
            found["forwarders"] = await self._auditing.forwarders(who)
        if sees["read_journal"]:
            count, _ = await self._service.journal.head()
            end = min(journal_before - 1, count) if journal_before else count
            entries = await self._auditing.journal(who, max(0, end - PER_PAGE), min(PER_PAGE, max(0, end)))
            found |= {"journal": entries[::-1], "journal_count": count}
        return found


_SECTIONS = (
    Operation.VERIFY_SERVER,
    Operation.READ_CHECKPOINTS,
    Operation.READ_FORWARDERS,
    Operation.READ_JOURNAL,
)


def _verdict(proof: Proof) -> tuple[str, str]:
    """How it looks, and what it says first."""
    if not proof.ok:
        return "bad", "Not what was written"
    return ("good", "As it was written, and signed") if proof.complete else ("wait", "Unbroken, not all of it signed")


def _row(signed: SignedCheckpoint) -> CheckpointRow:
    said = msgspec.json.decode(signed.document, type=Statement)
    alone = next(iter(said.runs), "") if len(said.runs) == 1 and said.journal is None else ""
    return CheckpointRow(
        number=said.number,
        at=said.at,
        key=said.key,
        position=said.position,
        runs=len(said.runs),
        run_id=alone,
        digest=signed.digest,
    )
