"""Conversations: runs that wait for the next message of their user after each answer."""

from ....domain.event import ModelResponded, RunStarted, decode_event
from ....domain.state.lifecycle import RunState
from ....storage.event_log import EventLog
from ..index.rows import RunRow


async def is_idle(log: EventLog, row: RunRow) -> bool:
    """Return True if the run is a conversation in which every message has its answer. Reads two events at most."""
    if row.state is not RunState.RUNNING or row.is_damaged or row.last_seq < 1:
        return False
    last = await log.read(row.run_id, row.last_seq - 1, 1)
    fact = decode_event(last[0]).fact if last else None
    if not isinstance(fact, ModelResponded) or fact.call_count:
        return False
    first = await log.read(row.run_id, -1, 1)
    begun = decode_event(first[0]).fact if first else None
    return isinstance(begun, RunStarted) and begun.is_chat
