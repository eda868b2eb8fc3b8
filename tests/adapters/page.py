"""Run the Python blocks of an adapter's page, with a scripted model in place of the real one."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

from tests.docs.pages import compiled, python_blocks, text_of

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
