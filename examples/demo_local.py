"""The part of `demo.py` about the built-in tools: a failing project is mended, and commands try to reach further.

Two things are scripted: what the model asks for, and what people answer. The project, the sandbox and the attempts
are real. The key that the attempts are after is made for them, and so is the server.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_screen import heading, line_width, show, show_text, style

from interlock import (
    Answer,
    CallbackInteractionProvider,
    FileArtifacts,
    LocalTools,
    Observation,
    Question,
    Rule,
    RulePolicy,
    SqliteLog,
    ToolRuntime,
    render_for_user,
)

TEST = "python3 -m unittest -q"
FILES = {
    "README.md": f"Tests: {TEST}\n",
    "shop.py": "def discount(items):\n    return 0.1 if items > 100 else 0.0\n",
    "test_shop.py": """\
import unittest

from shop import discount


class TestDiscount(unittest.TestCase):
    def test_ten_percent_from_100_items_on(self):
        self.assertEqual(discount(100), 0.1)
""",
    ".env": "TOKEN=swordfish\n",
    ".git/hooks/pre-commit": "exit 0\n",
}
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "README.md"}),
    ("bash", {"command": TEST}),
    ("read_file", {"path": "test_shop.py"}),
    ("read_file", {"path": "shop.py"}),
    ("edit_file", {"path": "shop.py", "old_string": "items > 100", "new_string": "items >= 100"}),
    ("bash", {"command": TEST}),
)
POLICY = RulePolicy([Rule(id="commands", verdict="allow", tools="bash", reason="This demo lets commands start.")])


class Attempt(NamedTuple):
    what: str
    command: str


async def show_local_tools(folder: Path) -> None:
    project = make_project(folder / "shop")
    # Commands inherit nothing. They find the Python that runs this demo by a PATH of their own.
    tools = LocalTools(project, environment={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    log = SqliteLog(folder / "shop.db")
    runtime = ToolRuntime(
        tools=tools,
        policy=POLICY,
        interaction=CallbackInteractionProvider(scripted_person),
        log=log,
        artifacts=FileArtifacts(folder / "shop-artifacts"),
    )
    async with log, runtime:
        heading("1. The main job: a project whose tests fail, looked into and mended")
        show_confinement(tools)
        await mend(runtime)
        heading("2. Commands that may start, and still cannot reach further")
        if "files" in tools.confinement.capabilities:
            await try_to_get_out(runtime, folder)
        else:
            show_text("Nothing is tried: without a sandbox it might work. `interlock doctor` says what to do.", "")
        heading("3. What is left of it: facts that can be checked")
        await show_facts(runtime)


def make_project(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def show_confinement(tools: LocalTools) -> None:
    held = tools.confinement
    if held.backend == "none":
        said = "no sandbox works on this host: nothing holds commands back, so every command asks"
    elif held.degraded:
        said = f"commands run in {held.backend}, which holds back less than it should, so every command asks"
    else:
        said = f"commands run in {held.backend}"
    show_text(said, "")


async def mend(runtime: ToolRuntime) -> None:
    for number, (name, arguments) in enumerate(CALLS, 1):
        print()
        shown = arguments.get("command") or arguments["path"]
        show(f"{style(f'm{number}  {name:10}', 'bold')} {shown}")
        observation = await run(runtime, f"m{number}", name, **arguments)
        colour = "green" if observation.ok else "red"
        show(f"    {style(render_for_user(observation), colour)}")
        show_telling(observation)


def show_telling(observation: Observation) -> None:
    """A diff, or the line of a test run that says why."""
    text = observation.content.text if observation.content else ""
    told = [line for line in text.splitlines() if line.startswith("AssertionError")]
    if observation.content and observation.content.format == "diff":
        told = [line for line in text.splitlines() if line.startswith(("-", "+", "@"))]
    for line in told:
        show(style(f"    {line}"[: line_width() - 2], "dim"))


async def try_to_get_out(runtime: ToolRuntime, folder: Path) -> None:
    """Each command is allowed by the policy. A key and a server of this very host are there to be found."""
    key = folder / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text("a key\n")
    met: list[object] = []
    server = await asyncio.start_server(lambda reader, writer: met.append(writer.close()), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    async with server:
        for number, attempt in enumerate(attempts(key, folder / "shop.db", port), 1):
            observation = await run(runtime, f"t{number}", "bash", command=attempt.command)
            show(f"{attempt.what:34}{outcome(observation)}")
        print()
        writer = (await asyncio.open_connection("127.0.0.1", port))[1]
        writer.close()
        await writer.wait_closed()
    show(f"the server met {len(met)} caller: this demo, which is in no sandbox")


def attempts(key: Path, log: Path, port: int) -> Sequence[Attempt]:
    return (
        Attempt("read a key in ~/.ssh", f"cat '{key}'"),
        Attempt("read /etc/shadow", "cat /etc/shadow"),
        Attempt("read variables of this process", f"cat /proc/{os.getpid()}/environ"),
        Attempt("read the project's .env", "grep TOKEN .env"),
        Attempt("write a hook for git", "echo 'curl example.org' >> .git/hooks/pre-commit"),
        Attempt("read the log of this run", f"head -c 16 '{log}'"),
        Attempt("call a server on this host", f"echo hello > /dev/tcp/127.0.0.1/{port}"),
        Attempt("call a server elsewhere", "echo hello > /dev/tcp/192.0.2.1/80"),
    )


def outcome(observation: Observation) -> str:
    if observation.ok:
        return style("worked", "red")
    if observation.exit_code is None:
        return style("was not run: ", "red") + observation.code
    lines = (observation.content.text if observation.content else "").splitlines()
    told = (line.rpartition(": ")[2] for line in lines if ": " in line and not line.startswith("["))
    return style("no: ", "green") + next(told, "it is empty")[: line_width() - 40]


async def show_facts(runtime: ToolRuntime) -> None:
    replay = await runtime.replay()
    tests = [seen.facts["verification"] for seen in replay.observations() if seen.kind == "verification"]
    for when, verified in zip(("before the edit", "after the edit"), tests, strict=False):
        passed = "passed" if verified["ok"] else "failed"
        show(f"tests {when:16}  {passed}, with the files as in {verified['workspace'][:12]}")
    command: Any = [step.event.fact for step in replay if step.event.type == "tool.invocation.started"][-1]
    show(f"the last command        {command.sandbox}, {command.profile}, capabilities: {len(command.capabilities)}")
    audit = await runtime.verify()
    show(f"the log                 {style('verified', 'green') if audit.ok else audit.flaw}, {audit.count} events")


async def scripted_person(question: Question) -> Answer:
    show(style("    a person is asked", "yellow"))
    show_text(question.capability, "        ")
    for name in ("old_string", "new_string"):
        if name in question.arguments:
            show_text(f"{name}: {question.arguments[name]}", "        ")
    show(f"    {style('the answer', 'yellow')} (scripted, this demo asks nobody): yes")
    return Answer(approved=True, by="the demo's script")


async def run(runtime: ToolRuntime, call_id: str, name: str, **arguments: Any) -> Observation:
    """One call, as OpenAI's models send it."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return (await runtime.execute([call])).observations[0]
