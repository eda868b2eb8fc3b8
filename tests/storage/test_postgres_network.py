"""A host that is cut off from the database: its runs are taken over, and it cannot append when it is back."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs import wait_until_free
from tests.postgres.network import Host
from tests.postgres.server import PostgresServer

from .runs import append, chain, chained

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(host: Host) -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start_for(host.server_address)
    finally:
        server.close()


@pytest.mark.requirement("D15")
async def test_host_that_was_cut_off_is_fenced(host: Host, server: PostgresServer) -> None:
    schema, first = server.new_schema(), chained("run", 1)
    run = chain("run", [first[0].body, b"the event of another host"])
    url = f"postgresql://worker@{host.server_address}/postgres"
    command = ["ip", "netns", "exec", host.name, sys.executable, "-m", "tests.storage.cut_off_process", url, schema]
    with subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        host.cut_off()
        async with server.open_log(schema) as log:
            await wait_until_free(log, "run")
            await append(log, "run", run[1:], await log.acquire("run"))

            process.stdin.write("\n")
            process.stdin.flush()
            host.connect()

            assert process.stdout.readline() == "fenced\n"
            assert await log.read("run") == run
