"""What auditors take with them and check: exports, proofs, forwarding, and what people did to the server itself.

Every export that is taken, and every run that is sent somewhere, is in the journal with who did it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from time import monotonic

import msgspec

from ....audit.keys import PublicKey
from ....audit.proof import Proof
from ....audit.schemas import MEDIA_TYPES, SCHEMAS, FormName, SchemaName, export
from ....audit.signed_line import SignedCheckpoint
from ....audit.verify import verify
from ....domain.errors import LogCorruptError
from ....storage.event_log import EventLog
from ..audit_sinks.forwarder import ForwardStatus, RunForwarded
from ..audit_sinks.forwarders import Forwarders
from ..errors import BusyError, ConflictError, unknown
from ..identity.guard import Guard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from .audit_log import Journal, JournalCheck, JournalEntry
from .chain_reader import Trail, walk, written
from .checkpoints import Checkpoints, Verified
from .signing import Signer

_MAX_FLAWS = 100
#: How long one check of everything may go on before it says how far it came.
CHECK_SECONDS = 60.0


class Export(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    file_name: str
    count: int
    #: The checkpoint that ends it, where its schema has a place for one.
    signed: SignedCheckpoint | None
    chunks: AsyncGenerator[bytes]


class RunFlaw(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    seq: int
    problem: str
    message: str


class ServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is what was written and signed."""

    ok: bool
    #: False: it took too long, and only so many runs were looked at.
    finished: bool
    runs: int
    events: int
    flaws: tuple[RunFlaw, ...]
    checkpoints: Verified
    journal: JournalCheck


class Auditing:
    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        guard: Guard,
        log: EventLog,
        journal: Journal,
        checkpoints: Checkpoints,
        signer: Signer,
        forwarders: Forwarders,
        host: str = "",
    ) -> None:
        self._guard = guard
        self._log = log
        self._journal = journal
        self._checkpoints = checkpoints
        self._signer = signer
        self._forwarders = forwarders
        self._host = host
        self._checking = asyncio.Lock()

    async def export(
        self, who: Principal, run_id: str, schema: SchemaName = "interlock", form: FormName | None = None
    ) -> Export:
        """The whole trail of a run. In the schema `interlock` it can be verified, and is signed.

        It is read twice, a page at a time: before the first byte goes out, so that an export is whole or is none; and
        then as fast as it is taken."""
        row = await self._guard.run(who, run_id, Operation.EXPORT_RUN)
        chosen, count, signed = form or SCHEMAS[schema].form, row.last_seq + 1, None
        if schema == "interlock":
            trail = await self._walked(run_id)
            count = len(trail.hashes)
            signed = await self._checkpoints.of_chain(run_id, trail.hashes) if trail.is_chain and count else None
        detail = {"schema": schema, "format": chosen, "events": str(count)}
        await self._journal.add(who.name, "audit.exported", run_id, detail=detail)
        ending = "json" if chosen == "json" else "ndjson" if SCHEMAS[schema].is_json else "log"
        return Export(
            media_type=MEDIA_TYPES[chosen],
            file_name=f"{_plain(run_id)}.{schema}.{ending}",
            count=count,
            signed=signed,
            chunks=written(
                self._log,
                run_id,
                count,
                lambda entries: export(entries, schema, chosen, signed=signed, host=self._host),
            ),
        )

    async def verify_run(self, who: Principal, run_id: str) -> Proof:
        await self._guard.run(who, run_id, Operation.VERIFY_RUN)
        return await self._checkpoints.verify_run(run_id)

    async def verify_all(self, who: Principal) -> ServerCheck:
        """Every run, the journal, and what was signed. One check at a time."""
        await self._guard.check(who, Operation.VERIFY_SERVER)
        if self._checking.locked():
            raise BusyError("already_checking", "Everything is being checked right now. Try again when that is done.")
        async with self._checking:
            return await self._check_all()

    async def forward(self, who: Principal, run_id: str, destination: str) -> RunForwarded:
        """Send all events of a run to a configured destination now."""
        await self._guard.run(who, run_id, Operation.FORWARD_RUN)
        forwarder = self._forwarders.get(destination)
        if forwarder is None:
            raise unknown("destination", destination)
        came = await forwarder.forward_run(run_id)
        await self._journal.add(
            who.name,
            "audit.forwarded",
            run_id,
            outcome="failed" if came.problem else "done",
            detail={"destination": destination, "sent": str(came.sent), "total": str(came.total)},
        )
        return came

    async def forwarders(self, who: Principal) -> list[ForwardStatus]:
        await self._guard.check(who, Operation.READ_FORWARDERS)
        return await self._forwarders.statuses()

    async def checkpoints(self, who: Principal, after: int = 0, limit: int = 100) -> Sequence[SignedCheckpoint]:
        await self._guard.check(who, Operation.READ_CHECKPOINTS)
        return await self._checkpoints.list(after, limit)

    async def keys(self) -> tuple[PublicKey, ...]:
        """What signatures are checked with, the oldest first. Public."""
        return await asyncio.to_thread(self._signer.keys)

    async def journal(self, who: Principal, after: int = 0, limit: int = 100) -> tuple[JournalEntry, ...]:
        await self._guard.check(who, Operation.READ_JOURNAL)
        return await self._journal.read(after, limit)

    async def _walked(self, run_id: str) -> Trail:
        try:
            return await walk(self._log, run_id)
        except LogCorruptError as error:
            raise ConflictError("log_damaged", f"{error}. Nothing was exported; verify the run.") from None

    async def _check_all(self) -> ServerCheck:
        runs = events = 0
        flaws: list[RunFlaw] = []
        finished, end = True, monotonic() + CHECK_SECONDS
        for run_id in await self._log.run_ids():
            if monotonic() > end:
                finished = False
                break
            entries = await self._log.read(run_id)
            audit = await asyncio.to_thread(verify, entries, run_id)
            runs, events = runs + 1, events + len(entries)
            if audit.flaw is not None and len(flaws) < _MAX_FLAWS:
                flaw = audit.flaw
                flaws.append(RunFlaw(run_id=run_id, seq=flaw.seq, problem=flaw.problem, message=flaw.message))
        checkpoints, journal = await self._checkpoints.verify(), await self._journal.verify()
        return ServerCheck(
            ok=not flaws and checkpoints.ok and not journal.problem,
            finished=finished,
            runs=runs,
            events=events,
            flaws=tuple(flaws),
            checkpoints=checkpoints,
            journal=journal,
        )


def _plain(run_id: str) -> str:
    """As part of a file's name."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in run_id)
    return kept[:100].lstrip(".") or "run"
