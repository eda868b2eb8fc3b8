"""A run with files and commands is replayed without touching either, as any user, wherever the log is kept."""

from pathlib import Path

import pytest

from interlock import CallbackInteractionProvider, LocalTools, SqliteLog
from interlock.agent.agent import Agent
from interlock.domain.call import Answer, Question
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.replay.model import replay_model
from interlock.runs.runner import Runner
from interlock.storage.file_artifacts import FileArtifacts

TURNS = (
    ScriptedTurn(calls=(tool_call("read_file", path="sum.py"), tool_call("grep", pattern="def"))),
    ScriptedTurn(calls=(tool_call("edit_file", path="sum.py", old_string="a - b", new_string="a + b"),)),
    ScriptedTurn(calls=(tool_call("edit_file", path="sum.py", old_string="nowhere", new_string="x"),)),
    ScriptedTurn(calls=(tool_call("bash", command="cat sum.py; exit 3"), tool_call("list_dir", path="."))),
    ScriptedTurn(text="Done."),
)
#: Fails in a replay: it would report another text.
CHECKER = ("*.py: grep -nH return {file}",)


async def _yes(question: Question) -> Answer:
    return Answer(approved=True, by="ann")


def fixer(folder: Path) -> Agent:
    return Agent(provider=ScriptedModel(TURNS, by_position=True), tools=LocalTools(folder, diagnostics=CHECKER))


@pytest.mark.requirement("R269")
async def test_a_replay_of_edits_and_commands_changes_nothing_and_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    artifacts = FileArtifacts(tmp_path / "artifacts")
    async with SqliteLog(tmp_path / "runs.db") as log:
        people = CallbackInteractionProvider(_yes)
        async with Runner(fixer(folder), log=log, artifacts=artifacts, interaction=people) as runner:
            handle = await runner.start("Fix it.")
            result = await handle.result()
        entries = await log.read(handle.run_id)
    (folder / "sum.py").write_text("something else\n")

    replay = await replay_model(entries, fixer(folder), artifacts)

    assert [observation.ok for observation in result.observations] == [True, True, True, False, False, True]
    assert "Diagnostics:" in str(result.observations[2].content)
    assert replay.same, replay.words
    assert (folder / "sum.py").read_text() == "something else\n"
