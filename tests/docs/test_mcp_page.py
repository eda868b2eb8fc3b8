"""What the page about tools of MCP servers says is so."""

import ast
import os
import sys
from pathlib import Path

import pytest

from interlock.mcp import read_servers_file
from interlock.mcp.client.servers_file import KEYS
from interlock.policy import load_policy

from .pages import python_blocks, section, table_rows, text_of, toml_blocks, yaml_blocks

PAGE = text_of("docs/mcp.md")


async def test_the_example_finds_the_tools_of_a_real_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    example = compile(python_blocks(PAGE)[0].code, "mcp.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(example, {})  # noqa: S307 - it is our own page
    assert capsys.readouterr().out == "('clock_convert_time', 'clock_get_current_time', 'read_artifact')\n"


def test_the_file_on_the_page_is_read(tmp_path: Path) -> None:
    (tmp_path / "mcp.toml").write_text(toml_blocks(PAGE)[0])
    assert [server.name for server in read_servers_file(tmp_path / "mcp.toml")] == ["fs", "tickets"]


def test_the_page_lists_every_key_and_nothing_else() -> None:
    named = [row[0].strip("`") for row in table_rows(section(PAGE, "The servers file"))]
    assert sorted(named) == sorted(KEYS)


def test_the_policy_on_the_page_loads(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml_blocks(PAGE)[0])
    assert len(load_policy(tmp_path / "policy.yaml").rules) == 2
