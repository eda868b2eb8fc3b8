"""Run single commands in a sandbox: what they printed, and how they ended."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from ..sandbox.interface import CommandExit, CommandSandbox, CommandSpec, OutputStream, SandboxProfile

#: Until a test gives up waiting. Only tests that would wait for ever come near it.
TIMEOUT_SECONDS = 50


class CommandOutcome(NamedTuple):
    """How a command ended and what it printed."""

    ended: CommandExit
    stdout: str
    stderr: str


class OutputRecorder:
    """An `OutputHandler` that keeps what a command prints."""

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
        """Return the output so far."""
        return b"".join(self._chunks[stream])

    def text(self, stream: OutputStream = "stdout") -> str:
        """Return the output so far as text."""
        return self.bytes(stream).decode(errors="backslashreplace")


def make_command(script: str | tuple[str, ...], workspace: Path, **options: Any) -> CommandSpec:
    """Build a script or a program with its arguments. Options are fields of `SandboxProfile` or of `CommandSpec`."""
    of_profile = {name: options.pop(name) for name in SandboxProfile.__struct_fields__ if name in options}
    of_profile.setdefault("writable", True)
    profile = SandboxProfile(workspace=str(workspace), **of_profile)
    what = {"script": script} if isinstance(script, str) else {"argv": script}
    return CommandSpec(profile=profile, **what, **options)


async def run_command(
    sandbox: CommandSandbox,
    script: str | tuple[str, ...],
    workspace: Path,
    timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109 - the command's
    after: str = "",
    **options: Any,
) -> CommandOutcome:
    """Run a command. The timeout begins when it has printed `after`."""
    output = OutputRecorder()
    running = await sandbox.start(make_command(script, workspace, **options), output)
    await asyncio.wait_for(output.has(after), TIMEOUT_SECONDS)
    ended = await running.wait(timeout)
    return CommandOutcome(ended, output.text(), output.text("stderr"))


async def find_successful(sandbox: CommandSandbox, attempts: list[str], workspace: Path, **options: Any) -> list[str]:
    """Run all attempts in one script and return those that did not fail."""
    lines = [f"( {attempt} ) >/dev/null 2>&1 </dev/null && echo {number}" for number, attempt in enumerate(attempts)]
    outcome = await run_command(sandbox, "\n".join([*lines, "true"]), workspace, **options)
    if outcome.ended.exit_code != 0:
        raise AssertionError(f"The script did not run to its end: {outcome}")
    return [attempts[int(number)] for number in outcome.stdout.split()]
