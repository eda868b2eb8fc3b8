"""Running one command in a sandbox, for tests: what it printed, and how it ended."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlock.sandbox.commands import probe
from interlock.sandbox.commands.probe import SandboxBackend
from interlock.sandbox.interface import CommandExit, CommandSandbox, CommandSpec, OutputStream, SandboxProfile
from tests.patience import HANG_SECONDS


class Outcome(NamedTuple):
    ended: CommandExit
    stdout: str
    stderr: str


class Printed:
    """Receives what a command prints."""

    def __init__(self) -> None:
        self._chunks: dict[OutputStream, list[bytes]] = {"stdout": [], "stderr": []}
        self._more = asyncio.Event()

    def __call__(self, stream: OutputStream, chunk: bytes) -> None:
        self._chunks[stream].append(chunk)
        self._more.set()

    async def has(self, text: str) -> None:
        """Wait until the command has printed this."""
        while text not in self.text():
            self._more.clear()
            await self._more.wait()

    def bytes(self, stream: OutputStream = "stdout") -> bytes:
        return b"".join(self._chunks[stream])

    def text(self, stream: OutputStream = "stdout") -> str:
        return self.bytes(stream).decode(errors="backslashreplace")


def a_command(script: str | tuple[str, ...], workspace: Path, **options: Any) -> CommandSpec:
    """Options that a profile knows are the profile's; the others are the command's."""
    of_profile = {name: options.pop(name) for name in SandboxProfile.__struct_fields__ if name in options}
    of_profile.setdefault("writable", True)
    profile = SandboxProfile(workspace=str(workspace), **of_profile)
    what = {"script": script} if isinstance(script, str) else {"argv": script}
    return CommandSpec(profile=profile, **what, **options)


def usable(backend: SandboxBackend) -> CommandSandbox:
    """A backend that works here; the test is skipped where it does not."""
    finding = next(each for each in probe.probe_backends() if each.backend == backend)
    if not finding.works:
        pytest.skip(f"{backend} does not work here: {finding.why_not}")
    return probe.choose_sandbox(backend)


async def run(
    sandbox: CommandSandbox,
    script: str | tuple[str, ...],
    workspace: Path,
    timeout: float = HANG_SECONDS,  # noqa: ASYNC109 - the command's
    after: str = "",
    **options: Any,
) -> Outcome:
    """Run a command. The timeout begins when it has printed `after`."""
    printed = Printed()
    running = await sandbox.start(a_command(script, workspace, **options), printed)
    await asyncio.wait_for(printed.has(after), HANG_SECONDS)
    ended = await running.wait(timeout)
    return Outcome(ended, printed.text(), printed.text("stderr"))


async def until(condition: Callable[[], Any]) -> None:
    """Let other threads and processes run until the condition holds."""
    async with asyncio.timeout(50):
        while not condition():
            await asyncio.to_thread(threading.get_ident)


async def works(sandbox: CommandSandbox, attempts: list[str], workspace: Path, **options: Any) -> list[str]:
    """Those of the attempts that did not fail."""
    lines = [f"( {attempt} ) >/dev/null 2>&1 </dev/null && echo {number}" for number, attempt in enumerate(attempts)]
    outcome = await run(sandbox, "\n".join([*lines, "true"]), workspace, **options)
    assert outcome.ended.exit_code == 0, outcome
    return [attempts[int(number)] for number in outcome.stdout.split()]
