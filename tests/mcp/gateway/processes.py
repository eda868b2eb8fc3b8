"""`interlock gateway` as a process, with `paying_server.py` behind it, and a client of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client

from interlock.mcp.gateway.stdio import message_streams

_ROOT = Path(__file__).parents[3]
_START = "from interlock.cli.main import main; main()"


@asynccontextmanager
async def gateway_process(
    folder: Path, *options: str, hold: str = "0"
) -> AsyncGenerator[tuple[Client, "subprocess.Popen[bytes]"]]:
    """Start the command, as a client does. It is killed in the end."""
    command = [sys.executable, "-m", "tests.mcp.gateway.paying_server", str(folder)]
    lines = ("[servers.bank]", f"command = {json.dumps(command)}", 'sandbox = "off"', 'pins = "off"')
    (folder / "mcp.toml").write_text("\n".join(lines))
    given = ["--servers", folder / "mcp.toml", "--log", folder / "runs.db", "--workspace", _ROOT, "--hold", hold]
    with (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [sys.executable, "-c", _START, "gateway", *map(str, given), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with Client(
            message_streams(process.stdout.fileno(), process.stdin.fileno()), mode="legacy", cache=None
        ) as client:
            yield client, process
    finally:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        process.stdin.close()
        process.stdout.close()
