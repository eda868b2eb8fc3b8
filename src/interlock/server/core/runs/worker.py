"""The worker of a server: it hands new runs to the engine, and continues runs in this process while the server runs.

The only server of a log (a file) starts a run at once and continues it until it ends. Where the log is shared by many
hosts (Postgres), a new run is recorded together with its job, and any worker continues it: a process of
`interlock worker`, or a server that is not started with `--no-worker`.
"""

import asyncio
from collections.abc import Mapping, Sequence

from ....domain.errors import LogError
from ....engine.advance import RunAdvancer
from ....engine.interface import Engine
from ....runs.handle import RunHandle
from ....runs.runner import Runner

#: After the log could not be used.
_RETRY_SECONDS = 1.0


class RunWorker:
    """Starts and continues the runs of the only server of a log."""

    #: Whether other processes continue its runs, too.
    is_shared = False

    def __init__(self, engine: Engine, advancer: RunAdvancer, *, queues: Sequence[str] = (), concurrency: int) -> None:
        self.engine = engine
        self._advancer = advancer
        self._queues = queues
        self._concurrency = concurrency
        self._serving: asyncio.Task[None] | None = None
        self.is_stopping = False
        self._last_error = ""

    @property
    def problem(self) -> str:
        """Why no run is continued now; empty as long as they are."""
        return "" if self.engine.ready.is_set() else self._last_error

    async def start(self) -> None:
        """Continue runs from now on."""
        self._serving = asyncio.create_task(self._serve())

    async def stop(self, seconds: float) -> None:
        """Let running calls finish within `seconds`. Runs stay resumable."""
        self.is_stopping = True
        self._advancer.pause()
        await self.engine.stop(seconds)
        if self._serving is not None:
            await self._serving

    async def begin(  # noqa: PLR0913 - every keyword is explicit
        self, runner: Runner, task: str, *, run_id: str, requester: str, created_by: str, settings: Mapping[str, str]
    ) -> RunHandle | None:
        """Start a run, and continue it. Return None where another process may do that. `Runner.start` says what is
        raised.
        """
        handle = await runner.start(task, run_id=run_id, requester=requester, created_by=created_by, settings=settings)
        await self.engine.wake([run_id])
        return handle

    async def _serve(self) -> None:
        """Serve until the end. When the log cannot be used, try again until it can."""
        while not self.is_stopping:
            try:
                await self.engine.serve(self._advancer.advance, queues=self._queues, concurrency=self._concurrency)
            except LogError as error:
                self._last_error = str(error)
                await asyncio.sleep(_RETRY_SECONDS)


class SharedRunWorker(RunWorker):
    """Hands new runs to all workers of a log, and is one of them where it has queues."""

    is_shared = True

    def __init__(
        self,
        engine: Engine,
        advancer: RunAdvancer,
        *,
        queues: Sequence[str],
        concurrency: int,
        queue_of_agent: Mapping[str, str],
    ) -> None:
        """`queues` are those that this process serves; none: it continues no runs. `queue_of_agent` has the queue of
        each agent's new runs.
        """
        super().__init__(engine, advancer, queues=queues, concurrency=concurrency)
        self._queue_of_agent = queue_of_agent

    async def start(self) -> None:
        """Continue runs from now on, if this process serves a queue."""
        if self._queues:
            await super().start()

    async def begin(  # noqa: PLR0913 - every keyword is explicit
        self, runner: Runner, task: str, *, run_id: str, requester: str, created_by: str, settings: Mapping[str, str]
    ) -> None:
        """Record a run and its job. `Runner.submit` says what is raised."""
        queue = self._queue_of_agent[runner.agent.name]
        await runner.submit(
            task, queue=queue, run_id=run_id, requester=requester, created_by=created_by, settings=settings
        )
