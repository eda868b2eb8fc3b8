"""Metrics and health of a process that serves runs."""

import asyncio
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from interlock import Agent, Runner, SqliteLog
from interlock.cli.session.metrics_server import serve_metrics
from interlock.domain.errors import ConfigurationError, LogError
from interlock.engine.metrics import Gauge, ProcessMetrics, Values
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer

from .workers import ROOT, Office, approve, wait_until_over


async def fetch(port: int, path: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(get)


def values_of(text: str) -> dict[str, float]:
    """Return the values by name and label. Every line of the text is one, or describes some."""
    lines = [line for line in text.splitlines() if not line.startswith(("# HELP ", "# TYPE "))]
    found = [re.fullmatch(r'([a-z_]+(?:\{[a-z]+="(?:[^"\\]|\\.)*"\})?) ([0-9.e+-]+)', line) for line in lines]
    return {match[1]: float(match[2]) for match in found if match is not None} if all(found) else {}


async def test_events_and_failures_are_counted(tmp_path: Path) -> None:
    turns = [ScriptedTurn(calls=(tool_call("missing"),)), ScriptedTurn(text="Done.")]
    async with SqliteLog(tmp_path / "runs.db") as log, serve_metrics(metrics := ProcessMetrics(log), 0) as port:
        async with Runner(Agent(name="clerk", provider=ScriptedModel(turns)), log=log) as runner:
            await runner.run("Do it.")
        async with asyncio.timeout(HANG_SECONDS):
            while 'type="run.completed"' not in (await metrics.render()):
                await asyncio.to_thread(log.version)
        status, text = await fetch(port, "/metrics")

    values = values_of(text)
    assert status == 200
    assert values['interlock_call_failures_total{code="unknown_tool"}'] == 1
    assert values['interlock_events_total{type="tool.intent"}'] == 1
    assert values["interlock_process_log_up"] == 1
    assert values["interlock_process_loop_lag_seconds"] >= 0


async def test_gauges_are_escaped_and_left_out_when_they_fail(tmp_path: Path) -> None:
    async def read() -> Values:
        return {'a"b\\c\n': 2.5}

    async def fail() -> Values:
        raise LogError("gone")

    gauges = (Gauge("good", "Good.", "queue", read), Gauge("bad", "Bad.", "", fail))
    async with SqliteLog(tmp_path / "runs.db") as log:
        text = await ProcessMetrics(log, *gauges).render()

    assert 'good{queue="a\\"b\\\\c\\n"} 2.5\n' in text
    assert "bad" not in text


async def test_health_and_other_paths(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log, serve_metrics(ProcessMetrics(log), 0) as port:
        paths = ("/health/live", "/health/ready", "/", "/metrics?x=1")
        found = [(await fetch(port, path))[0] for path in paths]
        with pytest.raises(ConfigurationError, match=r"--metrics-port: cannot listen on 127.0.0.1 port"):
            async with serve_metrics(ProcessMetrics(log), port):
                pass

    assert found == [200, 200, 404, 200]


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    sources = (*(ROOT / "src/interlock/engine").glob("*.py"), ROOT / "src/interlock/server/core/metrics.py")
    names = {name for source in sources for name in re.findall(r'"(interlock_[a-z_]+)"', source.read_text())}

    assert len(names) >= 14
    assert {name for name in names if f"`{name}" not in page} == set()


async def test_worker_serves_its_metrics(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    office = Office(postgres, tmp_path)
    from_worker = office.worker("--metrics-port", "0")
    async with office.open_log() as log, asyncio.timeout(HANG_SECONDS):
        with from_worker as worker:
            port = int(worker.greeting.rpartition(":")[2].partition("/")[0])
            await office.submit(log, "run")
            await approve(log, "run")
            await wait_until_over(log, "run")
            while 'type="run.completed"' not in (text := (await fetch(port, "/metrics"))[1]):
                await log.wait_for_change(log.version(), 0.1)
            ready = await fetch(port, "/health/ready")
            assert worker.stop() == 0

    values = values_of(text)
    assert ready == (200, "ok\n")
    assert values['interlock_events_total{type="approval.granted"}'] == 1
    assert values["interlock_processes"] == 2
    assert values['interlock_runs{state="ready"}'] == 0
    assert values["interlock_process_recovered_runs"] == 0
