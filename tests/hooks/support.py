"""A daemon on a real socket in this process, and agents that ask it as their hooks would."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from interlock.cli.config.user_paths import UserPaths
from interlock.cli.session.hook_projects import HookProjects
from interlock.domain.event import Event, decode_event
from interlock.hooks import thin
from interlock.hooks.agents import AGENTS
from interlock.hooks.daemon import HookDaemon
from interlock.runs.inbox import Inbox
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS, eventually_read

PAYLOADS = Path(__file__).with_name("payloads")


def read_payloads(agent: str) -> dict[str, dict[str, Any]]:
    return json.loads((PAYLOADS / f"{agent}.json").read_text())


class Hooked(NamedTuple):
    """What a hook printed."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def answer(self) -> Any:
        return json.loads(self.stdout) if self.stdout else {}

    @property
    def decision(self) -> str:
        return self.answer.get("hookSpecificOutput", {}).get("permissionDecision", "")

    @property
    def reason(self) -> str:
        return self.answer.get("hookSpecificOutput", {}).get("permissionDecisionReason", "")


class Office:
    """A user with a policy, a project and a daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "config"
        self.workspace = folder / "work"
        for each in (self.state, self.config, self.workspace):
            each.mkdir(mode=0o700, exist_ok=True)
        self.user_paths = UserPaths(self.config, self.state)
        self.log: SqliteLog
        self.daemon: HookDaemon

    def write_policy(self, text: str) -> None:
        (self.config / "policy.yaml").write_text(f"version: 1\n{text}")

    @asynccontextmanager
    async def serve(self, **options: Any) -> AsyncGenerator["Office"]:
        async with SqliteLog(self.folder / "runs.db") as self.log:
            projects = HookProjects(self.user_paths, self.log, MemoryArtifacts(), {})
            self.daemon = HookDaemon(self.state, projects.find, **options)
            ready = asyncio.Event()
            serving = asyncio.create_task(self.daemon.serve(ready.set))
            await ready.wait()
            try:
                yield self
            finally:
                self.daemon.stop()
                async with asyncio.timeout(HANG_SECONDS):
                    await serving
                    await projects.close()

    async def hook(self, agent: str, payload: Any, event: str = "-", entry: str = "") -> Hooked:
        """Ask as the thin client does, over the socket."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return Hooked(*await asyncio.to_thread(thin.ask, agent, event, body, str(self.state), entry))

    async def claude(
        self, name: str, tool: str, call_id: str, entry: str = "", event: str = "-", /, **given: Any
    ) -> Hooked:
        fields = {"tool_name": tool, "tool_use_id": call_id, **given}
        return await self.hook("claude", self.payload(name, **fields), event, entry)

    def payload(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"session_id": "s-1", "cwd": str(self.workspace), "hook_event_name": name, **fields}

    async def events(self) -> list[Event]:
        """Everything in the log, by run."""
        return [decode_event(entry) for run_id in await self.log.run_ids() for entry in await self.log.read(run_id)]

    async def kinds(self) -> list[str]:
        return [type(event.fact).__name__ for event in await self.events()]

    async def answer(self, *, approved: bool = True, **fields: Any) -> None:
        inbox = Inbox(self.log)
        (question,) = await inbox.pending()
        await (inbox.approve if approved else inbox.reject)(question, by="ana", **fields)

    async def until_asked(self) -> None:
        await eventually_read(Inbox(self.log).pending)


@asynccontextmanager
async def open_office(**options: Any) -> AsyncGenerator[Office]:
    folder = Path(tempfile.mkdtemp(prefix="il-"))
    try:
        async with Office(folder).serve(**options) as office:
            yield office
    finally:
        shutil.rmtree(folder)


__all__ = ["AGENTS", "Hooked", "Office", "open_office", "read_payloads"]
