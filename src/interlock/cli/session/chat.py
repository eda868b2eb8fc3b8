"""A conversation: the user sends a message, the agent works on it, and the run is idle until the next one."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec
from rich.text import Text

from ...domain.errors import ConfigurationError, InterlockError, ModelError
from ...domain.event import CallObserved, UserMessageReceived
from ...domain.messages import AssistantMessage, Usage, UserMessage
from ...domain.state.verification import Verification
from ...domain.tool import CallContext, PermissionMode
from ...history.fold import load_run
from ...rendering.text import describe_unknown, shorten_line
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ...undo import load_changed_run, select_calls, undo_calls
from ..config.logs import add_log_option, shorten_id
from ..config.user_paths import login_name
from ..display.live import format_diff, format_speech, format_usage
from ..display.output import make_visible
from ..display.run_list import RunFilter, list_runs, read_events
from .agent import PreparedRun, choose_model
from .chat_input import make_reader
from .live_session import (
    LiveSession,
    format_result,
    format_verification,
    note_stopped_runs,
    open_session,
    restore_view,
    show_run,
)
from .terminal import TerminalModes, signal_handlers
from .undo import choose_person, format_report, require_changes

_SHOWN_RUNS = 8
_SHOWN_MESSAGES = 6
_MAX_SHOWN_CHARS = 2_000
_MAX_DIFF_LINES = 200
_HISTORY_FILE = "chat_history"
#: What the key for the next mode offers. `trusted` is typed.
_KEY_MODES = tuple(mode for mode in PermissionMode if mode is not PermissionMode.TRUSTED)


class ChatCommand(NamedTuple):
    """A slash command of the chat."""

    help: str
    run: Callable[["ChatSession", str], Awaitable[None]]


class ChatSession:
    """A conversation with an agent on a terminal."""

    def __init__(self, prepared: PreparedRun, modes: TerminalModes, run_id: str = "") -> None:
        self._prepared = prepared
        self._modes = modes
        self._run_id = run_id
        self._closing = AsyncExitStack()
        self._session: LiveSession | None = None
        self._handle: RunHandle | None = None
        self._last_seq = -1
        self._verification: Verification | None = None
        self._usage = Usage()
        #: What a key chose; it holds from the next message on.
        self._next_mode = prepared.mode
        self.is_over = False

    async def run(self) -> None:
        """Read and handle messages until the person ends the session."""
        try:
            await self._print_welcome()
            folder = self._prepared.places.state
            history = folder / _HISTORY_FILE if folder is not None and folder.is_dir() else None
            read_message = make_reader(history, CHAT_COMMANDS, self._format_status, self._switch_mode)
            while not self.is_over:
                text = await read_message()
                if text is None:
                    print()
                    return
                if self._next_mode is not self._prepared.mode:
                    await self.choose_mode(self._next_mode)
                await self._handle_input(text.strip())
        finally:
            await self._closing.aclose()
            if self._run_id:
                command = add_log_option(f"interlock chat --resume {shorten_id(self._run_id)}", self._prepared.log_path)
                print(f"The run is kept. `{command}` resumes it.")

    async def send_message(self, text: str) -> None:
        """Send a message to the run, which is started or reopened if necessary."""
        session = await self._open_session()
        handle = self._handle
        try:
            if handle is None and not self._run_id:
                handle = self._attach_handle(await session.runner.start(text, settings=self._prepared.run_settings))
            else:
                handle = handle or await self._reopen_run(session)
                if await handle.questions():
                    session.view.print_note(
                        "A question is open, and has to be answered first: /resume asks it again.", "yellow"
                    )
                    return
                await handle.send_message(text)
            self._print_result(await show_run(handle, session, self._last_seq), session)
        finally:
            await self._mark_shown(session)

    async def resume(self, _: str = "") -> None:
        """Ask open questions again, or the model when it gave no answer."""
        session = await self._open_session()
        if not self._run_id:
            session.view.print_note("There is no run yet: say what to do.")
            return
        try:
            handle = self._handle or await self._reopen_run(session)
            await handle.resume()
            self._print_result(await show_run(handle, session, self._last_seq), session)
        finally:
            await self._mark_shown(session)

    async def undo(self, scope: str = "") -> None:
        """Put back what the newest turn changed in the workspace, or all that the conversation did."""
        session = await self._open_session()
        if not self._run_id:
            session.view.print_note("There is no run yet: nothing was changed.")
            return
        log, newest = session.runner.log, -1
        async for event in read_events(log, self._run_id, -1):
            newest = event.seq if isinstance(event.fact, UserMessageReceived) else newest
        try:
            run = await load_changed_run(log, self._run_id)
            calls = select_calls(run, None if scope.strip() == "all" else newest)
            report = await undo_calls(log, run, calls, require_changes(), choose_person(), requester=login_name())
        except ConfigurationError as error:
            session.view.print_note(str(error), "yellow")
            return
        for line in format_report(report, self._prepared.log_path):
            session.view.print_note(line)

    async def compact(self, _: str = "") -> None:
        """Ask the model to summarize all but the newest turn. Ctrl-C stops that."""
        session = await self._open_session()
        if not self._run_id:
            session.view.print_note("There is no run yet: say what to do.")
            return
        handle = self._handle or await self._reopen_run(session)
        work = asyncio.ensure_future(handle.compact())
        try:
            with signal_handlers({signal.SIGINT: work.cancel}):
                await asyncio.wait([work])
            if work.cancelled():
                session.view.print_note("Stopped. The conversation is as it was.", "yellow")
            elif not work.result():
                session.view.print_note("There is nothing to summarize yet: the newest turn always stays.")
        finally:
            async for event in read_events(session.runner.log, self._run_id, self._last_seq):
                session.view.on_event(event)
            session.view.stop()
            await self._mark_shown(session)

    async def choose_mode(self, word: str) -> None:
        """Change the permission mode, or print the current one. Reopen the session with it."""
        session = await self._open_session()
        if word not in set(PermissionMode):
            current = f"The mode is {self._prepared.mode}. Known: {', '.join(PermissionMode)}."
            note = describe_unknown("mode", word, PermissionMode) if word else current
            session.view.print_note(note, "yellow" if word else "")
            return
        self._next_mode = PermissionMode(word)
        await self._reopen_with(msgspec.structs.replace(self._prepared, mode=self._next_mode))
        (await self._open_session()).view.print_note(f"The mode is {word} from now on.")

    async def choose_model(self, name: str) -> None:
        """Change the model, or print the current one."""
        prepared = self._prepared
        if name:
            settings = msgspec.structs.replace(prepared.settings, model=name)
            model = choose_model(settings)
            run_settings = {**prepared.run_settings, "model": name}
            await self._reopen_with(
                msgspec.structs.replace(prepared, settings=settings, model=model, run_settings=run_settings)
            )
        (await self._open_session()).view.print_note(f"The model is {self._prepared.model.label}.")

    async def print_cost(self, _: str = "") -> None:
        """Print the tokens and the cost of the conversation."""
        session = await self._open_session()
        usage = (await load_run(session.runner.log, self._run_id)).ledger.dialogue.usage if self._run_id else Usage()
        session.view.print_note(f"  {format_usage(usage) or 'no tokens were counted'}")

    async def print_diff(self, _: str = "") -> None:
        """Print what the edits of the conversation changed."""
        session = await self._open_session()
        edits = (
            [
                event.fact.observation
                async for event in read_events(session.runner.log, self._run_id)
                if isinstance(event.fact, CallObserved)
            ]
            if self._run_id
            else []
        )
        diffs = [each.content.text for each in edits if each.ok and each.content and each.content.format == "diff"]
        for diff in diffs:
            session.view.print_lines(*format_diff(diff, max_lines=_MAX_DIFF_LINES, with_names=True))
        if not diffs:
            session.view.print_note("  No edits yet. Changes that commands made are not listed here.", "dim")

    async def print_tools(self, _: str = "") -> None:
        """Print the tools of the agent."""
        session, prepared = await self._open_session(), self._prepared
        context = CallContext(run_id="run_tools", mode=prepared.mode, workspace=prepared.workspace, interactive=True)
        for tool in session.runner.app.registry.catalog(context).tools:
            about = shorten_line(tool.description.partition("\n")[0], 60)
            session.view.print_lines(Text(f"  {make_visible(tool.name):14} {make_visible(about)}"))

    async def quit(self, _: str = "") -> None:
        """End the chat; the run is kept."""
        self.is_over = True

    async def list_runs(self, _: str = "") -> None:
        """Print the newest runs."""
        session = await self._open_session()
        for run in await list_runs(session.runner.log, RunFilter(limit=_SHOWN_RUNS), ()):
            task = make_visible(shorten_line(run.task, 50))
            session.view.print_lines(Text(f"  {shorten_id(run.run_id)}  {run.state:10} {task}"))
        session.view.print_note("  `interlock runs` has more, in any other terminal.", "dim")

    async def print_help(self, _: str = "") -> None:
        """Print the commands."""
        for name, command in CHAT_COMMANDS.items():
            print(f"  {name:9} {command.help}")
        print("  A line that ends with \\ continues on the next one; Alt-Enter begins a line, too.")
        print("  Shift-Tab chooses the next mode, but not trusted.")
        print("  Ctrl-C interrupts the agent, Ctrl-D ends the chat.")

    async def _handle_input(self, text: str) -> None:
        if not text:
            return
        name, _, arguments = text.partition(" ")
        try:
            if not name.startswith("/"):
                await self.send_message(text)
            elif command := CHAT_COMMANDS.get(name):
                await command.run(self, arguments.strip())
            else:
                (await self._open_session()).view.print_note(describe_unknown("command", name, CHAT_COMMANDS), "yellow")
        except ModelError:
            print("/resume asks the model again.")
        except InterlockError as error:
            (await self._open_session()).view.print_note(f"interlock: {error}", "red")

    async def _print_welcome(self) -> None:
        session = await self._open_session()
        prepared = self._prepared
        session.view.print_note(f"{prepared.model.label}, mode {prepared.mode}, in {prepared.workspace}", "dim")
        session.view.print_note("/help lists the commands.", "dim")
        if not self._run_id:
            await note_stopped_runs(session, prepared)
        else:
            dialogue = (await load_run(session.runner.log, self._run_id)).ledger.dialogue
            for message in dialogue.messages[-_SHOWN_MESSAGES:]:
                if isinstance(message, UserMessage | AssistantMessage) and message.text:
                    who = "you" if isinstance(message, UserMessage) else "agent"
                    session.view.print_lines(*format_speech(who, message.text[:_MAX_SHOWN_CHARS], session.region.width))

    async def _reopen_with(self, prepared: PreparedRun) -> None:
        await self._closing.aclose()
        self._session = self._handle = None
        self._prepared = prepared

    def _switch_mode(self) -> None:
        at = _KEY_MODES.index(self._next_mode) if self._next_mode in _KEY_MODES else -1
        self._next_mode = _KEY_MODES[(at + 1) % len(_KEY_MODES)]

    def _format_status(self) -> str:
        parts = (self._next_mode, format_usage(self._usage), "Shift-Tab: mode", "Alt-Enter: new line", "/help")
        return f" {' · '.join(filter(None, parts))}"

    async def _open_session(self) -> LiveSession:
        if self._session is None:
            self._closing = AsyncExitStack()
            self._session = await self._closing.enter_async_context(
                open_session(self._prepared, self._modes, chat=True)
            )
        return self._session

    async def _reopen_run(self, session: LiveSession) -> RunHandle:
        """Open a run of the log. It is idle at once if nothing is open."""
        self._last_seq = await restore_view(session.runner, self._run_id, session.view)
        return self._attach_handle(await session.runner.open(self._run_id))

    def _attach_handle(self, handle: RunHandle) -> RunHandle:
        self._handle, self._run_id = handle, handle.run_id
        if self._session is not None:
            handle.on_model(self._session.view.on_model_event)
        return handle

    async def _mark_shown(self, session: LiveSession) -> None:
        """Remember the last event, so that what was shown is not shown again, and what was used so far."""
        if self._run_id:
            ledger = (await load_run(session.runner.log, self._run_id)).ledger
            self._last_seq, self._usage = ledger.next_seq - 1, ledger.dialogue.usage

    def _print_result(self, result: AgentResult, session: LiveSession) -> None:
        width = session.region.width
        if result.state.is_over or result.questions:
            session.view.print_lines(*format_result(result, self._prepared, width, "/resume"))
        elif result.verification != self._verification and result.verification.status != "none":
            session.view.print_lines(*format_verification(result, width))
        self._verification, self._usage = result.verification, result.usage
        if result.state.is_over:
            self._handle, self._run_id, self._last_seq = None, "", -1


CHAT_COMMANDS: Mapping[str, ChatCommand] = {
    "/help": ChatCommand("this list", ChatSession.print_help),
    "/model": ChatCommand("the model; with a name: another one", ChatSession.choose_model),
    "/mode": ChatCommand("how much is done without asking; with a word: another mode", ChatSession.choose_mode),
    "/diff": ChatCommand("what the edits of this conversation changed", ChatSession.print_diff),
    "/undo": ChatCommand("put back what the newest turn changed; with `all`: this conversation", ChatSession.undo),
    "/cost": ChatCommand("tokens and cost of this conversation", ChatSession.print_cost),
    "/compact": ChatCommand("summarize all but the newest turn, to make room", ChatSession.compact),
    "/tools": ChatCommand("the tools of the agent", ChatSession.print_tools),
    "/resume": ChatCommand("go on: ask open questions again, or the model", ChatSession.resume),
    "/runs": ChatCommand("the newest runs", ChatSession.list_runs),
    "/quit": ChatCommand("end the chat; the run is kept", ChatSession.quit),
}
