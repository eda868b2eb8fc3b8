"""The runners of all agents that a server has, on one log. They share what brings notes, so a run that is moved on here
by one of them is known to all."""

from collections.abc import Sequence
from typing import Any, cast

from ....domain.errors import ConfigurationError
from ....oauth.interface import Consents
from ....runs.command_poller import NoteWatch
from ....runs.handle import RunHandle
from ....runs.inbox import Desk
from ....runs.options import RunnerOptions
from ....runs.runner import Runner
from ....storage.artifacts import Artifacts
from ....storage.event_log import EventLog
from .agents import ServedAgent, by_name


class Fleet:
    def __init__(
        self, served: Sequence[ServedAgent], log: EventLog, artifacts: Artifacts, consents: Consents, **options: Any
    ) -> None:
        """`options`: what else every runner is given, such as limits and a clock."""
        if not served:
            raise ConfigurationError("A server needs at least one agent. Nothing was started.")
        self.served = by_name(list(served))
        self.log = log
        self.artifacts = artifacts
        self._watch = NoteWatch(log)
        self._options = {"log": log, "artifacts": artifacts, "consents": consents} | options
        self.runners = {name: self._runner(each) for name, each in self.served.items()}
        #: For runs of agents that are not here: of the command, or of another server.
        self._others = Desk(log, artifacts, moved_here=self._watch)

    def live(self) -> list[RunHandle]:
        """The runs that are moved on right now."""
        return [handle for runner in self.runners.values() for handle in runner.live.values()]

    def moving(self) -> list[RunHandle]:
        """The same, with the runs inside their calls."""
        return [handle for runner in self.runners.values() for handle in runner.moving()]

    def desk(self, agent: str) -> Desk:
        """Who takes answers to the questions of its runs: somebody who knows its tools, where they are known here."""
        runner = self.runners.get(agent)
        return self._others if runner is None else runner.desk

    def keep_off(self, paths: Sequence[str]) -> None:
        """Files and folders of the server itself, which no tool may touch."""
        for runner in self.runners.values():
            for box in runner.app.toolboxes:
                box.keep_off(paths)

    async def close(self) -> None:
        for runner in self.runners.values():
            await runner.close()
        await self._others.close()

    def _runner(self, each: ServedAgent) -> Runner:
        given = dict(self._options) | {"mode": each.mode}
        if each.secrets:
            given["secrets"] = each.secrets
        if each.workspace:
            given["workspace"] = each.workspace
        runner = Runner(each.as_run_here(), **cast(RunnerOptions, given))
        runner.share(self._watch)
        return runner
