"""What the log of the demo says: how often each call was asked about, started and done, and that nobody changed it."""

import asyncio
from collections import Counter
from pathlib import Path

import msgspec

from ..domain import event as facts
from ..domain.chain import Entry, decode_event
from ..history.verify import Audit, verify
from ..log.sqlite import SqliteLog
from .demo_story import EDIT, RUN_ID
from .runs_words import acts_on


class CallFacts(msgspec.Struct, frozen=True):
    tool: str
    acts_on: str
    #: How often.
    asked: int
    started: int
    outcome: str


def read_entries(log: Path) -> list[Entry]:
    async def read() -> list[Entry]:
        async with SqliteLog(log) as opened:
            return await opened.read(RUN_ID)

    return asyncio.run(read())


def call_facts(entries: list[Entry]) -> list[CallFacts]:
    known: dict[str, facts.CallProposed] = {}
    asked, started = Counter[str](), Counter[str]()
    outcomes: dict[str, str] = {}
    for fact in (decode_event(entry).fact for entry in entries):
        match fact:
            case facts.CallProposed():
                known.setdefault(fact.call_id, fact)
            case facts.ApprovalRequested():
                asked[fact.call_id] += 1
            case facts.InvocationStarted():
                started[fact.call_id] += 1
            case facts.CallObserved():
                outcomes[fact.observation.call_id] = fact.observation.code
            case _:
                pass
    return [
        CallFacts(call.tool, acts_on(call.raw_input), asked[call_id], started[call_id], outcomes.get(call_id, "open"))
        for call_id, call in known.items()
    ]


def audit_of(entries: list[Entry]) -> Audit:
    return verify(entries, RUN_ID)


def tampered(entries: list[Entry]) -> list[Entry]:
    """Somebody wants the record of the edit to name another file."""
    before, after = b"shop.py", b"shoq.py"
    place = next(n for n, entry in enumerate(entries) if before in entry.body and EDIT.encode() in entry.body)
    changed = msgspec.structs.replace(entries[place], body=entries[place].body.replace(before, after, 1))
    return [*entries[:place], changed, *entries[place + 1 :]]
