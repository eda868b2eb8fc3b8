"""One process of the demo: it drives the run until it is over. The first one kills itself on the way.

It is started by `interlock demo`, with the folder of the demo and whether it is the one that dies.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

import msgspec

from ...domain.call import Answer, AnswerFields, Question
from ...domain.errors import AnswerRefusedError, InterlockError
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.question import CHANGE_SIGNS, describe_tried_change, summarize_trial
from ...runs.handle import RunHandle
from ...runs.runner import Runner
from ...storage.file_artifacts import FileArtifacts
from ...storage.sqlite.log import SqliteLog
from ..display.live import LiveView
from ..display.live_region import LiveRegion, make_live_console
from ..display.output import echo_error
from ..exit_codes import ExitCode
from ..session.live_session import LiveSession, format_verification, get_exit_code, restore_view, show_run
from ..session.terminal import InterruptHandler, TerminalModes, preserve_terminal
from .scenario import EDIT, RUN_ID, TASK, demo_agent, demo_tools

CRASH, SURVIVE = "dies", "lives"
_ANSWERED_BY = "the demo"
#: All of what the tests print: the log is removed at the end, so the rest could not be looked up.
_MAX_OUTPUT_LINES = 40


def main(arguments: list[str]) -> None:
    """Run the demo in this process, with or without a simulated crash, and exit with its code."""
    with preserve_terminal() as modes:
        try:
            code = asyncio.run(_run_demo(Path(arguments[0]), modes, crashes=arguments[1] == CRASH))
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        except InterlockError as error:
            echo_error(error)
            code = ExitCode.FAILED
    sys.exit(code)


async def _run_demo(folder: Path, modes: TerminalModes, *, crashes: bool) -> ExitCode:
    region = LiveRegion(make_live_console())
    view = LiveView(region, max_output_lines=_MAX_OUTPUT_LINES)
    artifacts = FileArtifacts(folder / "artifacts")
    agent = demo_agent(demo_tools(folder / "project", folder / "changes"))
    async with (
        SqliteLog(folder / "runs.db") as log,
        Runner(agent, log=log, artifacts=artifacts, on_progress=view.on_progress) as runner,
    ):
        session = LiveSession(runner, view, region, InterruptHandler(view, None, exit_now=lambda: os._exit(1)), modes)
        last_seq = await restore_view(runner, RUN_ID, view)
        handle = await (runner.open(RUN_ID) if last_seq >= 0 else runner.start(TASK, run_id=RUN_ID))
        handle.on_model(view.on_model_event)
        while (result := await show_run(handle, session, last_seq)).questions and not session.interrupts.is_stopped:
            for question in await handle.questions():
                await _answer(handle, question, view, crashes)
            last_seq = len(await log.read(RUN_ID)) - 1
            await handle.resume()
        view.print_lines(*format_verification(result, region.width))
    return get_exit_code(result, session.interrupts.is_stopped)


async def _answer(handle: RunHandle, question: Question, view: LiveView, crashes: bool) -> None:
    """Answer the question while no process owns the run: the answer is durable before anything continues."""
    terminal = TerminalInteractionProvider(None)
    # The policy of the demo is no file that a rule could be saved in.
    shown = msgspec.structs.replace(question, scope="window")
    answer = await terminal.ask(shown) if terminal.interactive else _auto_approve(question, view)
    if answer is None:
        return
    fields = {name: getattr(answer, name) for name in AnswerFields.__annotations__ if hasattr(answer, name)}
    try:
        await handle.decide(question.action_id, **cast(AnswerFields, fields))
    except AnswerRefusedError as error:
        view.print_note(f"  {error}", "yellow")
        return
    if crashes and answer.approved and question.tool_name == EDIT:
        view.print_note(f"  The approval is in the log. Process {os.getpid()} kills itself: kill -9.", "bold red")
        os.kill(os.getpid(), signal.SIGKILL)


def _auto_approve(question: Question, view: LiveView) -> Answer:
    view.print_note(f"  Approval required: {question.capability}: {question.reason}", "yellow")
    if question.trial is not None:
        view.print_note(f"  It was tried first: {summarize_trial(question.trial)}:", "yellow")
        for change in question.trial.changes:
            view.print_note(f"    {CHANGE_SIGNS[change.kind]} {describe_tried_change(change)}", "yellow")
    view.print_note("  No terminal to ask at, so the demo approves it itself.", "yellow")
    return Answer(approved=True, by=_ANSWERED_BY)


if __name__ == "__main__":
    main(sys.argv[1:])
