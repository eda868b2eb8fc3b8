"""A runner that is given something else, or is used where it cannot work, says so before anything starts."""

import asyncio
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from interlock import (
    Answer,
    ConfigurationError,
    HeadlessInteractionProvider,
    MemoryLog,
    Question,
    Runner,
    ScriptedModel,
    tool,
)
from tests.patience import HANG_SECONDS

from .support import agent_of, calls

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a path instead of a log": ({"log": "runs.db"}, r"log is of type str. Give something like SqliteLog\("),
    "a path instead of artifacts": ({"artifacts": "kept"}, r"artifacts is of type str.*FileArtifacts\("),
    "a function instead of a provider": ({"interaction": print}, "interaction is of type.*CallbackInteractionProvider"),
    "approve and interaction": (
        {"approve": print, "interaction": HeadlessInteractionProvider()},
        "Give interaction= or approve=, not both",
    ),
    "an answer instead of a function": ({"approve": True}, "approve is of type bool. Give something like a function"),
    "a mode that is none": ({"mode": "wild"}, "Unknown mode `wild`"),
    "an option that is none": ({"model": "gpt-5"}, "Unknown option `model`. Did you mean `mode`?"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_option_that_cannot_be_is_refused_with_what_to_give_instead(name: str) -> None:
    options, words = MISTAKES[name]
    with pytest.raises(ConfigurationError, match=words):
        Runner(agent_of("Done."), **options)


def test_a_runner_is_given_an_agent() -> None:
    with pytest.raises(ConfigurationError, match="A Runner is given an Agent, and this is of type ScriptedModel"):
        Runner(ScriptedModel([]))  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [None, ["Look.", None], 3])
def test_a_task_is_text(task: Any) -> None:
    with (
        Runner(agent_of("Done.")) as runner,
        pytest.raises(ConfigurationError, match=r"attachments, and this is a .* Nothing"),
    ):
        runner.run_sync(task)


async def test_where_an_event_loop_runs_the_synchronous_call_says_what_to_write() -> None:
    async with Runner(agent_of("Done.")) as runner:
        with pytest.raises(ConfigurationError, match="use `async with Runner"):
            runner.run_sync("Do it.")

        assert (await runner.run("Do it.")).text == "Done."


async def test_a_runner_that_is_closed_starts_nothing() -> None:
    async with Runner(agent_of("Done.")) as runner:
        handle = await runner.start("Do it.")
        await handle.result()

    with pytest.raises(ConfigurationError, match="This Runner is closed"):
        await runner.run("Again.")
    with pytest.raises(ConfigurationError, match="This Runner is closed"):
        await runner.open(handle.run_id)
    assert (await handle.result()).text == "Done."


def test_a_runner_without_a_loop_can_be_used_in_several_and_closed_twice() -> None:
    with Runner(agent_of("Done.")) as runner:
        assert runner.run_sync("Do it.").text == "Done."
        assert asyncio.run(runner.run("Do it.")).text == "Done."
        assert runner.run_sync("Do it.").text == "Done."
    runner.close_sync()


def test_a_runner_at_work_in_another_thread_says_so() -> None:
    running, go_on = Event(), Event()

    @tool(risk="read")
    def wait() -> str:
        """Wait."""
        running.set()
        go_on.wait(HANG_SECONDS)
        return "waited"

    with Runner(agent_of(calls(("a", "wait", {})), "Done.", tools=[wait])) as runner:
        thread = Thread(target=runner.run_sync, args=("Do it.",))
        thread.start()
        assert running.wait(HANG_SECONDS)
        with pytest.raises(ConfigurationError, match="at work in another thread"):
            runner.run_sync("Do it.")
        go_on.set()
        thread.join()


async def test_an_id_is_for_one_run() -> None:
    async with Runner(agent_of("Hello.", "Again."), chat=True) as runner:
        await (await runner.start("Hi.", run_id="mine")).result()

        with pytest.raises(ConfigurationError, match="There is a run 'mine' already"):
            await runner.start("Hi again.", run_id="mine")

        handle = await runner.open("mine")
        await handle.send_message("Hi again.")
        assert (await handle.result()).text == "Again."


@pytest.mark.parametrize("reply", [True, Answer(approved=True, by="ana")])
@pytest.mark.parametrize("is_async", [True, False])
async def test_approve_answers_questions(reply: bool | Answer, is_async: bool) -> None:
    asked: list[Question] = []

    def approve(question: Question) -> bool | Answer:
        asked.append(question)
        return reply

    async def approve_later(question: Question) -> bool | Answer:
        return approve(question)

    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
    async with Runner(agent, approve=approve_later if is_async else approve) as runner:
        result = await runner.run("Do it.")
    assert [question.tool_name for question in asked] == ["change"]
    assert [record.output for record in result.tool_executions] == ["changed"]


async def test_approve_that_returns_false_rejects() -> None:
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
    async with Runner(agent, approve=lambda question: False) as runner:
        result = await runner.run("Do it.")
    assert [observation.code for observation in result.observations] == ["user_denied"]


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


async def test_open_refuses_another_workspace(tmp_path: Path) -> None:
    """The run would read and change other files than those that it was started for."""
    log = MemoryLog()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[tool(risk="write", name="change")(lambda: "changed")])
    async with Runner(agent, log=log, workspace=tmp_path) as runner:
        await (await runner.start("Do it.", run_id="one")).result()
    for other in (tmp_path / "other", None):
        async with Runner(agent, log=log, workspace=other) as runner:
            assert await runner.recover() == []
            with pytest.raises(ConfigurationError, match=r"Run one works in .* Nothing was started"):
                await runner.open("one")
    async with Runner(agent, log=log, workspace=tmp_path / "link") as runner:
        assert (await runner.open("one")).run_id == "one"
