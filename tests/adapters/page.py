"""Run the Python blocks of an adapter's page, with a scripted model in place of the real one, and its example."""

import asyncio
import inspect
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlock import FileArtifacts, Inbox, SqliteLog
from tests.docs.pages import ROOT, compiled, python_blocks, text_of
from tests.patience import HANG_SECONDS, eventually

#: The model of every page.
MODEL = '"openai:gpt-5"'


async def run_blocks(page: str, names: dict[str, Any], model: str = MODEL) -> AsyncIterator[str]:
    """Run one block after the other in the same names, and yield each after it ran. `MODEL` in `names` is the model."""
    for block in python_blocks(text_of(page)):
        # The blocks are those of a person at a prompt that takes `await`.
        code = compiled(block.code.replace(model, "MODEL"), page, block.line)
        ran = eval(code, names)  # noqa: S307 - our own page
        if inspect.isawaitable(ran):
            await ran
        yield block.code


async def check_example(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the example of a framework, answer over its log, and wait until it continues and ends by itself."""
    file = ROOT / "examples" / "adapters" / f"{name}_resume.py"
    main = runpy.run_path(str(file))["main"]
    printed: list[str] = []

    def asks() -> bool:
        printed.append(capsys.readouterr().out)
        return "approvals approve" in "".join(printed) or program.done()

    program = asyncio.create_task(main(folder))
    await eventually(asks)
    async with SqliteLog(folder / "runs.db") as log:
        inbox = Inbox(log, FileArtifacts(folder / "runs.db.artifacts"))
        (question,) = await inbox.pending()
        assert "".join(printed) == f"interlock approvals approve {question.action_id} --log {folder}/runs.db\n"
        await inbox.approve(question, by="ada")
    async with asyncio.timeout(HANG_SECONDS):
        await program
    assert capsys.readouterr().out.endswith("ticket-42: Order 7 is refunded.\n")
