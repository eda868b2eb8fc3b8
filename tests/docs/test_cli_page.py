"""What the page about the command says is so. Its reference is generated: `make check-docs` compares it."""

import re
import sys

import pytest

from interlock.cli.main import COMMAND_ENTRIES
from scripts.docs import cli_help
from tests.each import each

from .cli_session import PAGE, session, shown_in
from .pages import CLIENT_PAGES, PAGES, section, text_of

CLI = text_of(PAGE)


def test_the_page_shows_what_the_commands_really_print() -> None:
    assert shown_in(CLI) == session(), f"run {sys.executable} -m {session.__module__}"


def test_the_reference_has_every_command() -> None:
    reference = section(CLI, "Reference")
    assert [name for name in COMMAND_ENTRIES if f"### interlock {name}\n" not in reference] == []


def test_help_of_every_command_fits_a_small_terminal() -> None:
    texts = re.findall(r"^```text\n(.*?)^```$", section(CLI, "Reference"), re.MULTILINE | re.DOTALL)
    assert len(texts) > len(COMMAND_ENTRIES)
    assert [line for text in texts for line in text.splitlines() if len(line) > 80] == []


def test_help_is_the_same_in_a_wide_terminal_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert cli_help() in CLI


@each("page", [*PAGES, *CLIENT_PAGES])
def test_commands_that_a_page_names_exist(page: object) -> None:
    named = re.findall(r"`interlock ([a-z]+)(?: ([a-z-]+))?", text_of(str(page)))
    headings = set(re.findall(r"^#+ interlock ([a-z]+)(?: ([a-z-]+))?$", CLI, re.MULTILINE))
    alone = {name for name, inner in headings if not inner and not any(one == name and two for one, two in headings)}
    wrong = [(name, inner) for name, inner in named if name not in alone and (name, inner) not in headings]
    assert wrong == []
