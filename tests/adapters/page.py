"""Run the Python blocks of an adapter's page, with a scripted model in place of the real one, and its example."""

import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, compiled, python_blocks, text_of
from tests.patience import HANG_SECONDS

#: The model of every page.
MODEL = '"openai:gpt-5"'
_COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()"]


async def run_blocks(page: str, names: dict[str, Any], model: str = MODEL) -> AsyncIterator[str]:
    """Run one block after the other in the same names, and yield each after it ran. `MODEL` in `names` is the model."""
    for block in python_blocks(text_of(page)):
        # The blocks are those of a person at a prompt that takes `await`.
        code = compiled(block.code.replace(model, "MODEL"), page, block.line)
        ran = eval(code, names)  # noqa: S307 - our own page
        if inspect.isawaitable(ran):
            await ran
        yield block.code


def check_example(name: str, folder: Path) -> None:
    """Run the example of a framework, answer it as another process does, and wait until it ends by itself."""
    program = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "adapters" / f"{name}_resume.py", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert program.stdout is not None
        name, *options = program.stdout.readline().split()
        assert name == "interlock"
        approved = subprocess.run(
            [*_COMMAND, *options], check=False, capture_output=True, text=True, timeout=HANG_SECONDS
        )
        assert approved.returncode == 0, approved.stderr
        output, _ = program.communicate(timeout=HANG_SECONDS)
    finally:
        program.kill()
        program.wait()
    assert "ticket-42: Order 7 is refunded." in output
    assert program.returncode == 0
