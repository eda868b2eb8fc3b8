"""A host that is cut off from the database: its runs are taken over, and it cannot append when it is back."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs import wait_until_free
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer

from .runs import append, chain, chained

ROOT = Path(__file__).parents[2]


class Host:
    """A network namespace with one cable to this one."""

    def __init__(self) -> None:
        self.name = f"interlock{os.getpid()}"
        subnet = f"10.213.{os.getpid() % 256}"
        self.server_address = f"{subnet}.1"
        ip("netns", "add", self.name)
        ip("link", "add", self._here, "type", "veth", "peer", "name", "cable", "netns", self.name)
        ip("address", "add", f"{subnet}.1/24", "dev", self._here)
        ip("link", "set", self._here, "up")
        ip("-n", self.name, "address", "add", f"{subnet}.2/24", "dev", "cable")
        self.connect()

    @property
    def _here(self) -> str:
        return f"il{os.getpid()}"

    def connect(self) -> None:
        ip("-n", self.name, "link", "set", "cable", "up")

    def cut_off(self) -> None:
        """Nothing arrives any more, and no one is told."""
        ip("-n", self.name, "link", "set", "cable", "down")

    def close(self) -> None:
        ip("link", "del", self._here)
        ip("netns", "del", self.name)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=HANG_SECONDS)


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root makes network namespaces")
    try:
        host = Host()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there are no network namespaces here: {error.stderr}")
    yield host
    host.close()


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
