"""A conversation: the user sends a message, the agent works on it, and the run is idle until the next one."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple

import msgspec
from rich.text import Text

from ...domain.errors import InterlockError, ModelError
from ...domain.messages import AssistantMessage, UserMessage
from ...domain.state.verification import Verification
from ...domain.tool import PermissionMode
from ...history.fold import load_run
from ...rendering.text import shorten_line
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ..config.logs import add_log_option, shorten_id
from ..display.live import format_speech
from ..display.output import make_visible
from ..display.run_list import RunFilter, list_runs
from .agent import PreparedRun
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

_QUIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_MAX_CHARS = 1_000_000
_QUIT_HINT = "(Ctrl-C again, Ctrl-D or /quit ends the chat)"


async def read_message(prompt: str) -> str | None:
    """Read a message; None at the end of the input, after Ctrl-C twice, or when this process should end."""
    lines: list[str] = []
    while True:
        line = await _read_line("." * (len(prompt) - 1) + " " if lines else prompt)
        if line is None:
            return "\n".join(lines) if lines else None
        if not line.endswith("\\") or sum(map(len, lines)) > _MAX_CHARS:
            return "\n".join([*lines, line])
        lines.append(line[:-1])


async def _read_line(prompt: str) -> str | None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()
    # With it lines can be edited, and there is a history for as long as the chat lasts. A Python may lack it.
    editor: Any = import_module("readline") if find_spec("readline") else None
    interrupted = False

    def settle(line: str | None) -> None:
        if not answer.done():
            answer.set_result(line)

    def read() -> None:
        try:
            line = input(prompt if sys.stdin.isatty() else "")
        except (EOFError, OSError, ValueError):
            line = None
        with suppress(RuntimeError):  # The loop is closed, and there is no listener any more.
            loop.call_soon_threadsafe(settle, line)

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            settle(None)
        else:
            interrupted = True
            written = editor.get_line_buffer() if editor is not None else ""
            print(f"\n{_QUIT_HINT}\n{prompt}{written}", end="", flush=True)

    handlers = {signal.SIGINT: interrupt} | dict.fromkeys(_QUIT_SIGNALS, lambda: settle(None))
    with signal_handlers(handlers):  # Before the prompt is shown.
        # Not a thread of the loop's pool: it must not keep the process alive.
        Thread(target=read, name="prompt", daemon=True).start()
        return await answer


PROMPT = "> "
_SHOWN_RUNS = 8
_SHOWN_MESSAGES = 6
_MAX_SHOWN_CHARS = 2_000


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
        self.is_over = False

    async def run(self) -> None:
        """Read and handle messages until the person ends the session."""
        try:
            await self._print_welcome()
            while not self.is_over:
                text = await read_message(PROMPT)
                if text is None:
                    print()
                    return
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

    async def choose_mode(self, word: str) -> None:
        """Change the permission mode, or print the current one. Reopen the session with it."""
        session = await self._open_session()
        if word not in set(PermissionMode):
            said = f"There is no mode {word[:40]!r}." if word else f"The mode is {self._prepared.mode}."
            session.view.print_note(f"{said} There are: {', '.join(PermissionMode)}.", "yellow" if word else "")
            return
        await self._closing.aclose()
        self._session = self._handle = None
        self._prepared = msgspec.structs.replace(self._prepared, mode=PermissionMode(word))
        (await self._open_session()).view.print_note(f"The mode is {word} from now on.")

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
        print("  A line that ends with \\ continues on the next one.")
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
                (await self._open_session()).view.print_note(
                    f"There is no command {name[:40]}. /help lists them.", "yellow"
                )
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
        """Remember the last event, so that what was shown is not shown again."""
        if self._run_id:
            self._last_seq = len(await session.runner.log.read(self._run_id)) - 1

    def _print_result(self, result: AgentResult, session: LiveSession) -> None:
        width = session.region.width
        if result.state.is_over or result.questions:
            session.view.print_lines(*format_result(result, self._prepared, width, "/resume"))
        elif result.verification != self._verification and result.verification.status != "none":
            session.view.print_lines(*format_verification(result, width))
        self._verification = result.verification
        if result.state.is_over:
            self._handle, self._run_id, self._last_seq = None, "", -1


CHAT_COMMANDS: Mapping[str, ChatCommand] = {
    "/help": ChatCommand("this list", ChatSession.print_help),
    "/mode": ChatCommand("how much is done without asking; with a word: another mode", ChatSession.choose_mode),
    "/resume": ChatCommand("go on: ask open questions again, or the model", ChatSession.resume),
    "/runs": ChatCommand("the newest runs", ChatSession.list_runs),
    "/quit": ChatCommand("end the chat; the run is kept", ChatSession.quit),
}
