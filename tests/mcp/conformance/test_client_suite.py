"""The official conformance suite, with our client against its servers: what the client of the SDK passes, ours does."""

import asyncio
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conformance.install import CONFORMANCE
from tests.mcp.conformance.scenario_clients import read_scenario, run_ours, run_sdk
from tests.node.install import NODE, NoRegistryError, found

_COMMAND = Path(__file__).with_name("hand_over.py")
_SECONDS = 200.0
#: The suite starts all scenarios at once; the clients share one event loop.
_AT_ONCE = 4
#: Extensions, and scenarios that were added after the release.
_NOT_SCORED = re.compile(r"auth/(client-credentials|enterprise|dpop|wif)|json-schema-2020-12-preservation$")


async def _run_suite(folder: Path, program: Path, run: Any, revision: str) -> tuple[list[str], int, str]:
    """Return the scenarios that failed, how many there were, and what was said about them."""
    free, said = asyncio.Semaphore(_AT_ONCE), list[str]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scenario = read_scenario((await reader.read()).decode())
        try:
            async with free:
                await run(scenario)
        except Exception:
            problem = f"{scenario.name}: {traceback.format_exc()[-2_000:]}"
            said.append(problem)
            writer.write(problem.encode())
        writer.close()
        await writer.wait_closed()

    place = folder / "s"
    async with await asyncio.start_unix_server(serve, place):
        command = f"{sys.executable} -I -S {_COMMAND} {place}"
        options = ("--requirements", revision, "--timeout", f"{_SECONDS * 1000:.0f}", "-o", folder / "results")
        suite = await asyncio.create_subprocess_exec(
            *(NODE, program, "client", "--command", command, *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await suite.communicate()
        finally:
            if suite.returncode is None:
                suite.kill()
                await suite.wait()
    summary = output.decode().partition("=== SUITE SUMMARY ===")[2].partition("Total:")[0]
    results = re.findall(r"^([✓✗]) (\S+): ", summary, re.MULTILINE)
    failed = [name for mark, name in results if mark == "✗" and not _NOT_SCORED.match(name)]
    return failed, len(results), "\n".join((summary, *said))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("run", [run_ours, pytest.param(run_sdk, marks=pytest.mark.soak)])
async def test_client_conforms(tmp_path: Path, run: Any, revision: str) -> None:
    program = found(CONFORMANCE)
    if isinstance(program, NoRegistryError):
        pytest.skip(str(program))
    failed, count, said = await _run_suite(tmp_path, program, run, revision)

    assert (count >= 25, failed) == (True, []), said
