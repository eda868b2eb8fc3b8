"""`interlock mcp` and `interlock run --mcp`, as a user types them."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from interlock.cli.exit_codes import ExitCode

from .conftest import Run
from .scripts import calls, write_script

PROGRAM = Path(__file__).parent.parent / "mcp" / "client" / "plain_server.py"


@pytest.fixture
def servers(home: Path, project: Path, tmp_path: Path) -> Path:
    shutil.copy(PROGRAM, project)
    file = tmp_path / "mcp.toml"
    file.write_text(f'[servers.plain]\ncommand = ["{sys.executable}", "plain_server.py"]\ntools = ["say", "die"]\n')
    return file


def test_servers_are_listed_with_their_tools(cli: Run, servers: Path) -> None:
    listed = cli("mcp", "list", "--servers", servers)
    as_json = cli("mcp", "list", "--servers", servers, "--json")

    assert listed.exit_code == ExitCode.OK, listed.output
    assert "plain: connected (sandbox: read-only, no network)" in listed.output
    [server] = json.loads(as_json.stdout)
    assert [(tool["name"], tool["upstream_name"], tool["risk"]) for tool in server["tools"]] == [
        ("plain_say", "say", ["network", "write"]),
        ("plain_die", "die", ["network", "write"]),
    ]


def test_a_changed_definition_is_shown_and_accepted(cli: Run, servers: Path, project: Path) -> None:
    assert cli("mcp", "diff", "plain", "--servers", servers).output == "All tools of plain are as they were accepted.\n"
    program = project / "plain_server.py"
    program.write_text(program.read_text().replace('{"type": "object"}', '{"type": "object", "title": "New"}'))

    changed = cli("mcp", "diff", "plain", "--servers", servers)
    refused = cli("mcp", "call", "plain_say", '{"text": "hi"}', "--servers", servers, "--mode", "trusted")
    accepted = cli("mcp", "accept", "plain/say", "--servers", servers)
    called = cli("mcp", "call", "plain_say", '{"text": "hi"}', "--servers", servers, "--mode", "trusted")

    assert '+    "title": "New"' in changed.output
    assert (refused.exit_code, "is in quarantine" in refused.output) == (ExitCode.FAILED, True)
    assert accepted.output == "accepted plain/say\n"
    assert (called.exit_code, called.output) == (ExitCode.OK, "hi\n")


def test_a_call_is_asked_about_under_the_policy(cli: Run, servers: Path) -> None:
    """Without a terminal nobody can be asked, so it is refused; a rule by the server's own name allows it."""
    policy = servers.with_name("policy.yaml")
    policy.write_text("version: 1\nallow:\n  - mcp__plain__say\n")

    asked = cli("mcp", "call", "plain_say", "--servers", servers)
    allowed = cli("mcp", "call", "plain_say", '{"text": "hi"}', "--servers", servers, "--policy", policy)

    assert (asked.exit_code, "requires approval" in asked.output) == (ExitCode.REFUSED, True)
    assert (allowed.exit_code, allowed.output) == (ExitCode.OK, "hi\n")


@pytest.mark.requirement("R046")
def test_an_agent_uses_the_tools_of_servers(cli: Run, servers: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    write_script(script, calls(("plain_say", {"text": "tea"})), "It said tea.")

    ended = cli("run", "Ask it.", "--script", script, "--mcp", servers, "--mode", "trusted")
    events = cli("runs", "events", "last")

    assert ended.exit_code == ExitCode.OK, ended.output
    assert "plain_say" in ended.output
    assert "mcp.server.connected" in events.output
    assert "mcp.tools.listed" in events.output


def test_what_is_wrong_is_said(cli: Run, servers: Path) -> None:
    missing = cli("mcp", "list")
    unknown = cli("mcp", "test", "plian", "--servers", servers)
    servers.write_text('[servers.gone]\ncommand = ["no-such-program-here"]\n')
    gone = cli("mcp", "test", "gone", "--servers", servers)

    assert (missing.exit_code, "There are no MCP servers" in missing.output) == (ExitCode.USAGE, True)
    assert (unknown.exit_code, "Did you mean `plain`" in unknown.output) == (ExitCode.USAGE, True)
    assert (gone.exit_code, "no-such-program-here" in gone.output) == (ExitCode.FAILED, True)
