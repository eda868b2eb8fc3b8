"""One process of the demo: it moves the run on until it is over. The first one kills itself on the way.

It is started by `interlock demo`, with the folder of the demo and whether it is the one that dies.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

from ...domain.call import Answer, Decided, Question
from ...domain.errors import AnswerRefusedError, InterlockError
from ...interaction.terminal import TerminalInteractionProvider
from ...runs.handle import RunHandle
from ...runs.runner import Runner
from ...storage.file_artifacts import FileArtifacts
from ...storage.sqlite.log import SqliteLog
from ..display.live import LiveView
from ..display.live_region import Region, live_console
from ..display.output import say_wrong
from ..exit_codes import ExitCode
from ..session.ending import exit_code_of, verified
from ..session.interrupt import Interrupts
from ..session.session import Stage, remembered, watched
from ..session.terminal import TerminalModes, terminal_as_it_was
from .story import EDIT, RUN_ID, TASK, demo_agent, demo_tools

DIES, LIVES = "dies", "lives"
_BY = "the demo"


def main(words: list[str]) -> None:
    with terminal_as_it_was() as modes:
        try:
            code = asyncio.run(_move_on(Path(words[0]), modes, dies=words[1] == DIES))
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        except InterlockError as error:
            say_wrong(error)
            code = ExitCode.FAILED
    sys.exit(code)


async def _move_on(folder: Path, modes: TerminalModes, *, dies: bool) -> ExitCode:
    region = Region(live_console())
    view = LiveView(region)
    artifacts = FileArtifacts(folder / "artifacts")
    agent = demo_agent(demo_tools(folder / "project"))
    async with (
        SqliteLog(folder / "runs.db") as log,
        Runner(agent, log=log, artifacts=artifacts, on_progress=view.progress) as runner,
    ):
        stage = Stage(runner, view, region, Interrupts(view, None, leave_now=lambda: os._exit(1)), modes)
        seen = await remembered(runner, RUN_ID, view)
        handle = await (runner.open(RUN_ID) if seen >= 0 else runner.start(TASK, run_id=RUN_ID))
        handle.on_model(view.heard)
        while (result := await watched(handle, stage, seen)).questions and not stage.interrupts.stopped:
            for question in await handle.questions():
                await _answer(handle, question, view, dies)
            seen = len(await log.read(RUN_ID)) - 1
            await handle.resume()
        view.show(*verified(result, region.width))
    return exit_code_of(result, stage.interrupts.stopped)


async def _answer(handle: RunHandle, question: Question, view: LiveView, dies: bool) -> None:
    """The run waits, and nobody has it: the answer is durable before anything goes on."""
    terminal = TerminalInteractionProvider(None)
    said = await terminal.ask(question) if terminal.interactive else _own_answer(question, view)
    if said is None:
        return
    decided = {name: getattr(said, name) for name in Decided.__annotations__ if hasattr(said, name)}
    try:
        await handle.decide(question.action_id, **cast(Decided, decided))
    except AnswerRefusedError as error:
        view.say(f"  {error}", "yellow")
        return
    if dies and said.approved and question.tool_name == EDIT:
        view.say(f"  The yes is in the log. Process {os.getpid()} kills itself: kill -9.", "bold red")
        os.kill(os.getpid(), signal.SIGKILL)


def _own_answer(question: Question, view: LiveView) -> Answer:
    view.say(f"  A person is asked: {question.capability}: {question.reason}", "yellow")
    view.say("  There is no terminal to ask at, so the demo itself says yes.", "yellow")
    return Answer(approved=True, by=_BY)


if __name__ == "__main__":
    main(sys.argv[1:])
