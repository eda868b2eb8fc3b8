"""A conversation: a person says something, the agent works on it, and the run rests until they say more."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec
from rich.text import Text

from ...domain.errors import InterlockError, ModelError
from ...domain.messages import AssistantMessage, UserMessage
from ...domain.state.verification import Verification
from ...domain.tool import Mode
from ...history.fold import load
from ...runs.handle import RunHandle
from ...runs.result import AgentResult
from ..config.logs import short, with_log
from ..display.formatting import first_words
from ..display.live import said_lines
from ..display.output import visible_line
from ..display.run_list import Which, list_runs
from .agent import Prepared
from .chat_prompt import typed
from .ending import ending, verified
from .session import Stage, opened_stage, remembered, say_stopped, watched
from .terminal import TerminalModes

PROMPT = "> "
_SHOWN_RUNS = 8
_SHOWN_MESSAGES = 6
_MAX_SHOWN_CHARS = 2_000


class Command(NamedTuple):
    about: str
    do: Callable[["Talk", str], Awaitable[None]]


class Talk:
    def __init__(self, prepared: Prepared, modes: TerminalModes, run_id: str = "") -> None:
        self._prepared = prepared
        self._modes = modes
        self._run_id = run_id
        self._closing = AsyncExitStack()
        self._stage: Stage | None = None
        self._handle: RunHandle | None = None
        self._seen = -1
        self._verification: Verification | None = None
        self.is_over = False

    async def talk(self) -> None:
        try:
            await self._greet()
            while not self.is_over:
                said = await typed(PROMPT)
                if said is None:
                    print()
                    return
                await self._hear(said.strip())
        finally:
            await self._closing.aclose()
            if self._run_id:
                command = with_log(f"interlock chat --resume {short(self._run_id)}", self._prepared.named_log)
                print(f"The run is kept. `{command}` goes on with it.")

    async def say_to_agent(self, text: str) -> None:
        stage = await self._opened()
        handle = self._handle
        try:
            if handle is None and not self._run_id:
                handle = self._taken(await stage.runner.start(text))
            else:
                handle = handle or await self._reopened(stage)
                if await handle.questions():
                    stage.view.say("A question is open, and has to be answered first: /resume asks it again.", "yellow")
                    return
                await handle.say(text)
            self._conclude(await watched(handle, stage, self._seen), stage)
        finally:
            await self._look(stage)

    async def resume(self) -> None:
        """Ask open questions again, or the model when it gave no answer."""
        stage = await self._opened()
        if not self._run_id:
            stage.view.say("There is no run yet: say what to do.")
            return
        try:
            handle = self._handle or await self._reopened(stage)
            await handle.resume()
            self._conclude(await watched(handle, stage, self._seen), stage)
        finally:
            await self._look(stage)

    async def choose_mode(self, word: str) -> None:
        stage = await self._opened()
        if not word:
            stage.view.say(f"The mode is {self._prepared.mode}. There are: {', '.join(Mode)}.")
            return
        if word not in set(Mode):
            stage.view.say(f"There is no mode {word[:40]!r}. There are: {', '.join(Mode)}.", "yellow")
            return
        await self._closing.aclose()
        self._stage = self._handle = None
        self._prepared = msgspec.structs.replace(self._prepared, mode=Mode(word))
        (await self._opened()).view.say(f"The mode is {word} from now on.")

    async def list_runs(self) -> None:
        stage = await self._opened()
        for run in await list_runs(stage.runner.log, (), Which(limit=_SHOWN_RUNS)):
            task = visible_line(first_words(run.task, 50))
            stage.view.show(Text(f"  {short(run.run_id)}  {run.state:10} {task}"))
        stage.view.say("  `interlock runs` has more, in any other terminal.", "dim")

    def help(self) -> None:
        for name, command in COMMANDS.items():
            print(f"  {name:9} {command.about}")
        print("  A line that ends with \\ goes on in the next one.")
        print("  Ctrl-C interrupts the agent, Ctrl-D ends the chat.")

    async def _hear(self, said: str) -> None:
        if not said:
            return
        name, _, rest = said.partition(" ")
        try:
            if name.startswith("/"):
                await self._command(name, rest.strip())
            else:
                await self.say_to_agent(said)
        except ModelError:
            print("/resume asks the model again.")
        except InterlockError as error:
            (await self._opened()).view.say(f"interlock: {error}", "red")

    async def _command(self, name: str, rest: str) -> None:
        command = COMMANDS.get(name)
        if command is None:
            (await self._opened()).view.say(f"There is no command {name[:40]}. /help lists them.", "yellow")
        else:
            await command.do(self, rest)

    async def _greet(self) -> None:
        stage = await self._opened()
        prepared = self._prepared
        stage.view.say(f"{prepared.model.shown}, mode {prepared.mode}, in {prepared.workspace}", "dim")
        stage.view.say("/help lists the commands.", "dim")
        if not self._run_id:
            await say_stopped(stage, prepared)
        else:
            dialogue = (await load(stage.runner.log, self._run_id)).ledger.dialogue
            for message in dialogue.messages[-_SHOWN_MESSAGES:]:
                if isinstance(message, UserMessage | AssistantMessage) and message.text:
                    who = "you" if isinstance(message, UserMessage) else "agent"
                    stage.view.show(*said_lines(who, message.text[:_MAX_SHOWN_CHARS], stage.region.width))

    async def _opened(self) -> Stage:
        if self._stage is None:
            self._closing = AsyncExitStack()
            self._stage = await self._closing.enter_async_context(opened_stage(self._prepared, self._modes, chat=True))
        return self._stage

    async def _reopened(self, stage: Stage) -> RunHandle:
        """A run that is in the log. It rests at once, where nothing is open."""
        self._seen = await remembered(stage.runner, self._run_id, stage.view)
        return self._taken(await stage.runner.open(self._run_id))

    def _taken(self, handle: RunHandle) -> RunHandle:
        self._handle, self._run_id = handle, handle.run_id
        if self._stage is not None:
            handle.on_model(self._stage.view.heard)
        return handle

    async def _look(self, stage: Stage) -> None:
        """What was shown is not shown again."""
        if self._run_id:
            self._seen = len(await stage.runner.log.read(self._run_id)) - 1

    def _conclude(self, result: AgentResult, stage: Stage) -> None:
        width = stage.region.width
        if result.state.is_over or result.questions:
            stage.view.show(*ending(result, self._prepared, width, "/resume"))
        elif result.verification != self._verification and result.verification.status != "none":
            stage.view.show(*verified(result, width))
        self._verification = result.verification
        if result.state.is_over:
            self._handle, self._run_id, self._seen = None, "", -1


async def _quit(talk: Talk, rest: str) -> None:
    talk.is_over = True


async def _help(talk: Talk, rest: str) -> None:
    talk.help()


async def _mode(talk: Talk, rest: str) -> None:
    await talk.choose_mode(rest)


async def _resume(talk: Talk, rest: str) -> None:
    await talk.resume()


async def _runs(talk: Talk, rest: str) -> None:
    await talk.list_runs()


COMMANDS: Mapping[str, Command] = {
    "/help": Command("this list", _help),
    "/mode": Command("how much is done without asking; with a word: another mode", _mode),
    "/resume": Command("go on: ask open questions again, or the model", _resume),
    "/runs": Command("the newest runs", _runs),
    "/quit": Command("end the chat; the run is kept", _quit),
}
