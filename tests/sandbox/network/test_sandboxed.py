"""Commands in the real sandbox: package managers work under a rule of one line, and nothing else gets out."""

import asyncio
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import which
from zipfile import ZipFile

import pytest

from interlock import LocalTools, Observation, Rule, RulePolicy, ToolRuntime
from interlock.policy import EgressRule, load_policy
from tests.sandbox.commands import usable
from tests.sandbox.network.hosts import HOST, serving
from tests.support import call

ALLOW_BASH = Rule(id="commands", verdict="allow", tools="bash")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, int]]:
    """A folder that is served at the address of the test's host."""
    folder = tmp_path_factory.mktemp("site")
    server = http.server.ThreadingHTTPServer((HOST, 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@asynccontextmanager
async def a_shell(workspace: Path, policy: RulePolicy) -> AsyncGenerator[ToolRuntime]:
    usable("bubblewrap")
    runtime = ToolRuntime(tools=[LocalTools(workspace)], policy=policy)
    try:
        yield runtime
    finally:
        await runtime.close()


async def bash(runtime: ToolRuntime, command: str) -> Observation:
    [observation] = (await runtime.execute([call("c1", "bash", command=command)])).observations
    return observation


def text_of(observation: Observation) -> str:
    assert observation.content is not None
    return observation.content.text


def one_line(folder: Path, port: int) -> RulePolicy:
    """The policy of a person who wants one host."""
    path = folder / "policy.yaml"
    path.write_text(f"version: 1\nallow: [bash]\negress: [{{allow: {HOST}, ports: {port}}}]\n")
    return load_policy(path)


async def test_pip_downloads_under_one_rule(site: tuple[Path, int], tmp_path: Path) -> None:
    folder, port = site
    (folder / "simple" / "tiny").mkdir(parents=True)
    with ZipFile(folder / "simple" / "tiny" / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    workspace = tmp_path / "work"
    workspace.mkdir()
    async with a_shell(workspace, one_line(tmp_path, port)) as runtime:
        quick = "--isolated --no-deps --disable-pip-version-check --no-cache-dir"
        options = f"{quick} --index-url http://{HOST}:{port}/simple --trusted-host {HOST}"
        result = await bash(runtime, f"{sys.executable} -m pip download {options} tiny")

    assert result.ok, result.content
    assert (workspace / "tiny-1.0-py3-none-any.whl").exists()
    assert {row["host"] for row in result.facts["connections"]} == {HOST}
    assert not isinstance(result.side_effects, str)
    assert any(effect.kind == "sent" and effect.target == f"{HOST}:{port}" for effect in result.side_effects)


async def test_git_fetches_under_one_rule(site: tuple[Path, int], tmp_path: Path) -> None:
    folder, port = site
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    git = partial(subprocess.run, check=True, capture_output=True, env=environment, cwd=folder)
    git(["git", "init", "--bare", "-q", "repo.git"])
    tree = git(["git", "-C", "repo.git", "write-tree"]).stdout.decode().strip()
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    commit = git(["git", "-C", "repo.git", *names, "commit-tree", tree, "-m", "x"]).stdout.decode().strip()
    git(["git", "-C", "repo.git", "update-ref", "refs/heads/main", commit])
    git(["git", "-C", "repo.git", "update-server-info"])
    workspace = tmp_path / "work"
    workspace.mkdir()
    async with a_shell(workspace, one_line(tmp_path, port)) as runtime:
        fetch = f"git init -q . && git fetch -q http://{HOST}:{port}/repo.git main && git rev-parse FETCH_HEAD"
        result = await bash(runtime, fetch)

    assert result.ok, result.content
    assert commit in text_of(result)


async def test_npm_installs_under_one_rule(site: tuple[Path, int], tmp_path: Path) -> None:
    if which("npm", path="/usr/bin:/bin") is None:
        pytest.skip("there is no npm on this system")
    folder, port = site
    package = json.dumps({"name": "tiny", "version": "1.0.0"}).encode()
    (folder / "npm").mkdir()
    with tarfile.open(folder / "npm" / "tiny.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(package)
        archive.addfile(entry, io.BytesIO(package))
    dist = {"tarball": f"http://{HOST}:{port}/npm/tiny.tgz"}
    versions = {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": dist}}
    listing = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
    (folder / "npm" / "tiny").write_text(json.dumps(listing))
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "package.json").write_text("{}")
    async with a_shell(workspace, one_line(tmp_path, port)) as runtime:
        result = await bash(runtime, f"npm install --no-audit --no-fund --registry http://{HOST}:{port}/npm tiny")

    assert result.ok, result.content
    assert (workspace / "node_modules" / "tiny" / "package.json").exists()


#: Tries to reach a canary in every way that needs no proxy, and the proxy itself from elsewhere.
_ESCAPES = """
import socket, struct
def attempt(kind, *address, family=socket.AF_INET, data=b"x"):
    try:
        with socket.socket(family, kind) as tried:
            tried.settimeout(1)
            tried.connect(address)
            tried.send(data)
            print("reached", address)
    except OSError as error:
        print("refused", address, error)
for host in ("127.0.0.1", "127.0.0.9", "10.0.0.1", "8.8.8.8", "169.254.169.254"):
    for port in (PORT, 53, 443):
        attempt(socket.SOCK_STREAM, host, port)
        if not host.startswith("127."):
            attempt(socket.SOCK_DGRAM, host, port)
attempt(socket.SOCK_STREAM, "::1", PORT, family=socket.AF_INET6)
attempt(socket.SOCK_DGRAM, "2001:4860:4860::8888", 53, family=socket.AF_INET6)
attempt(socket.SOCK_RAW, "8.8.8.8", 0)
for name in ("api.test", "localhost.localdomain", "one.one.one.one"):
    try:
        print("reached", socket.getaddrinfo(name, 443))
    except OSError as error:
        print("refused", name, error)
proxy = ("127.0.0.1", 61080)
for request in (
    b"\\x05\\x01\\x00",
    b"\\x04\\x01\\x00\\x50\\x7f\\x00\\x00\\x01\\x00",
    b"CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
    b"CONNECT localhost:PORT HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
    b"CONNECT [::1]:PORT HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
    b"CONNECT 8.8.8.8:53 HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
    b"GET http://127.0.0.1:PORT/ HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n",
    b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
):
    with socket.create_connection(proxy) as tried:
        tried.sendall(request)
        tried.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: tried.recv(4096), b""))
        print("reached" if b" 200" in reply or b"hello" in reply else "refused", request)
"""


async def test_no_other_way_leads_out(tmp_path: Path) -> None:
    async with serving(address="127.0.0.1") as canary, serving() as host:
        (tmp_path / "escapes.py").write_text(_ESCAPES.replace("PORT", str(canary.port)))
        policy = RulePolicy([ALLOW_BASH], egress=[EgressRule(verdict="allow", hosts="api.test, 127.0.0.9")])
        async with a_shell(tmp_path, policy) as runtime:
            result = await bash(runtime, f"{sys.executable} escapes.py")

    assert result.ok, result.content
    assert "reached" not in text_of(result)
    assert "refused" in text_of(result)
    assert canary.connections == host.connections == 0
    assert all(row["decision"] == "refused" for row in result.facts["connections"])


async def test_each_command_has_its_own_rules(tmp_path: Path) -> None:
    """Two commands at once: neither can use the proxy of the other, though both are at the same port."""
    async with serving() as host:
        policies = [
            RulePolicy([ALLOW_BASH], egress=[EgressRule(verdict="allow", hosts=hosts, ports=host.port)])
            for hosts in (HOST, "other.test")
        ]
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        async with a_shell(tmp_path / "one", policies[0]) as one, a_shell(tmp_path / "two", policies[1]) as two:
            fetch = f"curl -sS http://{HOST}:{host.port}/"
            first, second = await asyncio.gather(bash(one, fetch), bash(two, fetch))

    assert "hello" in text_of(first)
    assert "No egress rule allows GET" in text_of(second)
    assert host.connections == 1
