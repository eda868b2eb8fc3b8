"""What the agents do with the answers of a hook: one table per agent, with a script in the place of Interlock.

`interlock.hooks` is built on these facts. A row that changes with a new version of an agent has to be read again there.
All rows of an agent are calls of one conversation: the hook sees in the command which row it is.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import pytest

from tests.coding_agents.agents import AGENTS, Agent, Talk, keep_from_registry, talk
from tests.coding_agents.world import World

pytestmark = pytest.mark.timeout(400)

_REASON = "Interlock: rule no-writes"
_HANG = "exec sleep 60"
_CRASH = "exit 1"
_REFUSE = f"echo {shlex.quote(_REASON)} >&2; exit 2"


def _print(answer: object) -> str:
    text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return f"printf %s {shlex.quote(text)}"


@dataclass(frozen=True)
class Case:
    """What a hook does, and what comes of the command."""

    #: The body of the script.
    hook: str
    runs: bool = False
    #: The model reads the reason of the hook.
    is_told: bool = False
    #: The hook is one that Claude Code must not ignore.
    is_closed: bool = False
    #: The command that runs instead.
    changed: str = ""


def _mark(number: int) -> str:
    return f"row{number:02}"


def _write_script(world: World, name: str, cases: Mapping[str, Case], *, is_closed: bool = False) -> str:
    """Write a hook that does for each row what the table says, and nothing for the rows of other hooks."""
    path = world.folder / name
    rows = [
        f'  *"{_mark(number)}"*) {case.hook or "true"} ;;'
        for number, case in enumerate(cases.values())
        if case.is_closed == is_closed
    ]
    lines = ["#!/bin/sh", "payload=$(cat)", f"printf %s {name} >> {world.folder}/asked", 'case "$payload" in', *rows]
    path.write_text("\n".join([*lines, "esac", ""]))
    path.chmod(0o755)
    return str(path)


def _check(world: World, agent: Agent, spoken: Talk, cases: Mapping[str, Case], subtests: pytest.Subtests) -> None:
    """Make a call for each row."""
    for number, (name, case) in enumerate(cases.items()):
        with subtests.test(f"{agent.name}: {name}"):
            before = len(world.effects)
            result = spoken.call(agent.shell(f"echo {_mark(number)} >> ran.txt"))

            assert result is not None
            assert (_REASON in result) == case.is_told, result
            ran = [case.changed or _mark(number)] if case.runs else []
            assert world.effects[before:] == ran, result


def _claude(decision: str) -> str:
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": _REASON}
    return _print({"hookSpecificOutput": output})


_CLAUDE = {
    "allow": Case(_claude("allow"), runs=True),
    "silent": Case("true", runs=True),
    "deny": Case(_claude("deny"), is_told=True),
    "exit 2": Case(_REFUSE, is_told=True),
    "bad JSON": Case(_print("{nope"), runs=True),
    "crash": Case(_CRASH, runs=True),
    "crash, closed": Case(_CRASH, is_closed=True),
    "slow": Case(_HANG, runs=True),
    "slow, closed": Case(_HANG, is_closed=True),
    # An exit status of 0 is no failure: a hook that cannot print its whole answer has to exit with 2.
    "bad JSON, closed": Case(_print("{nope"), runs=True, is_closed=True),
    # Its process ends, so this is the last row.
    "defer": Case(_claude("defer")),
}


def test_claude_code_follows_hook_answers(world: World, subtests: pytest.Subtests) -> None:
    agent = AGENTS["claude"]
    entry = {"type": "command", "timeout": 3}
    block = {"onFailure": "block"}
    bash = [
        {**entry, "command": _write_script(world, "open", _CLAUDE)},
        {**entry, **block, "command": _write_script(world, "closed", _CLAUDE, is_closed=True)},
    ]
    gone = [{"type": "http", "url": "http://127.0.0.1:9/", "timeout": 3, **block}]
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": bash}, {"matcher": "Write", "hooks": gone}]}
    settings = world.folder / "settings.json"
    settings.write_bytes(msgspec.json.encode({"hooks": hooks}))
    rows = {name: case for name, case in _CLAUDE.items() if name != "defer"}

    with talk(world, agent, options=("--settings", str(settings), "--allowedTools", "Bash,Write")) as spoken:
        _check(world, agent, spoken, rows, subtests)
        with subtests.test("claude: nothing listens at the address of a hook"):
            spoken.call(agent.write(str(world.workspace / "new"), "x"))
            assert not (world.workspace / "new").exists()
        with subtests.test("claude: defer"):
            before = world.effects
            assert spoken.call(agent.shell(f"echo {_mark(len(rows))} >> ran.txt")) is None
            assert world.effects == before


def _codex(decision: str, **more: object) -> str:
    return _print({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}})


_CODEX = {
    "silent": Case("true", runs=True),
    "deny": Case(_codex("deny", permissionDecisionReason=_REASON), is_told=True),
    "exit 2": Case(_REFUSE, is_told=True),
    # From here on the command runs whatever the hook meant: Codex cannot be closed.
    "allow": Case(_codex("allow"), runs=True),
    "ask": Case(_codex("ask", permissionDecisionReason=_REASON), runs=True),
    "deny without a reason": Case(_codex("deny"), runs=True),
    "bad JSON": Case(_print("{nope"), runs=True),
    "crash": Case(_CRASH, runs=True),
    "slow": Case(_HANG, runs=True),
    "changed input": Case(
        _codex("allow", updatedInput={"command": "echo other >> ran.txt"}), runs=True, changed="other"
    ),
}


@pytest.mark.parametrize("trust", ["trusted", "not trusted"])
def test_codex_follows_hook_answers(world: World, subtests: pytest.Subtests, trust: str) -> None:
    """Hooks that are not trusted are skipped without a word."""
    agent = AGENTS["codex"]
    agent.configure(world)
    entry = {"type": "command", "command": _write_script(world, "hook", _CODEX), "timeout": 2}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [entry]}]}}
    (world.home / ".codex" / "hooks.json").write_bytes(msgspec.json.encode(hooks))
    is_trusted = trust == "trusted"
    options = ("--dangerously-bypass-hook-trust",) if is_trusted else ()
    rows = _CODEX if is_trusted else {"deny": Case("", runs=True)}

    with talk(world, agent, options=options) as spoken:
        _check(world, agent, spoken, rows, subtests)

    assert (world.folder / "asked").exists() == is_trusted


_GEMINI = {
    "silent": Case("true", runs=True),
    "allow": Case(_print({"decision": "allow"}), runs=True),
    "deny": Case(_print({"decision": "deny", "reason": _REASON}), is_told=True),
    "exit 2": Case(_REFUSE, is_told=True),
    "bad JSON": Case(_print("{nope"), runs=True),
    "crash": Case(_CRASH, runs=True),
    "slow": Case(_HANG, runs=True),
}


def test_gemini_cli_follows_hook_answers(world: World, subtests: pytest.Subtests) -> None:
    agent = AGENTS["gemini"]
    agent.configure(world)
    path = world.home / ".gemini" / "settings.json"
    entry = {"type": "command", "command": _write_script(world, "hook", _GEMINI), "name": "script", "timeout": 3000}
    hooks = {"hooks": {"BeforeTool": [{"matcher": ".*", "hooks": [entry]}]}}
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), **hooks}))

    with talk(world, agent) as spoken:
        _check(world, agent, spoken, _GEMINI, subtests)


_THROW = f'throw new Error("{_REASON}");'
_OPENCODE = {
    "return": Case("", runs=True),
    "throw": Case(_THROW, is_told=True),
    "late throw": Case(f"await new Promise((go) => setTimeout(go, 5000)); {_THROW}", is_told=True),
    "changed input": Case('output.args.command = "echo other >> ran.txt";', runs=True, changed="other"),
}


def test_opencode_follows_its_plugin(world: World, subtests: pytest.Subtests) -> None:
    agent = AGENTS["opencode"]
    agent.configure(world)
    folder = world.workspace / ".opencode"
    keep_from_registry(folder)
    (folder / "plugin").mkdir()
    rows = [
        f'if (output.args.command.includes("{_mark(number)}")) {{ {case.hook} }}'
        for number, case in enumerate(_OPENCODE.values())
    ]
    hooks = f'{{ "tool.execute.before": async (input, output) => {{ {" ".join(rows)} }} }}'
    (folder / "plugin" / "script.js").write_text(f"export const Script = async () => ({hooks});\n")

    with talk(world, agent) as spoken:
        _check(world, agent, spoken, _OPENCODE, subtests)
