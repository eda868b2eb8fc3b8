"""The lease of a run while a batch of `ToolRuntime` runs in this process.

It is acquired when a batch asks a person or takes longer than a moment, and released when the batch is over: meanwhile
other processes leave their answers and cancellations as commands, which are applied here, so that they never fence the
calls that run. A batch that is over in a moment needs none.
"""

import asyncio
from contextlib import suppress

import msgspec

from ..app import App
from ..domain.errors import LogError, RunClaimedError
from ..pipeline.context import RunContext
from ..storage.event_log import QueuedCommand
from .command_poller import CommandPoller
from .commands import take_command


class BatchLease:
    """The right to append to a run while one of its batches runs."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._run: RunContext | None = None
        #: Most batches need none.
        self._poller: CommandPoller | None = None
        self._task: asyncio.Task[None] | None = None
        #: Whether it has to be released when the batch is over.
        self.is_active = False

    def watch(self, run: RunContext) -> RunContext:
        """Return the run, which acquires the lease when one of its batches needs it."""
        self._run = run = msgspec.structs.replace(run, hold=self.acquire)
        run.executions.on_lasting = self._request
        return run

    async def acquire(self) -> None:
        """Acquire the lease, and apply commands from now on. Nothing while another process has it."""
        run = self._run
        if run is None or run.recorder.lease is not None:
            return
        self.is_active = True
        with suppress(RunClaimedError):
            await run.recorder.acquire_lease()
            self._poller = self._poller or CommandPoller(self._app.log)
            await self._poller.subscribe(run.ledger.run_id, self._apply)

    async def end_batch(self) -> None:
        """Release the lease. After a cancelled batch that is done in the background, once its calls have ended."""
        await self.settle()
        if self._run is not None and self._run.executions.background:
            self._task = asyncio.create_task(self._release())
        else:
            await self._release()

    async def settle(self) -> None:
        """Wait until an earlier batch released the lease."""
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task])

    def _request(self) -> None:
        if self._run is not None and self._run.recorder.lease is None and self._task is None:
            self.is_active = True
            self._task = asyncio.create_task(self.acquire())

    async def _release(self) -> None:
        run = self._run
        if run is None:
            return
        run_id = run.ledger.run_id
        await run.settle()
        with suppress(LogError):
            while run.recorder.lease is not None:
                if self._poller is not None:
                    if run.recorder.error is None:
                        await self._poller.poll(run_id)
                    self._poller.unsubscribe(run_id)
                await run.recorder.release_lease()
                # One may have been left right before the release.
                if run.recorder.error is None and await self._app.log.queued_commands(run_id):
                    await self.acquire()
        self.is_active = False

    async def _apply(self, command: QueuedCommand) -> bool:
        run = self._run
        if run is None or run.recorder.lease is None:
            return False
        return await take_command(command, self._app, run)
