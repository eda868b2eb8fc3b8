"""The processes that are measured: `interlock serve` as people start it, and an application with one empty route.

`python -m bench.service_process` is the latter. Both are uvicorn with the same options.
"""

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI

from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.identity.api_keys import ApiKeys, NewApiKey
from interlock.server.core.identity.principal import Role

from .service_agents import REPORT_VARIABLE
from .service_client import Client

ROOT = Path(__file__).resolve().parents[1]
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 300.0
_STOP_SECONDS = 30.0
_SETTLE_SECONDS = 120.0
_IDLE_SHARE = 0.08
_AGENTS = {
    "asker": "asker",
    "busy": "busy",
    "sleeper": "sleeper",
    "stepper": "stepper",
    **{f"agent-{number}": "asker" for number in range(10)},
}


class Keys(NamedTuple):
    #: Makes runs.
    agent: str
    #: Reads and decides.
    operator: str


class Server:
    def __init__(self, process: asyncio.subprocess.Process, port: int, output: Path, started_seconds: float) -> None:
        self.pid = process.pid
        self.port = port
        self.output = output
        #: From the start of the process to the first answer that it is ready.
        self.started_seconds = started_seconds

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def use_one_core(self) -> None:
        """Keep the server on the last core, all threads of it."""
        core = max(os.sched_getaffinity(0))
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})

    def resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    async def settled(self, look_seconds: float) -> float:
        """Returns when it had nothing to do for so long. The seconds until then, to that many."""
        began = monotonic()
        while monotonic() < began + _SETTLE_SECONDS:
            before = self.cpu_seconds()
            await asyncio.sleep(look_seconds)
            if self.cpu_seconds() - before <= max(_IDLE_SHARE * look_seconds, 2 / _TICKS_PER_SECOND):
                break
        return monotonic() - began


async def make_keys(folder: Path) -> Keys:
    """Before the server starts, as its own command does."""
    state = folder / "runs.db.server"
    state.mkdir(mode=0o700, exist_ok=True)
    database = SqliteDatabase(state / "server.db")
    try:
        keys = ApiKeys(database)
        made = [
            await keys.create("maker", roles=[Role.AGENT], agents=frozenset(_AGENTS), by="bench"),
            await keys.create("decider", roles=[Role.OPERATOR], by="bench"),
        ]
    finally:
        database.close()
    return Keys(*(key.secret for key in made if isinstance(key, NewApiKey)))


@asynccontextmanager
async def interlock_server(folder: Path, report_port: int = 0) -> AsyncGenerator[Server]:
    """Nothing of it is unusual but that nobody is told to come back later."""
    settings = folder / "serve.toml"
    agents = "".join(f'[agents.{name}]\nobject = "bench.service_agents:{made}"\n' for name, made in _AGENTS.items())
    settings.write_text(f"[server]\nrequests_per_second = 1000000\nrequest_burst = 1000000\n{agents}", encoding="utf-8")
    options = ("--config", str(settings), "--port", "0", "--log", str(folder / "runs.db"))
    command = (str(Path(sys.executable).with_name("interlock")), "serve", *options)
    async with _running(command, folder, report_port, "/health/ready") as server:
        yield server


@asynccontextmanager
async def empty_server(folder: Path) -> AsyncGenerator[Server]:
    async with _running((sys.executable, "-m", "bench.service_process"), folder, 0, "/") as server:
        yield server


@asynccontextmanager
async def _running(command: Sequence[str], folder: Path, report_port: int, path: str) -> AsyncGenerator[Server]:
    environment = {"PATH": os.defpath, "HOME": str(folder), REPORT_VARIABLE: str(report_port or "")}
    output, began = folder / "output.txt", perf_counter()
    with output.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=written, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=environment
        )
        try:
            port = await _said_port(process, output)
            answer = await Client(port).ask("GET", path)
            assert answer.status == 200, answer
            yield Server(process, port, output, perf_counter() - began)
        finally:
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _said_port(process: asyncio.subprocess.Process, output: Path) -> int:
    until = monotonic() + _START_SECONDS
    while process.returncode is None and monotonic() < until:
        if said := re.search(r"at http://127\.0\.0\.1:(\d+)/", _said(output)):
            return int(said[1])
        await asyncio.sleep(0.005)
    raise RuntimeError(f"The server did not start: {_said(output)[-2_000:]}")


def _said(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")


async def _nothing() -> dict[str, str]:
    return {"status": "ok"}


def main() -> None:
    app = FastAPI()
    app.add_api_route("/", _nothing)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    # asyncio does this for sockets that it makes itself. Without it, an answer waits 40 ms for the client's receipt.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"Nothing is served at http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, timeout_keep_alive=5)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
