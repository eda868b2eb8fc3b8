"""The runs inside the calls of a run: which ones are its own.

The log of a fork also names runs inside calls of the run that it was forked from, and anybody may start a run under the
id that a call's run will have. Neither is inside this one, so neither is gone on with, waited for or ended from here.
"""

from ..domain.chain import decode_event
from ..domain.event import SCHEMA_VERSION, RunStarted
from ..domain.ids import child_run_id
from ..domain.state.ledger import CallEntry, Ledger
from ..storage.event_log import EventLog


def open_inside(ledger: Ledger) -> list[str]:
    """Those that its calls wait for. A list: the run may go on while each is looked at."""
    calls = [(call_id, call) for call_id, call in ledger.calls.items() if call.child_run_id and call.observed_seq < 0]
    return [call.child_run_id for call_id, call in calls if _is_own(ledger, call_id, call)]


async def begun_inside(log: EventLog, ledger: Ledger) -> list[str]:
    """Those that its calls ever waited for, and those that open calls may have begun before that was recorded."""
    calls = [
        call_id
        for call_id, call in ledger.calls.items()
        if (_is_own(ledger, call_id, call) if call.child_run_id else call.observed_seq < 0)
    ]
    named = [(child_run_id(ledger.run_id, call_id), call_id) for call_id in calls]
    return [run_id for run_id, call_id in named if await parent_of(log, run_id) == (ledger.run_id, call_id)]


async def parent_of(log: EventLog, run_id: str) -> tuple[str, str] | None:
    """The run and the call that it says it is inside of; None: there is no such run."""
    begun = await begun_as(log, run_id)
    return None if begun is None else (begun.parent_run_id, begun.parent_call_id)


async def begun_as(log: EventLog, run_id: str) -> RunStarted | None:
    """What its first event says; None: there is no such run."""
    first = await log.read(run_id, limit=1)
    if not first:
        return None
    fact = decode_event(first[0]).fact
    return fact if isinstance(fact, RunStarted) else RunStarted(schema=SCHEMA_VERSION)


def _is_own(ledger: Ledger, call_id: str, call: CallEntry) -> bool:
    return call.child_run_id == child_run_id(ledger.run_id, call_id)
