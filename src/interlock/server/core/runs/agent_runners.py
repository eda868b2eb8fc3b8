"""The runners of all agents of a server, on one log. They share a command poller, so a run driven by one of them is
known to all.
"""

from collections.abc import Sequence
from typing import Any

from ....domain.errors import ConfigurationError
from ....oauth.interface import ConsentProvider
from ....pipeline.parts import Limits
from ....runs.command_poller import CommandPoller
from ....runs.handle import RunHandle
from ....runs.inbox import Inbox
from ....runs.runner import Runner
from ....scheduler import HandlerSlots
from ....storage.artifacts import ArtifactStore
from ....storage.event_log import EventLog
from ..settings import ServerSettings
from .served_agent import ServedAgent, map_by_name


def build_options(settings: ServerSettings) -> dict[str, Any]:
    """Return the options that the runners of all processes have that serve with these settings."""
    server = settings.server
    limits = Limits(
        approval_seconds=server.approval_seconds,
        consent_seconds=server.consent_seconds,
        max_open_questions=server.max_open_questions,
        four_eyes=server.four_eyes,
    )
    return {"limits": limits, "max_concurrency": HandlerSlots(server.max_handlers)}


class AgentRunners:
    """The runners of all served agents."""

    def __init__(
        self,
        served_agents: Sequence[ServedAgent],
        log: EventLog,
        artifacts: ArtifactStore,
        consents: ConsentProvider | None,
        **options: Any,
    ) -> None:
        """Create a runner for each agent. `options` are passed to every runner, such as limits and a clock."""
        if not served_agents:
            raise ConfigurationError("A server needs at least one agent. Nothing was started.")
        self.served_agents = map_by_name(list(served_agents))
        self.log = log
        self.artifacts = artifacts
        self._command_poller = CommandPoller(log)
        self._options: dict[str, Any] = {"log": log, "artifacts": artifacts, "consents": consents} | options
        #: Agents that this server served before, and no longer does.
        self.removed_agents: frozenset[str] = frozenset()
        self.by_agent = {name: self._create_runner(each) for name, each in self.served_agents.items()}
        #: For runs of agents that are not here: of the command, or of another server.
        self._fallback_inbox = Inbox(log, artifacts, active_runs=self._command_poller)

    def list_live_handles(self) -> list[RunHandle]:
        """Return the handles of the live runs."""
        return [handle for runner in self.by_agent.values() for handle in runner.live_handles.values()]

    def list_active_handles(self) -> list[RunHandle]:
        """Return the handles of the live runs and their child runs."""
        return [handle for runner in self.by_agent.values() for handle in runner.list_live_handles()]

    def get_inbox(self, agent: str) -> Inbox:
        """Return the inbox for the runs of an agent: one that knows its tools, where the agent is served here."""
        runner = self.by_agent.get(agent)
        return self._fallback_inbox if runner is None else runner.inbox

    def protect_paths(self, paths: Sequence[str]) -> None:
        """Protect files and folders of the server from tools."""
        for runner in self.by_agent.values():
            for box in runner.app.toolboxes:
                box.protect_paths(paths)

    def use_task_folder(self, folder: str) -> None:
        """Keep background tasks in this folder, so that they survive a restart of the server."""
        for runner in self.by_agent.values():
            for box in runner.app.toolboxes:
                box.use_task_folder(folder)

    async def close(self) -> None:
        """Close every runner."""
        for runner in self.by_agent.values():
            await runner.close()
        await self._fallback_inbox.close()

    def _create_runner(self, served_agent: ServedAgent) -> Runner:
        options: dict[str, Any] = self._options | {"mode": served_agent.mode}
        if served_agent.secrets:
            options["secrets"] = served_agent.secrets
        if served_agent.workspace:
            options["workspace"] = served_agent.workspace
        runner = Runner(served_agent.to_server_agent(), **options)
        runner.use_poller(self._command_poller)
        return runner
