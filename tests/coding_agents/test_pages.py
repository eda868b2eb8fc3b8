"""The pages about the agents, as a new user works through them: every `sh` block is run, in order, in a fresh home."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.coding_agents.agents import AGENTS, Agent, find_command
from tests.coding_agents.world import Finished, World
from tests.docs.pages import ROOT

pytestmark = pytest.mark.timeout(900)

_PAGES = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli", "opencode": "opencode"}
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Stands for the id that `interlock approvals list` shows.
_QUESTION = "b07d44e2"
_SECOND_TERMINAL = "# second terminal\n"


def _enter(world: World, agent: Agent, block: str) -> Finished:
    """Run a block as a user types it, with the id of the open question."""
    ids = [question.action_id.removeprefix("act_")[:8] for question in world.questions]
    if _QUESTION in block:
        [block] = [block.replace(_QUESTION, found) for found in ids]
    finished = world.run(["bash", "-euc", block], agent.environment(world))
    # Codex says that its hooks do not work until they are trusted in its own dialog.
    is_untrusted = agent.name == "codex" and "trusted: no" in finished.stdout
    assert finished.status == int(is_untrusted), finished.output
    return finished


def _add_to_path(world: World, agent: Agent) -> None:
    """Install the agent for this user."""
    program = world.home / "bin" / agent.name
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(find_command(agent.name))} "$@"\n')
    program.chmod(0o755)
    world.path.insert(0, str(program.parent))


def _enter_both(world: World, agent: Agent, first: str, second: str) -> str:
    """Run a block whose call waits for a person, and the block of the second terminal when it does."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_enter, world, agent, first)
        world.wait_for_question(asked)
        answered = _enter(world, agent, second)
        return answered.stdout + asked.result().stdout


@pytest.mark.parametrize("name", AGENTS)
def test_page_works_as_written(world: World, name: str) -> None:
    agent = AGENTS[name]
    agent.configure(world)
    _add_to_path(world, agent)
    world.model.teach("Append the line tea", agent.shell("echo tea >> list.txt"))
    world.model.teach("What time is it", agent.mcp("time_get_current_time", {"timezone": "UTC"}))
    blocks = _BLOCK.findall((ROOT / "docs" / "clients" / f"{_PAGES[agent.name]}.md").read_text())

    shown = ""
    for block, following in zip(blocks, [*blocks[1:], ""], strict=True):
        if following.startswith(_SECOND_TERMINAL):
            shown += _enter_both(world, agent, block, following)
        elif not block.startswith(_SECOND_TERMINAL):
            shown += _enter(world, agent, block).stdout

    assert (world.workspace / "list.txt").read_text() == "tea\n"
    assert shown.count("MODEL SAW") == 2, shown
    assert "datetime" in shown


def test_commands_of_the_cursor_page_work(world: World) -> None:
    """Cursor itself is not run: it is not on npm."""
    for block in _BLOCK.findall((ROOT / "docs" / "clients" / "cursor.md").read_text()):
        finished = world.run(["bash", "-euc", block])
        assert finished.status == 0, finished.output
