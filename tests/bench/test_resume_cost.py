"""What pausing and resuming a short run costs on disk: commits, and reads in another thread. The counts are exact."""

import asyncio
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from interlock import Answer, Runner, SqliteLog, tool
from tests.runs.support import agent_of, calls
from tests.storage.watched import Gate


@tool(risk="write")
async def change() -> str:
    """Change something."""
    return "changed"


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were handed to a thread of the event loop."""
    found: list[str] = []
    to_thread = asyncio.to_thread

    async def counted(function: Any, /, *args: Any, **options: Any) -> Any:
        found.append(getattr(function, "__name__", repr(function)))
        return await to_thread(function, *args, **options)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    return found


async def _count_commits(folder: Path) -> tuple[int, int]:
    script, gate = (calls(("a", "change", {})), "Done."), Gate()
    async with SqliteLog(folder / "log", factory=gate.connections) as log:
        gate.commits = 0
        async with Runner(agent_of(*script, tools=[change]), log=log) as runner:
            handle = await runner.start("Do it.")
            (question,) = (await handle.result()).questions
        paused = gate.commits
    async with SqliteLog(folder / "log", factory=gate.connections) as log:
        gate.commits = 0
        async with Runner(agent_of(*script, tools=[change]), log=log) as runner:
            handle = await runner.open(handle.run_id, answers={question.action_id: Answer(approved=True)})
            assert (await handle.result()).text == "Done."
        return paused, gate.commits


async def test_short_run_pauses_and_resumes_with_few_commits(tmp_path: Path, hops: list[str]) -> None:
    """Until the pause: the task with the lease, what the model is shown, the question with the release. After it: the
    lease, the answer, the start of the call, what the model is shown, the end with the release. A process that stalls
    writes more often, so the least of several runs counts.
    """
    counted = [await _count_commits(Path(mkdtemp(dir=tmp_path))) for _ in range(5)]

    assert (min(paused for paused, _ in counted), min(resumed for _, resumed in counted)) == (3, 5)
    assert set(hops) == {"_close"}
