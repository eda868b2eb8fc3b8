"""The part of `demo.py` about policy and approvals: rules in a file, and a yes that covers what was seen, no more.

The tool named `bash` is a stand-in for the built-in one: nothing but the gate holds it back, on any host.
"""

import asyncio
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from demo_screen import heading, show, show_text, style

from interlock import Decision, HeadlessInteractionProvider, PolicyFiles, Question, ToolDefinition, ToolRuntime, tool

POLICY = """\
version: 1
rules:
  - id: leave-a-mark
    decision: allow
    tools: bash
    command: {is: touch checked}
    reason: It leaves a mark and nothing else.
  - id: no-lost-work
    decision: deny
    tools: bash
    command: git reset --hard
    reason: It throws away changes that nobody has committed.
    message: Use `git stash` to put the changes aside.
"""
SCRIPT = 'echo "migrating ${*:-everything}"\n'
COMMANDS = {
    "p1": "touch checked",
    "p2": "touch checked && git -C . reset HEAD~1 --hard",
    "p3": "sh migrate.sh",
}
COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}


async def show_policy(folder: Path) -> None:
    policy, script = folder / "policy.yaml", folder / "migrate.sh"
    policy.write_text(POLICY)
    script.write_text(SCRIPT)
    runtime = ToolRuntime(
        tools=[shell_in(folder)],
        policy=PolicyFiles(user=policy),
        interaction=HeadlessInteractionProvider("wait"),
        workspace=str(folder),
    )
    async with runtime:
        heading("10. Rules in a file decide about three calls")
        question = await propose(runtime)
        heading("11. The script changes while ana thinks about p3: her yes is void")
        question = await change_and_approve(runtime, question, script)
        heading("12. Asked again, ana edits the call")
        await edit(runtime, question)


async def propose(runtime: ToolRuntime) -> Question:
    """One turn with three calls. The third stays open."""
    calls = [{"id": call_id, "name": "bash", "arguments": {"command": line}} for call_id, line in COMMANDS.items()]
    result = await runtime.execute(calls)
    for step in await runtime.replay():
        if step.event.type == "tool.permission":
            fact: Any = step.event.fact
            show_decision(fact.call_id, fact.decision)
    return result.questions[0]


def show_decision(call_id: str, decision: Decision) -> None:
    verdict = str(decision.verdict)
    show(f"{call_id}  {style(f'{verdict:6}', COLOURS[verdict])} {COMMANDS[call_id]}")
    show_text(": ".join([*decision.rule_ids, decision.reason]), "           ")
    if decision.advice:
        show_text(f"for the model: {decision.advice}", "           ")


async def change_and_approve(runtime: ToolRuntime, question: Question, script: Path) -> Question:
    show(f"asked       {question.arguments['command']}, bound to {short(question.payload_hash)}")
    somebody_edits(script)
    await runtime.decide(question.action_id, approved=True, by="ana", payload_hash=question.payload_hash)
    show("ana         yes (scripted, this demo asks nobody)")
    result = await runtime.resume()
    first, again = await runtime.actions()
    ran = "something ran" if result.observations else "nothing ran"
    show(f"outcome     {style(first.status, 'red')}, {ran}, asked again as {short(again.payload_hash)}")
    for change in again.changes:
        show(f"changed     {change.what}: {short(change.was)} -> {short(change.now)}")
    return again.question


def somebody_edits(script: Path) -> None:
    script.write_text("echo dropping tables; " + SCRIPT)
    show(f"meanwhile   somebody edits {script.name}")


async def edit(runtime: ToolRuntime, question: Question) -> None:
    await runtime.decide(question.action_id, approved=True, by="ana", arguments={"command": "cat migrate.sh"})
    show("ana         run this instead: cat migrate.sh (scripted)")
    (observation,) = (await runtime.resume()).observations
    show_text(observation.summary, "model reads ")
    show_text(observation.content.text if observation.content else "none", "output      ")
    show("actions     " + ", ".join(action.status for action in await runtime.actions()))


def shell_in(folder: Path) -> ToolDefinition:
    @tool(risk="execute", resources={"command": "command"})
    async def bash(command: str) -> str:
        """Run a command."""
        process = await asyncio.create_subprocess_exec("bash", "-c", command, cwd=folder, stdout=PIPE)
        output, _ = await process.communicate()
        return output.decode()

    return bash


def short(digest: str) -> str:
    return digest[:14]
