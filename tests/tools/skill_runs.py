"""Folders of skills, and a run with their tools, for the tests of skills."""

from itertools import count
from pathlib import Path
from typing import Any

from interlock import Observation, ToolRuntime
from interlock.tools.skills.skill_tools import skills
from tests.support import call

TEXT = """\
---
name: {name}
description: How to write release notes. Use when a version is published.
---
# Release notes

Read references/style.md first.
"""


def write_skill(root: Path, name: str = "notes", text: str = TEXT) -> Path:
    """The folder of a new skill."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text.replace("{name}", name), "utf-8")
    return folder


def write_file(folder: Path, file: str, content: str | bytes = "") -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class SkillRun:
    """A run with the skills of a folder, and whatever the developer says beside."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.tools = skills(root)
        self.runtime = ToolRuntime(tools=self.tools, **options)
        self._ids = count(1)

    async def load(self, name: str = "notes", **arguments: object) -> Observation:
        intent = call(f"c{next(self._ids)}", f"skill_{name}", **arguments)
        return (await self.runtime.execute([intent])).observations[0]


def text_of(observation: Observation) -> str:
    return observation.content.text if observation.content is not None else ""
