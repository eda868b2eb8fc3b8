"""The page about functions behind a gate, with a plain agent loop."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Gate
from tests.docs.pages import compiled, python_blocks, text_of
from tests.gate.support import answer, until_asked

_PAGE = "docs/adapters/functions.md"


def _run_agent(prompt: str, tools: list[Callable[..., Any]]) -> str:
    """Call each tool once, like an agent of a framework that takes functions."""
    find_order, refund = tools
    return f"{find_order(order=7)} {refund(7, amount=5.0)}"


async def _answer(folder: Path) -> None:
    async with Gate(folder) as other:  # another program
        await until_asked(other, "ticket-42")
        await answer(other, "ticket-42")


def test_the_page_about_functions_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    people = threading.Thread(target=lambda: asyncio.run(_answer(tmp_path / "state")))
    people.start()
    names: dict[str, Any] = {"run_agent": _run_agent}
    for block in python_blocks(text_of(_PAGE)):
        exec(compiled(block.code, _PAGE, block.line), names)  # noqa: S102 - our own page
    people.join()

    assert capsys.readouterr().out == "Order 7: paid 5.0. Refunded 5.0 for order 7.\n"
