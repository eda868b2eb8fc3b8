"""Signing, for `interlock audit`. Loaded on demand: it needs a package that verification does without."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ...audit.keys import PublicKey
from ...audit.signed_checkpoint import SignedCheckpoint
from ...domain.event import LogEntry
from ...server.core.audit.checkpoints import Checkpoints
from ...server.core.audit.signing import Signer
from ...server.core.database.sqlite import SqliteDatabase
from ...storage.memory import MemoryLog

_DATABASE = "server.db"


def sign_run(key_path: Path, run_id: str, entries: Sequence[LogEntry]) -> SignedCheckpoint | None:
    """Sign a run, and list it with everything the key signed. None when the events differ from what was written or
    signed.
    """
    signer = Signer(key_path)
    with closing(SqliteDatabase(key_path.with_name(_DATABASE))) as db:
        return asyncio.run(Checkpoints(db, MemoryLog(), signer).take_for_run(run_id, entries))


def rotate_key(key_path: Path) -> PublicKey:
    """Replace the signing key and return the new public key."""
    return Signer(key_path).rotate()
