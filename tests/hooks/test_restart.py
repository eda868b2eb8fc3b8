"""The daemon as its own process, started by the hooks, and killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from interlock import SqliteLog
from interlock.domain.event import CallObserved, InvocationStarted, decode_event
from interlock.hooks import thin
from interlock.hooks.daemon import lock_daemon
from interlock.hooks.daemon_status import read_status
from interlock.hooks.install import write_start_file
from interlock.runs.inbox import Inbox
from tests.patience import HANG_SECONDS, eventually_read, wait_until


class Machine:
    """A user whose agent asks through the client, and whose daemon dies."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / ".local" / "state" / "interlock"
        self.state.mkdir(parents=True, mode=0o700)
        variables = {"HOME": str(home), "PATH": os.environ["PATH"], "INTERLOCK_HOOKS_HOLD": "0s"}
        write_start_file(self.state, variables)

    def hook(self, event: str, call_id: str, command: str, **fields: Any) -> str:
        """Run the client with variables that no daemon should see, and return the decision."""
        payload = {"session_id": "s", "cwd": str(self.home), "hook_event_name": event, "tool_name": "Bash"}
        body = json.dumps({**payload, "tool_use_id": call_id, "tool_input": {"command": command}, **fields})
        words = [sys.executable, "-I", "-S", thin.__file__, "claude", str(self.state)]
        variables = {"CLAUDE_CODE_ENTRYPOINT": "cli", "HOME": "/nowhere", "INTERLOCK_POLICY": "/nowhere"}
        done = subprocess.run(
            words, input=body.encode(), env=variables, capture_output=True, timeout=HANG_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] if done.stdout else ""

    def kill(self) -> None:
        """Kill the daemon, and return when it is gone."""
        process = read_status(self.state).pid
        os.kill(process, signal.SIGKILL)

        def is_gone() -> bool:
            with lock_daemon(self.state) as is_ours:
                return bool(is_ours)

        wait_until(is_gone)

    async def approve(self) -> None:
        async with SqliteLog(self.state / "runs.db") as log, Inbox(log) as inbox:
            (question,) = await inbox.pending()
            await inbox.approve(question, by="ana")

            async def is_recorded() -> bool:
                """Return True when the daemon, which has the run, has recorded the answer."""
                return not await inbox.pending()

            await eventually_read(is_recorded)

    async def facts(self) -> list[Any]:
        async with SqliteLog(self.state / "runs.db") as log:
            return [decode_event(entry).fact for run in await log.run_ids() for entry in await log.read(run)]


def test_killed_daemon_never_lets_a_call_run_twice(short_folder: Path) -> None:
    machine = Machine(short_folder)
    try:
        listed = machine.hook("PreToolUse", "t1", "ls")
        pending = machine.hook("PreToolUse", "t2", "touch a")
        machine.kill()
        machine.hook("PostToolUse", "t1", "ls", tool_response={"stdout": "a"})
        asyncio.run(machine.approve())
        approved = machine.hook("PreToolUse", "t3", "touch a")
        machine.kill()
        again = [machine.hook("PreToolUse", call_id, "touch a") for call_id in ("t2", "t4")]
        facts = asyncio.run(machine.facts())
    finally:
        machine.kill()

    assert [listed, pending, approved, *again] == ["allow", "deny", "allow", "deny", "deny"]
    started = [fact.call_id for fact in facts if isinstance(fact, InvocationStarted)]
    ended = {fact.observation.call_id: fact.observation for fact in facts if isinstance(fact, CallObserved)}
    assert started.count("t2") == 1
    assert ended["t1"].ok
    failure = ended["t2"].failure
    assert failure is not None
    assert failure.code == "outcome_unknown"
