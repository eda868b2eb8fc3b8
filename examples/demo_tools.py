"""The project and the tools of `demo.py`: real files, a real test run, a real wait."""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from time import sleep

from interlock import Normalized, ToolContext, ToolDefinition, tool

SHOP = "def discount(items):\n    return 0.1 if items > 100 else 0.0\n"
TEST_SHOP = """
import unittest
from shop import discount

class TestDiscount(unittest.TestCase):
    "Ten percent from 100 items on."

def check(items):
    return lambda self: self.assertEqual(discount(items), 0.1 if items >= 100 else 0.0)

for items in range(1, 301):
    setattr(TestDiscount, f"test_{items:03}_items", check(items))
"""


def make_project(folder: Path) -> Path:
    """A module with a mistake, and 300 tests of which one finds it."""
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(TEST_SHOP)
    return folder


def tools_of(project: Path) -> list[ToolDefinition]:
    @tool(risk="read")
    def search(words: str, limit: int = 2) -> list[str]:
        """Find lines of the project that hold the words."""
        lines = [(file.name, line) for file in sorted(project.glob("*.py")) for line in file.read_text().splitlines()]
        return [f"{name}: {line.strip()}" for name, line in lines if words in line][:limit]

    @tool(risk="write")
    def delete_file(name: str) -> str:
        """Delete a file."""
        (project / name).unlink()
        return f"deleted {name}"

    @tool(risk="read", timeout_seconds=0.3)
    def wait_for_file(name: str, context: ToolContext) -> str:
        """Wait until a file is there."""
        # A thread cannot be stopped from outside, so a long loop looks whether it is still wanted.
        while not (project / name).exists() and not context.cancelled:
            sleep(0.01)
        return f"{name} is there"

    @tool(risk="write", write_keys=lambda arguments: arguments["name"])
    def write_note(name: str, text: str, context: ToolContext) -> str:
        """Write a note."""
        (project / name).write_text(text)
        context.side_effect("created", name)
        return f"wrote {len(text)} characters to {name}"

    @tool(risk="execute", max_output_chars=1_000, normalize=report)
    async def run_tests() -> tuple[int | None, str]:
        """Run the tests of the project."""
        command = (sys.executable, "-m", "unittest", "-v")
        process = await asyncio.create_subprocess_exec(*command, cwd=project, stdout=PIPE, stderr=STDOUT)
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    return [search, delete_file, wait_for_file, write_note, run_tests]


def report(ended: tuple[int | None, str]) -> Normalized:
    """What a test run comes to, in the shape that all tools share."""
    exit_code, output = ended
    last_line = output.rstrip().rpartition("\n")[2]
    return Normalized(
        ok=exit_code == 0,
        code="ok" if exit_code == 0 else "tests_failed",
        summary=last_line,
        text=output,
        exit_code=exit_code,
        side_effects=(),
    )
