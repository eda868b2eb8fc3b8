"""What is measured of a server, section by section: each makes a folder's worth of runs, asks over HTTP, and returns
figures by their names."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, time_ns
from typing import Any, NamedTuple, TypeAlias

from interlock import SqliteLog

from .service_client import Client, Connection, load
from .service_lists import pause_runs
from .service_process import ROOT, Keys, Server, empty_server, end, interlock_server, make_keys

#: By its name, a figure in every round; most have one.
Series: TypeAlias = dict[str, list[float]]

_MS, _US = 1e3, 1e6
_LISTS = 20
_IDLE_LOOKS = 5
_LIST = "/v1/runs?status=PAUSED_APPROVAL&limit=1000"
_AT_ONCE = 16
_WAIT_SECONDS = 60.0
_EVENT = re.compile(rb"event (\d+) at (\d+) ")
_PASSWORD = re.compile(r"the password (\S+)")


class Sizes(NamedTuple):
    rounds: int = 5
    #: Paused runs in the list.
    listed: int = 1_000
    #: Runs that are made over HTTP, three times. The first ones warm up.
    made: int = 1_000
    readers: int = 50
    events_per_second: int = 200
    live_seconds: float = 10.0
    approvals: int = 100
    paused: int = 200
    live: int = 20
    #: Live runs that wait for a tool, whose memory is measured.
    waiting: int = 100
    connections: int = 32
    load_seconds: float = 3.0
    logins: int = 10
    #: A server is measured when it had nothing to do for so long.
    look_seconds: float = 1.0
    #: Paused runs at the start of a server.
    starts: tuple[int, ...] = (1_000, 10_000, 100_000)


async def measure_lists(folder: Path, sizes: Sizes) -> Series:
    """A server that found so many paused runs, asked for all of them."""
    keys = await _paused_log(folder, sizes.listed)
    async with interlock_server(folder) as server, Client(server.port, keys.operator).connections(1) as (connection,):
        await server.settled(sizes.look_seconds)
        request, taken = Client(server.port, keys.operator).request("GET", _LIST), list[float]()
        cpu = server.cpu_seconds()
        for _ in range(_LISTS):
            began = perf_counter()
            answer = await connection.send(request)
            taken.append((perf_counter() - began) * _MS)
            assert len(answer.json()["runs"]) == min(sizes.listed, 1_000)
        cpu = (server.cpu_seconds() - cpu) / _LISTS * _MS
        idle, began = server.cpu_seconds(), perf_counter()
        await asyncio.sleep(_IDLE_LOOKS * sizes.look_seconds)
        idle = (server.cpu_seconds() - idle) / (perf_counter() - began)
    return {"listed": [median(taken)], "listed at worst": [max(taken)], "listed cpu": [cpu], "idle": [idle]}


async def measure_making(folder: Path, sizes: Sizes) -> Series:
    """Runs that are made over HTTP and pause there, and what each of them keeps in memory and on disk. Then runs that
    wait for a tool.
    """
    keys, resident, rates, stored = await make_keys(folder), list[int](), list[float](), list[int]()
    async with interlock_server(folder) as server:
        for _ in range(3):
            began = perf_counter()
            await _make_runs(server, keys, "asker", sizes.made)
            rates.append(sizes.made / (perf_counter() - began))
            await _until_counted(server, keys, "PAUSED_APPROVAL", sizes.made * len(rates))
            await server.settled(sizes.look_seconds)
            resident.append(server.resident_bytes())
            stored.append(_stored_bytes(folder))
        live = await _make_runs(server, keys, "sleeper", sizes.waiting)
        await _until_counted(server, keys, "RUNNING", sizes.waiting)
        await server.settled(sizes.look_seconds)
        live_bytes = (server.resident_bytes() - resident[-1]) / sizes.waiting
        client = Client(server.port, keys.operator)
        for run_id in live:
            assert (await client.ask("POST", f"/v1/runs/{run_id}/cancel", {})).status == 200
        logins = [await _sign_in(server) for _ in range(sizes.logins)]
    return {
        "made": rates[1:],
        "bytes": [(after - before) / sizes.made for before, after in pairwise(resident)],
        "live bytes": [live_bytes],
        "stored": [(after - before) / sizes.made * 1_000 / (1 << 20) for before, after in pairwise(stored)],
        "login": logins,
    }


async def measure_throughput(folder: Path, sizes: Sizes) -> Series:
    """Runs of five calls that are made over HTTP and end, on one core; and what the requests alone cost: as many with
    one idempotency key, which find the run that is there.
    """
    found: Series = {"runs": [], "run cpu": [], "http": []}
    keys = await make_keys(folder)
    async with interlock_server(folder) as server:
        server.use_one_core()
        for number in range(sizes.rounds + 1):
            cpu, began = server.cpu_seconds(), perf_counter()
            await _make_runs(server, keys, "stepper", sizes.made)
            await _until_counted(server, keys, "COMPLETED", sizes.made * (number + 1) + min(number, 1))
            taken, cpu = perf_counter() - began, server.cpu_seconds() - cpu
            await server.settled(sizes.look_seconds)
            http = server.cpu_seconds()
            await _make_runs(server, keys, "stepper", sizes.made, "again")
            http = server.cpu_seconds() - http
            if number:  # the first one warms up
                found["runs"].append(sizes.made / taken)
                found["run cpu"].append(cpu / sizes.made * _MS)
                found["http"].append(100 * http / cpu)
    return found


async def measure_live(folder: Path, sizes: Sizes) -> Series:
    """Half of the readers follow one run, the others all runs; another process writes."""
    keys, total = await make_keys(folder), int(sizes.events_per_second * sizes.live_seconds)
    seen: list[list[int]] = [[] for _ in range(sizes.readers)]
    late: list[float] = []
    complete = asyncio.Event()

    def told(number: int, text: bytes, now: int) -> None:
        if found := _EVENT.search(text):
            seen[number].append(int(found[1]))
            late.append((now - int(found[2])) / 1e6)
            if len(late) >= total * sizes.readers:
                complete.set()

    async with interlock_server(folder) as server, _writer(folder, total, sizes.events_per_second) as writing:
        client = Client(server.port, keys.operator)
        paths = ("/v1/runs/run_live/events/stream?view=log", "/v1/events/stream?view=log")
        following = [
            await client.follow(paths[number % 2], lambda text, now, number=number: told(number, text, now))
            for number in range(sizes.readers)
        ]
        await server.settled(sizes.look_seconds)
        cpu, began = server.cpu_seconds(), perf_counter()
        wrote_seconds = await writing()
        await _within(complete.wait())
        share = (server.cpu_seconds() - cpu) / (perf_counter() - began)
        for transport in following:
            transport.abort()
    return {
        "lost": [float(sum(total - len(set(numbers)) for numbers in seen))],
        "twice": [float(sum(len(numbers) - len(set(numbers)) for numbers in seen))],
        "rate": [total / wrote_seconds],
        "delay p50": [quantile(late, 0.5)],
        "delay p99": [quantile(late, 0.99)],
        "share": [share],
    }


async def measure_approvals(folder: Path, sizes: Sizes) -> Series:
    """From before a yes is sent until the tool begins: alone, then beside runs that wait and runs that work."""
    keys = await make_keys(folder)
    async with _reports() as (port, started), interlock_server(folder, port) as server:
        alone = await _approved(server, keys, started, sizes.approvals)
        await _make_runs(server, keys, "asker", sizes.paused)
        busy = await _make_runs(server, keys, "busy", sizes.live)
        beside = await _approved(server, keys, started, sizes.approvals)
        client = Client(server.port, keys.operator)
        for run_id in busy:
            assert (await client.ask("POST", f"/v1/runs/{run_id}/cancel", {})).status == 200
    return {
        f"{name} {part}": [quantile(taken, share)]
        for name, taken in (("alone", alone), ("beside", beside))
        for part, share in (("p50", 0.5), ("p99", 0.99))
    }


async def measure_load(folder: Path, sizes: Sizes) -> Series:
    """One run is asked for over and over, and so is a route that does nothing, in turn."""
    for name in ("ours", "empty"):
        (folder / name).mkdir()
    keys = await _paused_log(folder / "ours", sizes.listed)
    found: Series = {}
    async with interlock_server(folder / "ours") as ours, empty_server(folder / "empty") as empty:
        run = Client(ours.port, keys.operator).request("GET", f"/v1/runs/run_{7 % sizes.listed:032x}")
        sides = [("ours", ours, run), ("empty", empty, Client(empty.port).request("GET", "/"))]
        await ours.settled(sizes.look_seconds)
        for number in range(sizes.rounds + 1):
            for name, server, request in sides[:: 1 if number % 2 else -1]:
                figures = await _loaded(server, request, sizes)
                if number:  # the first one warms up
                    for part, value in figures.items():
                        found.setdefault(f"{name} {part}", []).append(value)
    return found


async def measure_starts(folder: Path, sizes: Sizes) -> Series:
    """A server that finds so many paused runs: with the index that it left, and without it."""
    found: Series = {}
    resident: list[tuple[int, int]] = []
    for paused in sizes.starts:
        place = folder / str(paused)
        place.mkdir()
        await _paused_log(place, paused)
        async with interlock_server(place) as server:
            found[f"anew {paused}"] = [server.started_seconds]
            await server.settled(sizes.look_seconds)
        async with interlock_server(place) as server:
            found[f"again {paused}"] = [server.started_seconds]
            found[f"settled {paused}"] = [await server.settled(sizes.look_seconds)]
            resident.append((paused, server.resident_bytes()))
    found["resident"] = [resident[-1][1] / (1 << 20)]
    grown = resident[-1][1] - resident[0][1]
    found["bytes found"] = [grown / max(1, resident[-1][0] - resident[0][0])]
    return found


SECTIONS: Mapping[str, Callable[[Path, Sizes], Coroutine[Any, Any, Series]]] = {
    "lists": measure_lists,
    "making": measure_making,
    "throughput": measure_throughput,
    "live": measure_live,
    "approvals": measure_approvals,
    "load": measure_load,
    "starts": measure_starts,
}


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _stored_bytes(folder: Path) -> int:
    """Return the size of all databases and their journals."""
    return sum(path.stat().st_size for path in folder.rglob("*.db*") if path.is_file())


async def _paused_log(folder: Path, paused: int) -> Keys:
    async with SqliteLog(folder / "runs.db") as log:
        await pause_runs(log, paused)
    return await make_keys(folder)


async def _make_runs(server: Server, keys: Keys, agent: str, wanted: int, key: str = "") -> list[str]:
    """Make runs on several connections. `key`: their idempotency key."""
    client, numbers, made = Client(server.port, keys.agent), count(), list[str]()

    async def make(connection: Connection) -> None:
        while (number := next(numbers)) < wanted:
            headers = {"Idempotency-Key": key} if key else {}
            wish = {"agent": agent, "task": key or f"{time_ns()}-{number}"}
            answer = await connection.send(client.request("POST", "/v1/runs", wish, headers))
            made.append(answer.json()["run_id"])

    async with client.connections(min(wanted, _AT_ONCE)) as connections:
        await asyncio.gather(*map(make, connections))
    return made


async def _until_counted(server: Server, keys: Keys, state: str, wanted: int) -> None:
    client, until = Client(server.port, keys.operator), perf_counter() + _WAIT_SECONDS
    while perf_counter() < until:
        counted = (await client.ask("GET", "/v1/activity?limit=1")).json()["runs"]
        if counted[state] >= wanted:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not all of {wanted} runs are {state}")


async def _loaded(server: Server, request: bytes, sizes: Sizes) -> dict[str, float]:
    async with Client(server.port).connections(sizes.connections) as connections:
        cpu = server.cpu_seconds()
        taken = await load(connections, request, sizes.load_seconds)
        cpu = server.cpu_seconds() - cpu
    return {
        "p50": quantile(taken, 0.5) * _MS,
        "p99": quantile(taken, 0.99) * _MS,
        "cpu": cpu / len(taken) * _US,
        "rate": len(taken) / sizes.load_seconds,
    }


async def _approved(server: Server, keys: Keys, started: "Started", wanted: int) -> list[float]:
    """The milliseconds of each of so many approvals, one after the other."""
    runs = await _make_runs(server, keys, "asker", wanted)
    client, taken = Client(server.port, keys.operator), list[float]()
    async with client.connections(1) as (connection,):
        for run_id in runs:
            action = await _question(client, connection, run_id)
            wish = {"payload_hash": action["payload_hash"]}
            request = client.request("POST", f"/v1/approvals/{action['action_id']}/approve", wish)
            began = time_ns()
            (await connection.send(request)).json()
            taken.append((await _within(started.get()) - began) / 1e6)
    return taken


async def _question(client: Client, connection: Connection, run_id: str) -> Any:
    until = perf_counter() + _WAIT_SECONDS
    while perf_counter() < until:
        run = (await connection.send(client.request("GET", f"/v1/runs/{run_id}"))).json()
        if run["status"] == "PAUSED_APPROVAL":
            return (await connection.send(client.request("GET", f"/v1/runs/{run_id}/approvals"))).json()["approvals"][0]
        await asyncio.sleep(0.005)
    raise TimeoutError(f"{run_id} did not pause")


async def _sign_in(server: Server) -> float:
    password = _PASSWORD.search(server.output.read_text(encoding="utf-8"))
    assert password is not None
    client = Client(server.port)
    async with client.connections(1) as (connection,):
        request = client.request("POST", "/v1/session", {"name": "admin", "password": password[1]})
        began = perf_counter()
        answer = await connection.send(request)
        assert answer.status == 201, answer
        return (perf_counter() - began) * _MS


Started: TypeAlias = "asyncio.Queue[int]"


class _Report(asyncio.DatagramProtocol):
    def __init__(self, started: Started) -> None:
        self._started = started

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._started.put_nowait(int(data.rpartition(b" ")[2]))


@asynccontextmanager
async def _reports() -> AsyncGenerator[tuple[int, Started]]:
    """Where tools say that they start, and when they did."""
    started: Started = asyncio.Queue()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Report(started), ("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[1], started
    finally:
        transport.close()


@asynccontextmanager
async def _writer(folder: Path, total: int, rate: int) -> AsyncGenerator[Callable[[], Awaitable[float]]]:
    """What is given begins to write, and returns the seconds that it took."""
    command = (sys.executable, "-m", "bench.service_writer", str(folder / "runs.db"), str(total), str(rate))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    given, said = process.stdin, process.stdout

    async def begin() -> float:
        given.write(b"\n")
        return float(await said.readline())

    try:
        assert await _within(said.readline()) == b"ready\n"
        yield begin
    finally:
        await end(process)


async def _within(awaited: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaited, _WAIT_SECONDS)
