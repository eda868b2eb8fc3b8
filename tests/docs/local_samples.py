"""What the built-in tools say to their three readers, for `docs/local-tools.md`: made by real calls, with whatever is
another each time (digests, times, the folder) written as `...`.

    .venv/bin/python -m tests.docs.local_samples

writes them into the page: it has a block for each call, in their order.
"""

import asyncio
import json
import re
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from interlock import BatchResult, LocalTools, ToolRuntime, render_for_user

FILES = {
    "shop.py": "def discount(items):\n    return 0.1 if items > 100 else 0.0\n",
    "test_shop.py": """\
import unittest

from shop import discount


class TestDiscount(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(discount(100), 0.1)
""",
    ".env": "TOKEN=swordfish\n",
}
TEST = "python3 -m unittest -q"
#: The id of the task is not known before it runs.
TASK = "task_..."
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "shop.py"}),
    ("read_file", {"path": "shop.py"}),
    ("grep", {"pattern": "discount", "glob": "test_*.py"}),
    ("glob", {"pattern": "*.py"}),
    ("list_dir", {}),
    ("bash", {"command": TEST}),
    ("edit_file", {"path": "shop.py", "old_string": "> 100", "new_string": ">= 100"}),
    ("write_file", {"path": "docs/notes.md", "content": "Ten percent from 100 items on.\n"}),
    ("bash", {"command": TEST}),
    ("bash", {"command": "sleep 0.1; echo built > out.txt; echo done", "background": True}),
    ("wait_task", {"task_id": TASK}),
    ("read_file", {"path": ".env"}),
)
PAGE = "docs/local-tools.md"
_WIDTH = 108
_BLOCK = re.compile(r"^```text\n(call    .*?)^```$", re.MULTILINE | re.DOTALL)
#: With marks under parts of a line, which only some versions of Python make.
_UNDERLINED = re.compile(r"[|~^ ]*[~^][|~^ ]*")
_OTHER_EACH_TIME = (
    (r"sha256:[0-9a-f]{64}", "sha256:..."),
    (r'("\w*(?:sha256|workspace|workspace_before)": )"[0-9a-f]{32,64}"', r'\1"..."'),
    (r'("mtime_ns": )"\d+"', r'\1"..."'),
    (r'("(?:durationMs|duration_ms|peak_memory_bytes|stderr_bytes)": )[\d.]+', r"\1..."),
    (r'("path": )"[0-9a-f]{2}/[0-9a-f/]+"', r'\1"..."'),
    (r"task_[0-9a-f]{8}", TASK),
    (r"\d{4}-\d\d-\d\dT[\d:+]+", "..."),
    (r"\b(in|after) \d+\.\d+ ?s", r"\1 ... s"),
    (r'"/[^"]*/(\w+\.py)"', r'".../\1"'),
    (r"first failure is at /[^ ]*/(\w+\.py):", r"first failure is at .../\1:"),
)


def samples() -> list[str]:
    """One text for each call, in their order."""
    with TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text)
        return asyncio.run(_played(folder))


async def _played(folder: str) -> list[str]:
    tools = LocalTools(folder, environment={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    task, made = "", list[str]()
    async with ToolRuntime(tools=tools, mode="trusted") as runtime:
        for number, (name, arguments) in enumerate(CALLS):
            sent = {key: task if value == TASK else value for key, value in arguments.items()}
            result = await runtime.execute([{"id": f"c{number}", "name": name, "arguments": sent}])
            task = result.observations[0].facts.get("task", {}).get("id", task)
            made.append(_sample(name, arguments, result))
    return made


def shown_in(page: str) -> list[str]:
    return _BLOCK.findall(page)


def written(page: str, made: list[str]) -> str:
    """The page with these samples in its blocks."""
    left = iter(made)
    return _BLOCK.sub(lambda _: f"```text\n{next(left)}```", page)


def _sample(name: str, arguments: dict[str, Any], result: BatchResult) -> str:
    observation = result.observations[0]
    head, _, output = result.messages[0]["content"].partition("\n")
    lines = [f"call    {name} {json.dumps(arguments)}"]
    lines += _wrapped("model   ", json.dumps(json.loads(head)))
    lines += [f"        {_settled(line)}".rstrip() for line in output.splitlines() if _is_output(line)]
    lines += _wrapped("person  ", render_for_user(observation))
    if observation.facts:
        lines += _wrapped("log     ", json.dumps(observation.facts))
    return "\n".join([*lines, ""])


def _is_output(line: str) -> bool:
    return line.startswith("|") and not _UNDERLINED.fullmatch(line)


def _settled(text: str) -> str:
    for pattern, shown in _OTHER_EACH_TIME:
        text = re.sub(pattern, shown, text)
    return text


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        _settled(text),
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    page = Path(PAGE)
    page.write_text(written(page.read_text("utf-8"), samples()), "utf-8")
