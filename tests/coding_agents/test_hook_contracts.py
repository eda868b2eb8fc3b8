"""What the agents do with the answers of a hook: one table per agent, with scripts in the place of Interlock.

`interlock.hooks` is built on these facts. A row that changes with a new version of an agent has to be read again there.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.coding_agents.agents import AGENTS, Reply, keep_from_registry
from tests.coding_agents.world import World

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

_REASON = "Interlock: rule no-writes"
_HANG = "exec sleep 60"
_CRASH = "exit 1"
_REFUSE = f"echo {shlex.quote(_REASON)} >&2; exit 2"


def _print(answer: object) -> str:
    text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return f"printf %s {shlex.quote(text)}"


def _script(world: World, body: str) -> str:
    path = world.folder / "hook.sh"
    path.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(_heard(world)))}\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _heard(world: World) -> Path:
    """What the hook was given."""
    return world.folder / "hook.in"


@dataclass(frozen=True)
class Case:
    """What a hook does, and what comes of the command `echo ran >> ran.txt`."""

    #: The body of the script.
    hook: str
    #: Lines that commands have written.
    effects: list[str]
    #: What the model saw: the reason, or any other result.
    said: str = "MODEL SAW RESULT"
    #: More fields of the hook's entry in the settings, for example `onFailure`.
    entry: tuple[tuple[str, object], ...] = ()


def _ask(world: World, name: str, *options: str) -> Reply:
    agent = AGENTS[name]
    call = agent.shell_call("echo ran >> ran.txt")
    world.model.teach(world.keyword, agent.shell, call, sees=(_REASON,))
    return agent.ask(world, f"{world.keyword} append a line", options=options)


def _claude(decision: str) -> str:
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": _REASON}
    return _print({"hookSpecificOutput": output})


_BLOCK = (("onFailure", "block"),)
_SAW_REASON = f"MODEL SAW {_REASON}"
_CLAUDE = {
    "allow": Case(_claude("allow"), ["ran"]),
    "silent": Case("true", ["ran"]),
    "deny": Case(_claude("deny"), [], _SAW_REASON),
    "exit 2": Case(_REFUSE, [], _SAW_REASON),
    "defer": Case(_claude("defer"), [], ""),
    "bad JSON": Case(_print("{nope"), ["ran"]),
    "crash": Case(_CRASH, ["ran"]),
    "crash, closed": Case(_CRASH, [], entry=_BLOCK),
    "slow": Case(_HANG, ["ran"]),
    "slow, closed": Case(_HANG, [], entry=_BLOCK),
    # An exit status of 0 is no failure: a hook that cannot print its whole answer has to exit with 2.
    "bad JSON, closed": Case(_print("{nope"), ["ran"], entry=_BLOCK),
    "nobody listens": Case("", [], entry=(("type", "http"), ("url", "http://127.0.0.1:9/"), *_BLOCK)),
}


@pytest.mark.parametrize("case", _CLAUDE.values(), ids=_CLAUDE)
def test_claude_code_follows_hook_answers(world: World, case: Case) -> None:
    entry = {"type": "command", "command": _script(world, case.hook), "timeout": 3, **dict(case.entry)}
    settings = world.folder / "settings.json"
    settings.write_bytes(msgspec.json.encode({"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [entry]}]}}))

    reply = _ask(world, "claude", "--settings", str(settings), "--allowedTools", "Bash")

    assert (world.effects, reply.said) == (case.effects, case.said), reply.finished.output


def _codex(decision: str, **more: object) -> str:
    return _print({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}})


_CODEX = {
    "silent": Case("true", ["ran"]),
    "deny": Case(_codex("deny", permissionDecisionReason=_REASON), [], _SAW_REASON),
    "exit 2": Case(_REFUSE, [], _SAW_REASON),
    # From here on the command runs whatever the hook meant: Codex cannot be closed.
    "allow": Case(_codex("allow"), ["ran"]),
    "ask": Case(_codex("ask", permissionDecisionReason=_REASON), ["ran"]),
    "deny without a reason": Case(_codex("deny"), ["ran"]),
    "bad JSON": Case(_print("{nope"), ["ran"]),
    "crash": Case(_CRASH, ["ran"]),
    "slow": Case(_HANG, ["ran"]),
    "changed input": Case(_codex("allow", updatedInput={"command": "echo changed >> ran.txt"}), ["changed"]),
}


def _hook_codex(world: World, case: Case) -> None:
    AGENTS["codex"].configure(world)
    entry = {"type": "command", "command": _script(world, case.hook), "timeout": 2}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [entry]}]}}
    (world.home / ".codex" / "hooks.json").write_bytes(msgspec.json.encode(hooks))


@pytest.mark.parametrize("case", _CODEX.values(), ids=_CODEX)
def test_codex_follows_hook_answers(world: World, case: Case) -> None:
    _hook_codex(world, case)

    reply = _ask(world, "codex", "--dangerously-bypass-hook-trust")

    assert (world.effects, reply.said) == (case.effects, case.said), reply.finished.output


def test_codex_skips_hooks_without_trust(world: World) -> None:
    _hook_codex(world, _CODEX["deny"])

    reply = _ask(world, "codex")

    assert (world.effects, reply.said, _heard(world).exists()) == (["ran"], "MODEL SAW RESULT", False)


_GEMINI = {
    "silent": Case("true", ["ran"]),
    "allow": Case(_print({"decision": "allow"}), ["ran"]),
    "deny": Case(_print({"decision": "deny", "reason": _REASON}), [], _SAW_REASON),
    "exit 2": Case(_REFUSE, [], _SAW_REASON),
    "bad JSON": Case(_print("{nope"), ["ran"]),
    "crash": Case(_CRASH, ["ran"]),
    "slow": Case(_HANG, ["ran"]),
}


@pytest.mark.parametrize("case", _GEMINI.values(), ids=_GEMINI)
def test_gemini_cli_follows_hook_answers(world: World, case: Case) -> None:
    AGENTS["gemini"].configure(world)
    path = world.home / ".gemini" / "settings.json"
    entry = {"type": "command", "command": _script(world, case.hook), "name": "script", "timeout": 3000}
    hooks = {"hooks": {"BeforeTool": [{"matcher": ".*", "hooks": [entry]}]}}
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), **hooks}))

    reply = _ask(world, "gemini")

    assert (world.effects, reply.said) == (case.effects, case.said), reply.finished.output


_LATER = "await new Promise((resume) => setTimeout(resume, 5000));"
_OPENCODE = {
    "return": Case("", ["ran"]),
    "throw": Case(f'throw new Error("{_REASON}");', [], _SAW_REASON),
    "late throw": Case(
        f'await new Promise((r) => setTimeout(r, 5000)); throw new Error("{_REASON}");', [], _SAW_REASON
    ),
    "changed input": Case('output.args.command = "echo changed >> ran.txt";', ["changed"]),
}


@pytest.mark.parametrize("case", _OPENCODE.values(), ids=_OPENCODE)
def test_opencode_follows_its_plugin(world: World, case: Case) -> None:
    AGENTS["opencode"].configure(world)
    folder = world.workspace / ".opencode"
    keep_from_registry(folder)
    (folder / "plugin").mkdir()
    hooks = f'{{ "tool.execute.before": async (input, output) => {{ {case.hook} }} }}'
    (folder / "plugin" / "script.js").write_text(f"export const Script = async () => ({hooks});\n")

    reply = _ask(world, "opencode")

    assert (world.effects, reply.said) == (case.effects, case.said), reply.finished.output
