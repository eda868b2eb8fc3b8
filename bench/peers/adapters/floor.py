"""The floor: the least that a governed runtime must do for a call, written by hand and straight down.

It records what the model said, parses and validates the arguments, decides, appends six events per call to a hash
chain, runs the calls of a turn side by side, and gives their capped output back in model order. On disk it is SQLite in
WAL mode with `synchronous=FULL` and two commits per turn: what is about to run before it runs, its outcome before the
model sees it.

It is a limit to approach, not a runtime. It has no error path, timeout, cancellation, redaction, artifact, duplicate
check, concurrency rule, telemetry or lease; and a commit holds up its event loop.
"""

import asyncio
import shutil
import sqlite3
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import orjson
from harness import (
    MARK,
    SLEEP_SECONDS,
    arguments_json,
    main,
    now,
    per_call,
    result_text,
    span,
    temporary_folder,
)
from pydantic import BaseModel

_MAX_OUTPUT_CHARS = 12_000


class Arguments(BaseModel):
    path: str
    count: int
    ratio: float


async def t_async(path, count, ratio):
    MARK.tool()
    return result_text(path, count, ratio)


async def t_sleep(path, count, ratio):
    MARK.tool()
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


def t_sleep_sync(path, count, ratio):
    MARK.tool()
    time.sleep(SLEEP_SECONDS)
    return "ok"


#: By name, a tool and whether it is async.
TOOLS = {
    "t_async": (t_async, True),
    "t_sleep": (t_sleep, True),
    "t_sleep_sync": (t_sleep_sync, False),
    "t_appr": (t_async, True),
}
validate = Arguments.__pydantic_validator__.validate_json


class Log:
    """A hash-chained audit log; without a database it keeps bytes in memory."""

    def __init__(self, database=None):
        self.head, self.count, self.kept, self.buffer = b"\0" * 32, 0, [], []
        self.database = database
        if database:
            database.execute("pragma journal_mode=wal")
            database.execute("pragma synchronous=FULL")
            database.execute("create table if not exists ev(seq integer primary key, run text, body blob, h blob)")

    def add(self, **event):
        event["seq"] = self.count
        event["ts"] = time.time_ns()
        body = orjson.dumps(event)
        self.head = sha256(self.head + body).digest()
        self.buffer.append((self.count, "run", body, self.head))
        self.count += 1

    def commit(self):
        if self.database:
            self.database.execute("begin")
            self.database.executemany("insert into ev values(?,?,?,?)", self.buffer)
            self.database.execute("commit")
        else:
            self.kept.extend(self.buffer)
        self.buffer = []


class PausedError(Exception):
    pass


def decide(name):
    return "ask" if name == "t_appr" else "allow"


def call(number, name):
    return {"id": f"call_{number}", "name": name, "arguments": arguments_json(number)}


class Adapter:
    PACKAGES = ("pydantic", "orjson")

    async def setup(self):
        self.folder = Path(tempfile.mkdtemp(dir=temporary_folder()))
        self.files = 0
        self.script, self.turn, self.seen = [], 0, []

    def prepare(self, turns, calls, tool):
        script = [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call(turn * calls + index, "t_" + tool) for index in range(calls)],
            }
            for turn in range(turns)
        ]
        return [*script, {"role": "assistant", "content": "done"}]

    async def execute(self, script, log=None):
        self.script, self.turn = script, 0
        assert await self.run([{"role": "user", "content": "go"}], log or Log()) == "done"
        return sum([message["role"] == "tool" for message in self.seen])

    async def model(self, messages):
        MARK.enter()
        answer = self.script[self.turn]
        self.turn += 1
        self.seen = messages
        MARK.exit()
        return answer

    async def run(self, messages, log, approved=()):
        while True:
            last = messages[-1]
            if not last.get("tool_calls"):
                last = await self.model(messages)
                messages.append(last)
                log.add(type="model.response", body=last)
                if not last.get("tool_calls"):
                    log.commit()
                    return last["content"]
            ready = [self.permit(log, approved, **wanted) for wanted in last["tool_calls"]]
            log.commit()
            if len(ready) == 1:
                messages.append(await self.carry_out(log, *ready[0]))
            else:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.carry_out(log, *item)) for item in ready]
                messages.extend(task.result() for task in tasks)
            log.commit()

    def permit(self, log, approved, id, name, arguments):
        log.add(type="tool.intent", id=id, tool=name, raw=arguments)
        function, is_async = TOOLS[name]
        values = validate(arguments).__dict__
        log.add(type="tool.validation", id=id, ok=True)
        decision = decide(name)
        log.add(type="tool.permission", id=id, decision=decision)
        if decision == "ask" and id not in approved:
            log.add(type="run.paused", id=id, args_hash=sha256(arguments.encode()).hexdigest())
            log.commit()
            raise PausedError(id)
        log.add(type="tool.started", id=id)
        return id, function, is_async, values

    async def carry_out(self, log, call_id, function, is_async, values):
        began = time.perf_counter_ns()
        output = await function(**values) if is_async else await asyncio.to_thread(function, **values)
        log.add(type="tool.completed", id=call_id, exit="ok", ns=time.perf_counter_ns() - began)
        shown = {"trust": "tool_output_untrusted", "text": output[:_MAX_OUTPUT_CHARS]}
        message = {"role": "tool", "tool_call_id": call_id, "content": shown}
        log.add(type="tool.observation", id=call_id, body=message)
        return message

    async def pause_resume(self, turns):
        path = self.new_path()
        database = connect(path)
        log = Log(database)
        asks = {"role": "assistant", "content": "", "tool_calls": [call(10_000_000, "t_appr")]}
        script = self.prepare(turns, 1, "async")
        self.script, self.turn = [*script[:-1], asks, script[-1]], 0
        messages = [{"role": "user", "content": "go"}]
        log.add(type="user", body=messages[0])
        with suppress(PausedError):
            await self.run(messages, log)
            raise AssertionError("it did not pause")
        paused, said = now(), MARK.exits[-1]
        database.close()
        began = now()
        database = connect(path)
        log, messages, head = Log(database), [], b"\0" * 32
        for _seq, body, stored in database.execute("select seq, body, h from ev order by seq"):
            head = sha256(head + body).digest()
            if head != stored:
                raise AssertionError("the chain is broken")
            event = orjson.loads(body)
            if "body" in event:
                messages.append(event["body"])
            log.count += 1
        log.head = head
        assert await self.run(messages, log, approved={"call_10000000"}) == "done"
        database.close()
        return {
            **span("pause", said, paused),
            **span("resume", began, MARK.enters[-1]),
            "bytes": path.stat().st_size,
        }

    async def durable(self, turns, calls):
        path = self.new_path()
        database = connect(path)
        log, script = Log(database), self.prepare(turns, calls, "async")
        began = now()
        await self.execute(script, log)
        ended = now()
        database.close()
        return per_call(began, ended, turns * calls, path.stat().st_size)

    def new_path(self):
        self.files += 1
        return self.folder / f"{self.files}.sqlite"

    async def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def connect(path):
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


if __name__ == "__main__":
    main(Adapter)
