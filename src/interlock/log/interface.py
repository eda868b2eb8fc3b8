"""The event log: append-only, per run, dense `seq`. What is not in it did not happen.

Promises, proved for every implementation by `tests/log/conformance.py`:

1. `append` is done only when the entries are durable; all of one append are written, or none.
2. Entries of a run have `seq` 0, 1, 2, ...; an append that does not continue the run raises `LogFencedError` and
   writes nothing.
3. After any other failed append the log refuses further appends (`LogWriteError`): "raised" does not mean "not
   written", so nobody may go on as if nothing had been. Reopening decides.
4. `read` returns exactly the bytes that were appended, in order.
5. A snapshot is a hint: losing it loses nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..domain.chain import Entry


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a run after `seq`, and the chain's hash there, to start folding from."""

    seq: int
    hash: bytes
    state: bytes


class EventLog(Protocol):
    @property
    def immediate(self) -> bool:
        """Is an append durable when it returns? Then there is nothing to gain from gathering them."""
        ...

    def append(self, run_id: str, entries: Sequence[Entry]) -> "asyncio.Future[None] | None":
        """Make the entries durable: None when they already are, else a future that is done when they are.

        They continue the run, or `LogFencedError`: raised, or set on the future. Giving up the wait does not take the
        append back.
        """
        ...

    async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[Entry]:
        """The entries after `after_seq`, in order; an unknown run has none."""
        ...

    async def run_ids(self) -> list[str]:
        """Every run, oldest first."""
        ...

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None: ...

    async def load_snapshot(self, run_id: str) -> Snapshot | None: ...

    async def close(self) -> None:
        """Finish what was handed in and release files and threads. Closing twice is fine."""
        ...
