"""The floor: the least that a governed runtime must do for a call, written by hand and straight down.

It records what the model said, parses and validates the arguments, decides, appends six events per call to a hash
chain, runs the calls of a turn side by side, and gives their capped output back in model order. In memory, or in SQLite
with `synchronous=FULL` and two commits per turn: what is about to run before it runs, what came of it before it is
shown.

It is a limit to approach, not a runtime. It has no error path, timeout, cancellation, approval, redaction, artifact,
duplicate check, concurrency rule, telemetry or resume; and a commit holds up its event loop.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from inspect import iscoroutinefunction
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

import msgspec
from pydantic import BaseModel

from .sections import main
from .work import FUNCTIONS, Call, Message

_MAX_OUTPUT_CHARS = 12_000
_ALLOWED = frozenset(function.__name__ for function in FUNCTIONS)
_TOOLS = {function.__name__: (function, iscoroutinefunction(function)) for function in FUNCTIONS}


class _Arguments(BaseModel):
    path: str
    count: int
    ratio: float


_read = _Arguments.__pydantic_validator__.validate_json
_encode = msgspec.json.Encoder().encode


class _Chain:
    """Events as bytes, each hashed together with the hash before it."""

    def __init__(self, path: Path | None) -> None:
        self._head = bytes(32)
        self._seq = 0
        self._new: list[tuple[int, bytes, bytes]] = []
        self._kept: list[tuple[int, bytes, bytes]] = []
        self._file = None if path is None else _open(path)

    def add(self, kind: str, call_id: str, **fact: object) -> None:
        body = _encode({"seq": self._seq, "at": time_ns(), "type": kind, "call_id": call_id, **fact})
        self._head = sha256(self._head + body).digest()
        self._new.append((self._seq, body, self._head))
        self._seq += 1

    def commit(self) -> None:
        new, self._new = self._new, []
        if self._file is None:
            self._kept += new
            return
        self._file.execute("BEGIN")
        self._file.executemany("INSERT INTO events VALUES (?, ?, ?)", new)
        self._file.execute("COMMIT")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class FloorRun:
    """Implements `work.LiveRun`."""

    def __init__(self, path: Path | None) -> None:
        self._chain = _Chain(path)

    async def turn(self, calls: list[Call]) -> list[Message]:
        self._chain.add("said", "", calls=calls)
        ready = [self._permitted(call["id"], **call["function"]) for call in calls]
        self._chain.commit()
        if len(ready) == 1:
            messages = [await self._carried_out(*ready[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._carried_out(*item)) for item in ready]
            messages = [task.result() for task in tasks]
        self._chain.commit()
        return messages

    async def close(self) -> None:
        self._chain.close()

    def _permitted(self, call_id: str, name: str, arguments: str) -> tuple[str, str, dict[str, Any]]:
        add = self._chain.add
        add("proposed", call_id, tool=name, raw=arguments)
        values = _read(arguments).__dict__
        add("validated", call_id, ok=True)
        verdict = "allow" if name in _ALLOWED else "deny"
        add("judged", call_id, verdict=verdict)
        add("started", call_id)
        return call_id, name, values

    async def _carried_out(self, call_id: str, name: str, values: dict[str, Any]) -> Message:
        function: Callable[..., Any]
        function, asynchronous = _TOOLS[name]
        began = perf_counter_ns()
        output = await function(**values) if asynchronous else await asyncio.to_thread(function, **values)
        self._chain.add("completed", call_id, exit="ok", nanoseconds=perf_counter_ns() - began)
        shown = {"trust": "untrusted", "text": output[:_MAX_OUTPUT_CHARS]}
        self._chain.add("observed", call_id, content=shown)
        return {"role": "tool", "tool_call_id": call_id, "content": shown}


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    file.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB, hash BLOB)")
    return file


if __name__ == "__main__":
    main(FloorRun)
