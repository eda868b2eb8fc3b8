"""What the pages say is so: their code runs, their links lead somewhere, their lists are complete."""

import asyncio
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from interlock import PermissionMode, ToolRuntime, load_policy
from interlock.cli.commands.policy import app
from interlock.domain.outcome import Phase
from interlock.policy.files.document import RuleEntry
from interlock.registry.decorator import ToolOptions
from tests.each import each
from tests.patience import HANG_SECONDS

from .pages import (
    ADAPTER_PAGES,
    CLIENT_PAGES,
    EXAMPLES,
    PAGES,
    ROOT,
    SERVER_EXAMPLES,
    anchors,
    compiled,
    links,
    name_of,
    python_blocks,
    section,
    table_rows,
    text_of,
    yaml_blocks,
)

_COMMAND = re.compile(r"interlock policy (\w+)")
_SHOWN_AS_THEY_ARE = {example.read_text("utf-8") for example in (*EXAMPLES, *SERVER_EXAMPLES)}
#: Pages whose code needs a server: see `test_server_pages.py`.
_SERVED = ("docs/client.md", "docs/rest.md")


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in _SERVED], ids=name_of)
async def test_code_blocks_are_examples_or_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)  # what an example writes does not stay
    namespace: dict[str, Any] = {"__name__": "page"}
    async with asyncio.timeout(HANG_SECONDS):
        for line, code in python_blocks(text_of(page)):
            if code not in _SHOWN_AS_THEY_ARE:
                running = eval(compiled(code, name_of(page), line), namespace)  # noqa: S307 - it is our own page
                if inspect.isawaitable(running):
                    await running


@pytest.mark.parametrize("text", yaml_blocks(text_of("docs/policy.md")))
def test_a_policy_on_the_page_loads_with_its_examples(text: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(text, "utf-8")
    loaded = load_policy(tmp_path / "policy.yaml")
    assert loaded.rules or loaded.egress or loaded.budgets


def test_the_policy_page_lists_every_command_key_and_mode_and_nothing_else() -> None:
    page = text_of("docs/policy.md")
    commands = [name for row in table_rows(section(page, "Testing policies")) for name in _COMMAND.findall(row[0])]
    assert sorted(commands) == sorted(_commands())
    assert set(_names(table_rows(section(page, "Rule reference")))) == set(RuleEntry.model_fields)
    assert _names(table_rows(section(page, "Permission modes"))) == sorted(PermissionMode)


@each("page", PAGES)
def test_commands_that_a_page_mentions_exist(page: Path) -> None:
    assert set(_COMMAND.findall(text_of(page))) <= _commands()


def _commands() -> set[str]:
    return {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/guide.md", "docs/performance.md"])
def test_modules_that_a_page_mentions_exist(page: str) -> None:
    package = ROOT / "src" / "interlock"
    mentioned = set(re.findall(r"(?<![\w/])(\w+/[\w/]+\.py)", text_of(page)))
    places = (ROOT, package, package / "policy")
    assert [path for path in sorted(mentioned) if not any((place / path).exists() for place in places)] == []


def test_the_guide_has_code_of_its_own_and_shows_examples() -> None:
    codes = {block.code for block in python_blocks(text_of("docs/guide.md"))}
    assert len(codes & _SHOWN_AS_THEY_ARE) >= 3
    assert len(codes - _SHOWN_AS_THEY_ARE) >= 8


@each("page", [*PAGES, *ADAPTER_PAGES, *CLIENT_PAGES])
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken: list[str] = []
    for link in links(page.read_text("utf-8")):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
                broken.append(link)
    assert broken == []


def test_the_guide_lists_every_option_of_a_tool() -> None:
    rows = table_rows(section(text_of("docs/guide.md"), "Declaring tools"))
    assert _names(rows) == sorted(ToolOptions.__annotations__)


def test_the_guide_lists_every_option_of_a_runtime() -> None:
    rows = table_rows(section(text_of("docs/guide.md"), "The loop"))
    assert _names(rows) == sorted(inspect.signature(ToolRuntime).parameters)


def _names(rows: list[list[str]]) -> list[str]:
    return sorted(name for row in rows for name in re.findall(r"`(\w+)`", row[0]))


def test_the_glossary_names_what_is_defined_where_it_says() -> None:
    wrong: list[str] = []
    for word, _, place in table_rows(text_of("docs/glossary.md")):
        path = place.strip("`")
        assert (ROOT / "src" / "interlock" / path).exists(), place
        module = importlib.import_module("interlock." + path.removesuffix(".py").replace("/", "."))
        wrong += [name for name in re.findall(r"`(\w+)`", word) if not hasattr(module, name)]
    assert wrong == []


def test_the_architecture_describes_every_layer_driver_and_stage() -> None:
    text = text_of("docs/architecture.md")
    package = ROOT / "src" / "interlock"
    modules = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "py."))}
    assert modules <= set(re.findall(r"\w+", section(text, "Layers")))
    drawn = set(re.findall(r"pipeline/(\w+)\.py", section(text, "The way of a call")))
    assert drawn == {path.stem for path in (package / "pipeline").glob("[a-z]*.py")} - {"parts"}
    assert set(Phase) <= drawn
