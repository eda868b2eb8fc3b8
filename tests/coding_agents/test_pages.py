"""The pages about the agents, as a new user works through them: every `sh` block is run, in order, in a fresh home."""

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.coding_agents.agents import Agent, choose_agents, find_command
from tests.coding_agents.model import Model, running_model
from tests.coding_agents.world import Finished, World
from tests.docs.pages import ROOT

pytestmark = pytest.mark.timeout(900)

_PAGES = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli", "opencode": "opencode"}
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Stands for the id that `interlock approvals list` shows.
_QUESTION = "b07d44e2"
_SECOND_TERMINAL = "# second terminal\n"


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return a model of its own: the prompts are those of the page."""
    with running_model(tmp_path_factory.mktemp("model")) as model:
        yield model


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


@pytest.mark.parametrize("agent", choose_agents("claude", "codex"))
def test_page_works_as_written(world: World, agent: Agent) -> None:
    agent.configure(world)
    _add_to_path(world, agent)
    world.model.teach("Append the line tea", agent.shell, agent.shell_call("echo tea >> list.txt"), is_deferred=True)
    time, offered = agent.mcp_tool("interlock", "time_get_current_time"), ""
    if agent.name == "codex":
        world.model.namespaces[time], offered = "mcp__interlock", agent.shell
    world.model.teach("What time is it", time, {"timezone": "UTC"}, sees=("datetime",), offered=offered)
    blocks = _BLOCK.findall((ROOT / "docs" / "clients" / f"{_PAGES[agent.name]}.md").read_text())

    output: list[str] = []
    for block, following in zip(blocks, [*blocks[1:], ""], strict=True):
        if block.startswith(_SECOND_TERMINAL):
            continue
        if following.startswith(_SECOND_TERMINAL):
            first = world.act_while_held(
                lambda block=block: _enter(world, agent, block),
                lambda following=following: output.append(_enter(world, agent, following).stdout),
            )
            output.append(first.stdout)
        else:
            output.append(_enter(world, agent, block).stdout)

    assert (world.workspace / "list.txt").read_text() == "tea\n"
    shown = "\n".join(output)
    assert "MODEL SAW RESULT" in shown
    assert "MODEL SAW datetime" in shown


@pytest.mark.agents
def test_commands_of_the_cursor_page_work(world: World) -> None:
    """Cursor itself is not run: it is not on npm."""
    for block in _BLOCK.findall((ROOT / "docs" / "clients" / "cursor.md").read_text()):
        finished = world.run(["bash", "-euc", block])
        assert finished.status == 0, finished.output
