"""The pages that people read, and what can be checked about them."""

import ast
import re
from pathlib import Path
from types import CodeType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SERVER_EXAMPLES = sorted((ROOT / "examples" / "server").glob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
#: Their commands need a coding agent: see `tests/coding_agents`.
CLIENT_PAGES = sorted((ROOT / "docs" / "clients").glob("*.md"))
#: Their code needs a framework: see `tests/adapters`.
ADAPTER_PAGES = sorted((ROOT / "docs" / "adapters").glob("*.md"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    #: Of the file, where the first line of the code stands.
    line: int
    code: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path | str) -> str:
    return (ROOT / page).read_text("utf-8")


def python_blocks(text: str) -> list[Block]:
    found = [fence for fence in _FENCE.finditer(text) if fence[1] == "python"]
    return [Block(text.count("\n", 0, fence.start(2)) + 1, fence[2]) for fence in found]


def compiled(code: str, page: str, line: int) -> CodeType:
    """With the page's line numbers, for tracebacks, and with `await` on top, as in `python -m asyncio`."""
    return compile("\n" * (line - 1) + code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def yaml_blocks(text: str) -> list[str]:
    return [fence[2] for fence in _FENCE.finditer(text) if fence[1] == "yaml"]


def toml_blocks(text: str) -> list[str]:
    return [fence[2] for fence in _FENCE.finditer(text) if fence[1] == "toml"]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table_rows(text: str) -> list[list[str]]:
    """The cells of every table in the text, without the heads."""
    lines = re.findall(r"^\| ?(.+?) ?\|$", text, re.MULTILINE)
    rows = [re.split(r" ?(?<!\\)\| ?", line) for line in lines]
    rules = {number for number, row in enumerate(rows) if all(set(cell) <= {"-"} for cell in row)}
    return [row for number, row in enumerate(rows) if number not in rules and number + 1 not in rules]


def links(text: str) -> list[str]:
    return _LINK.findall(_FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The headings as GitHub names them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
