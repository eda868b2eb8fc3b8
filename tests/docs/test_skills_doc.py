"""What the page about skills says is so."""

import ast
import re

import pytest

from interlock.tools.skills.skill_folder import MAX_FILE_BYTES, MAX_NAMES
from interlock.tools.skills.skill_text import MAX_DESCRIPTION_CHARS, MAX_FRONT_MATTER_CHARS, MAX_NAME_CHARS
from interlock.tools.skills.skill_tools import MAX_FOLDER_NAMES, MAX_SKILL_BYTES

from .pages import python_blocks, section, table_rows, text_of

PAGE = text_of("docs/skills.md")


async def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = compile(python_blocks(PAGE)[0].code, "skills.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(example, {})  # noqa: S307 - it is our own page
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.strip().split("\n"))
    assert f"```text\n{printed}\n```" in PAGE


def test_the_page_names_the_limits() -> None:
    limits = [re.sub(r"\D", "", row[0]) for row in table_rows(section(PAGE, "What is loaded"))]
    assert [int(limit) for limit in limits if limit] == [MAX_FOLDER_NAMES, MAX_SKILL_BYTES, MAX_FILE_BYTES, MAX_NAMES]
    assert f"1 to {MAX_NAME_CHARS} small letters" in PAGE
    assert f"up to {MAX_DESCRIPTION_CHARS:,} characters" in PAGE
    assert f"front matter of more than {MAX_FRONT_MATTER_CHARS:,} characters" in PAGE
