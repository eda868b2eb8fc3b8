"""How soon a worker continues a run that was answered, beside many runs that wait, and what an idle worker costs.

The runs that wait are copies of a real one in every table: its events, its row in the lists, and its question.
"""

import asyncio
import subprocess
from statistics import median
from time import perf_counter
from typing import LiteralString, NamedTuple, cast

from interlock import Agent, Inbox, Rule, RulePolicy, Runner, tool
from interlock.domain.event import decode_event
from interlock.storage.postgres.log import PostgresLog
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call
from tests.postgres.server import PostgresServer

from .workers import cpu_seconds, start_worker

_COPY = """
INSERT INTO runs (run_id, next_seq, token, last_token, queue, state, wake_at, touched_at, indexed_seq, updated_at)
SELECT 'copy-' || n, next_seq, 0, last_token, queue, state, wake_at, touched_at, indexed_seq, updated_at
FROM runs, generate_series(1, {copies}) AS n WHERE run_id = '{run_id}';
INSERT INTO appends (run, seq, count, position, bodies, hashes)
SELECT copy.number, seq, count, position + copy.number, bodies, hashes
FROM appends JOIN runs AS original ON original.number = run, runs AS copy
WHERE original.run_id = '{run_id}' AND copy.run_id LIKE 'copy-%';
INSERT INTO indexed_runs (number, state, status, agent, requester, created_by, parent, framework, kind, inside, task,
    message, created_at, open_questions, begun, damaged_at, words)
SELECT copy.number, listed.state, status, agent, requester, created_by, listed.parent, framework, kind, inside, task,
    message, created_at, open_questions, begun, damaged_at, words
FROM indexed_runs AS listed JOIN runs AS original USING (number), runs AS copy
WHERE original.run_id = '{run_id}' AND copy.run_id LIKE 'copy-%';
INSERT INTO indexed_actions (number, run, action_id, state, status, agent, requester, created_by, call_id, tool,
    capability, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by)
SELECT asked.number + copy.number, copy.number, action_id, asked.state, status, agent, requester, created_by, call_id,
    tool, capability, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by
FROM indexed_actions AS asked JOIN runs AS original ON original.number = run, runs AS copy
WHERE original.run_id = '{run_id}' AND copy.run_id LIKE 'copy-%';
"""
_TABLES = ("runs", "appends", "indexed_runs", "indexed_actions")
_COUNT_WAITING = "SELECT count(*) FROM indexed_runs WHERE status = 'PAUSED_APPROVAL'"


class WakeUps(NamedTuple):
    """Milliseconds from the event of an answer to the event of the start of its call, and the CPU of an idle worker."""

    p50_ms: float
    p95_ms: float
    idle_percent: float
    paused: int


def agent() -> Agent:
    """Return an agent that asks before its only step."""

    @tool(risk="write", concurrency="safe")
    def pay(amount: int) -> str:
        """A step that a person allows."""
        return f"paid {amount}"

    turns = [ScriptedTurn(calls=(tool_call("pay", amount=1),)), ScriptedTurn(text="Done.")]
    return Agent(
        name="payer",
        provider=ScriptedModel(turns, by_position=True),
        tools=[pay],
        policy=RulePolicy([Rule(id="ask", verdict="ask", tools="pay", reason="Money.")], default="allow"),
    )


async def measure(server: PostgresServer, paused: int, answers: int, idle_seconds: float) -> WakeUps:
    """Pause runs, copy one of them, look at the worker while nothing happens, and answer the others one by one."""
    schema = server.new_schema()
    async with server.open_log(schema) as log:
        async with Runner(agent(), log=log) as runner:
            run_ids = [await runner.submit("Pay.") for _ in range(answers + 1)]
        with start_worker(server, schema, "bench.wakeups:agent") as worker:
            await _wait_for_questions(server, schema, log, len(run_ids))
            copied = _COPY.format(copies=max(paused - len(run_ids), 1), run_id=run_ids.pop())
            await asyncio.to_thread(server.execute, cast(LiteralString, copied), schema)
            for table in _TABLES:
                await asyncio.to_thread(server.execute, f"VACUUM ANALYZE {table}", schema)
            ((waiting,),) = server.query(_COUNT_WAITING, schema)
            idle = await _idle_percent(worker, idle_seconds)
            times = sorted([await _answer(log, run_id) for run_id in run_ids])
            worker.terminate()
    return WakeUps(median(times), times[int(len(times) * 0.95)], idle, waiting)


async def _wait_for_questions(server: PostgresServer, schema: str, log: PostgresLog, count: int) -> None:
    while server.query(_COUNT_WAITING, schema) != [(count,)]:
        await log.wait_for_change(log.version(), 0.1)


async def _idle_percent(worker: "subprocess.Popen[bytes]", seconds: float) -> float:
    before, begun = cpu_seconds(worker.pid), perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_seconds(worker.pid) - before) / (perf_counter() - begun) * 100


async def _answer(log: PostgresLog, run_id: str) -> float:
    """Approve, wait for the end of the run, and return the milliseconds between answer and start."""
    async with Inbox(log) as inbox:
        (question,) = await inbox.pending(run_id)
        await inbox.approve(question, by="ana")
        while not (await inbox.load_ledger(run_id)).is_over:
            await log.wait_for_change(log.version(), 0.2)
    at = {event.type: event.at for entry in await log.read(run_id) if (event := decode_event(entry))}
    return (at["tool.invocation.started"] - at["approval.granted"]) / 1e6
