"""The hooks that `interlock hooks install` writes, in the real agents: one table, the same rows for each agent.

What each agent does with the answers of a hook is in `test_hook_contracts.py`.
"""

import sys

import pytest

from tests.coding_agents.agents import AGENTS, Agent, Reply, choose_agents
from tests.coding_agents.world import World

pytestmark = pytest.mark.timeout(900)

_COMMAND = "echo ran >> ran.txt"
_REASON = "not on a Friday"
_NO_ECHO = "rules: [{id: no-echo, decision: deny, tools: bash, command: echo, reason: no-echo}]"


def _install(world: World, agent: Agent, policy: str = "", *, hold: str = "", command: str = _COMMAND) -> None:
    agent.configure(world)
    if policy:
        world.write_policy(policy)
    environment = {"INTERLOCK_HOOKS_HOLD": hold} if hold else {}
    installed = world.run(["interlock", "hooks", "install", agent.name], environment)
    assert installed.status == 0, installed.output
    sees = ("PENDING", _REASON, "no-echo", "cannot be loaded", "Interlock denied this call")
    world.model.teach(world.keyword, agent.shell, agent.shell_call(command), sees=sees, is_deferred=True)


def _ask(world: World, agent: Agent, session: str = "") -> Reply:
    # Claude Code resumes a deferred call without a prompt.
    prompt = "" if session and agent.name == "claude" else f"{world.keyword} append a line"
    options = ("--dangerously-bypass-hook-trust",) if agent.name == "codex" else ()
    return agent.ask(world, prompt, session=session, options=options)


def _ask_and(world: World, agent: Agent, decision: str, *options: str) -> Reply:
    """Ask, decide elsewhere about the call, and return what the agent then says."""
    if agent.name != "claude":
        return world.act_while_held(lambda: _ask(world, agent), lambda: world.decide(decision, *options))
    deferred = _ask(world, agent)
    assert (deferred.details["stop_reason"], world.effects) == ("tool_deferred", []), deferred.finished.output
    world.decide(decision, *options)
    return _ask(world, agent, deferred.session)


@pytest.mark.parametrize("agent", choose_agents())
def test_allowed_command_runs_and_is_recorded(world: World, agent: Agent) -> None:
    _install(world, agent, "allow: [bash]")

    reply = _ask(world, agent)

    assert (reply.said, world.effects) == ("MODEL SAW RESULT", ["ran"]), reply.finished.output
    world.interlock("audit", "verify", "last")


@pytest.mark.parametrize("agent", choose_agents("codex"))
def test_denied_command_does_not_run(world: World, agent: Agent) -> None:
    _install(world, agent, _NO_ECHO)

    reply = _ask(world, agent)

    assert (reply.said, world.effects) == ("MODEL SAW no-echo", []), reply.finished.output


@pytest.mark.parametrize("agent", choose_agents("gemini", "opencode"))
def test_approved_command_runs_once(world: World, agent: Agent) -> None:
    _install(world, agent)

    reply = _ask_and(world, agent, "approve")

    assert (reply.said, world.effects, world.questions) == ("MODEL SAW RESULT", ["ran"], []), reply.finished.output
    world.interlock("audit", "verify", "last")


@pytest.mark.parametrize("agent", choose_agents())
def test_rejected_command_does_not_run(world: World, agent: Agent) -> None:
    _install(world, agent)

    reply = _ask_and(world, agent, "reject", "--reason", _REASON)

    assert (reply.said, world.effects) == (f"MODEL SAW {_REASON}", []), reply.finished.output


@pytest.mark.parametrize("agent", choose_agents("codex"))
def test_nothing_runs_when_the_daemon_dies_while_it_is_asked(world: World, agent: Agent) -> None:
    if agent.name == "claude":
        pytest.skip("headless Claude Code does not wait in its hook")
    _install(world, agent)

    reply = world.act_while_held(lambda: _ask(world, agent), world.kill_daemon)

    assert (reply.said, world.effects) == ("MODEL SAW Interlock denied this call", []), reply.finished.output
    assert len(world.questions) == 1


@pytest.mark.parametrize("agent", choose_agents("claude"))
def test_nothing_runs_when_the_policy_cannot_be_read(world: World, agent: Agent) -> None:
    _install(world, agent, "allow: [bash]")
    world.write_policy("nonsense: [")

    reply = _ask(world, agent)

    assert (reply.said, world.effects) == ("MODEL SAW cannot be loaded", []), reply.finished.output


@pytest.mark.parametrize("agent", choose_agents())
def test_pending_command_runs_once_after_a_restart(world: World, agent: Agent) -> None:
    """The hook does not wait. A person approves when the agent and the daemon are gone."""
    if agent.name == "claude":
        pytest.skip("headless Claude Code defers instead")
    _install(world, agent, hold="1s")
    first = _ask(world, agent)
    assert (first.said, world.effects) == ("MODEL SAW PENDING", []), first.finished.output

    world.kill_daemon()
    world.decide("approve")
    second = _ask(world, agent)

    assert (second.said, world.effects) == ("MODEL SAW RESULT", ["ran"]), second.finished.output


_STAYS_OPEN = "It runs a tool when its hook cannot be started"


@pytest.mark.parametrize("agent", choose_agents())
def test_hook_without_interpreter_blocks_or_status_says_so(world: World, agent: Agent) -> None:
    _install(world, agent, "allow: [bash]")
    _lose_interpreter(world)

    reply = _ask(world, agent)
    status = world.run(["interlock", "hooks", "status", agent.name]).stdout

    # A shell that finds no interpreter exits with 127, which only Codex ignores.
    assert world.effects == (["ran"] if agent.name == "codex" else []), reply.finished.output
    assert (_STAYS_OPEN in status) == (agent.name in ("codex", "gemini"))


@pytest.mark.parametrize("agent", choose_agents())
def test_denied_command_does_not_run_without_interpreter(world: World, agent: Agent) -> None:
    """Codex has the denial in rules of its own. They know plain commands, and none with redirections."""
    _install(world, agent, "rules: [{id: no-copies, decision: deny, tools: bash, command: cp}]", command="cp a ran.txt")
    (world.workspace / "a").write_text("ran\n")
    _lose_interpreter(world)

    reply = _ask(world, agent)

    assert world.effects == [], reply.finished.output


@pytest.mark.agents
def test_gemini_cli_reads_all_rules_that_are_written_for_it(world: World) -> None:
    _install(world, AGENTS["gemini"], "deny: [{tools: '*', path: .env}, 'bash(git push)']", hold="1s")

    reply = _ask(world, AGENTS["gemini"])

    assert "Policy file error" not in reply.finished.stderr, reply.finished.output


def _lose_interpreter(world: World) -> None:
    """Make the installed hooks name a program that does not exist."""
    for path in world.home.rglob("*"):
        if path.suffix in (".json", ".js") and path.is_file() and "thin.py" in (text := path.read_text()):
            path.write_text(text.replace(sys.executable, "/nowhere/python"))
