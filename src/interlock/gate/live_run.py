"""A run of a gate while this process has it.

It is opened by its first call, and takes calls from any number of tasks. Its lease is held while the framework's run
lives: it is released when a call waits for a person and nothing else runs, after an idle moment, or by `release`. Any
process may continue the run then.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from ..app import App
from ..domain.call import PermittedCall, ToolIntent, WaitingCall
from ..domain.errors import LogError
from ..domain.event import WarningRaised
from ..domain.observation import Observation
from ..domain.state.lifecycle import RunState
from ..domain.tool import CallContext
from ..pipeline.batch import BatchOutcome, record_catalog, start_run
from ..pipeline.context import RunContext
from ..runs.command_poller import CommandPoller
from ..runs.commands import take_command
from ..runs.inbox import Inbox
from ..storage.event_log import Lease, QueuedCommand

#: For this long a run without calls is kept: opening it again reads the log.
_IDLE_SECONDS = 1.0


class LiveRun:
    """One run with its lease. Made for the event loop that opens it."""

    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        app: App,
        poller: CommandPoller,
        situation: CallContext,
        settings: Mapping[str, str],
        *,
        take_over: bool = False,
        stays: bool = False,
    ) -> None:
        self._app = app
        self._poller = poller
        self._situation = situation
        self._settings = settings
        #: An event loop of this process that is closed has the lease.
        self._take_over = take_over
        #: It is kept for an idle moment while a question waits, too: a session makes other calls meanwhile.
        self._stays = stays
        self.loop = asyncio.get_running_loop()
        self._run: RunContext | None = None
        self._lease: Lease | None = None
        #: Opening and releasing exclude each other.
        self._changing = asyncio.Lock()
        self._recording = asyncio.Lock()
        #: How many calls are under way.
        self._active = 0
        #: Their ids, each with what a repeated call waits for.
        self._under_way: dict[str, asyncio.Event | None] = {}
        #: It is to be released when the last of them ends.
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Task[None] | None = None

    @property
    def is_released(self) -> bool:
        """True while other processes may have the run."""
        return not self._active and self._run is None and not self._changing.locked()

    async def call(
        self, intent: ToolIntent, agent: str, *, plan_only: bool = False
    ) -> Observation | WaitingCall | PermittedCall:
        """Take one call through the pipeline."""
        self._active += 1
        try:
            run = self._run or await self.open()
            if agent != run.situation.agent:
                run = replace(run, situation=replace(run.situation, agent=agent))
            if run.ledger.state is not RunState.RUNNING:  # an answer may lie there, which this call is about
                await self._poller.poll(run.ledger.run_id)
            menu = self._app.registry.catalog(run.situation)
            if menu.digest != run.ledger.menu_digest or self._app.parts.tool_sources:
                async with self._recording:  # once for all calls that begin at the same time
                    await record_catalog(run)
            outcome = await self._join(run, intent, plan_only=plan_only)
        except LogError:
            self._active -= 1
            with suppress(LogError):
                await self.release()
            raise
        except BaseException:
            self._active -= 1
            self._release_soon()
            raise
        self._active -= 1
        if self._is_over or (run.ledger.state is not RunState.RUNNING and not self._active and not self._stays):
            await self.release()
        elif self._timer is None:
            self._release_soon()
        if outcome.error is not None:
            raise outcome.error
        return outcome.outcomes[0]

    async def _join(self, run: RunContext, intent: ToolIntent, *, plan_only: bool) -> BatchOutcome:
        """Take the call through the pipeline. One that the framework repeats waits, and is answered from the log."""
        call_id, under_way = intent.call_id, self._under_way
        while call_id in under_way:
            ended = under_way[call_id] = under_way[call_id] or asyncio.Event()
            await ended.wait()
        under_way[call_id] = None
        try:
            return await self._app.execute(run, [intent], joins=True, plan_only=plan_only)
        finally:
            ended = under_way.pop(call_id)
            if ended is not None:
                ended.set()

    async def open(self) -> RunContext:
        """Return the run. It is opened by the first who asks for it. `RunClaimedError` when another process has it."""
        async with self._changing:
            if self._run is None:
                self._is_over = False
                self._run = await self._load()
                self._release_soon()
            return self._run

    async def _load(self) -> RunContext:
        run_id = self._situation.run_id
        self._lease = lease = await self._app.log.acquire(run_id, force=self._take_over)
        self._take_over = False
        try:
            run = await self._app.open(self._situation, lease)
            if not run.ledger.started:
                start_run(run, self._settings)
            self._run = run
            await self._poller.subscribe(run_id, self._apply)
        except BaseException:
            self._lease = self._run = None
            self._poller.unsubscribe(run_id)
            await self._app.log.release(lease)
            raise
        return run

    async def warn(self, message: str) -> None:
        """Record something that people should know. It is durable on return."""
        self._active += 1
        try:
            run = self._run or await self.open()
            run.recorder.add(WarningRaised(message=message))
            await run.recorder.commit()
        finally:
            self._active -= 1
            self._release_soon()

    async def flush(self) -> None:
        """Wait until what was recorded is durable."""
        if self._run is not None:
            await self._run.recorder.commit()

    def _release_soon(self) -> None:
        """Release the run after an idle moment: a framework asks its model between two calls."""
        if self._timer is None and self._run is not None:
            self._timer = self.loop.call_later(_IDLE_SECONDS, self._release_idle)

    def _release_idle(self) -> None:
        self._timer = None
        if self._active:
            self._release_soon()
        else:
            self.release_later()

    def release_later(self) -> None:
        """Begin to release it."""
        self._releasing = self.loop.create_task(self.release())

    async def _apply(self, command: QueuedCommand) -> bool:
        """Apply an answer or a cancellation of another process."""
        return self._run is not None and await take_command(command, self._app, self._run)

    async def release(self) -> None:
        """Release the run: whatever ended is durable, and any process may continue it. While calls are under way, it is
        released when the last of them ends.
        """
        async with self._changing:
            if self._active:
                self._is_over = True
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            run, self._run = self._run, None
            lease, self._lease = self._lease, None
            if run is not None:
                await run.settle()
                with suppress(LogError):
                    await run.recorder.commit()
                    await run.recorder.ack_claims()
            if lease is not None:
                self._poller.unsubscribe(lease.run_id)
                await self._app.log.release(lease)
                # A command may have been left right before the release.
                await Inbox(self._app.log, self._app.artifacts, app=self._app).apply_queued(lease.run_id)
