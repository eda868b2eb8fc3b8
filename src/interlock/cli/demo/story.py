"""The story of the demo: a small project whose tests fail, what the scripted model says about it, and commands that try
to reach further than they may.

Everything else is real: the files, the tests, the sandbox, the policy, the questions, the log, and what the commands
are after. What the model says after the edit depends on what became of it.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...agent.agent import Agent
from ...domain.messages import ProposedCall, ToolMessage
from ...domain.observation import Observation
from ...interaction.headless import HeadlessInteractionProvider
from ...local import LocalTools
from ...models.interface import ModelRequest
from ...models.scripted import ScriptedProvider, Turn, TurnWriter, proposed
from ...policy.engine.rule import Rule
from ...policy.engine.rule_policy import RulePolicy
from ...runs.runner import Runner
from ..session.agent import INSTRUCTIONS

TASK = "Find out why the tests fail, and fix it."
SOURCE, KEY, HOOK = "shop.py", "key.txt", ".git/hooks/pre-commit"
RUN_ID = "run_demo"
#: The call that asks, and after whose approval the first process dies.
EDIT = "edit_file"
FIXED = "items >= 100"
_TESTS = "Tests: "
_PASS = f"Fixed: {SOURCE} compared with `>` where the test wants `>=`. The tests pass."
_FAIL = "I changed the comparison, but the tests still fail."
_REFUSED = "The edit was refused, so nothing was changed, and the test still fails."
_FILES: Mapping[str, str] = {
    SOURCE: "def discount(items):\n    return 0.1 if items > 100 else 0.0\n",
    "test_shop.py": """\
import unittest

from shop import discount


class TestDiscount(unittest.TestCase):
    def test_ten_percent_from_100_items_on(self):
        self.assertEqual(discount(100), 0.1)

    def test_nothing_below(self):
        self.assertEqual(discount(99), 0.0)
""",
}


def make_project(folder: Path) -> Path:
    project = folder / "project"
    (project / HOOK).parent.mkdir(parents=True)
    for name, text in {**_FILES, "README.md": f"{_TESTS}{_test_command()}\n", HOOK: "exit 0\n"}.items():
        (project / name).write_text(text)
    (folder / KEY).write_text("not for the model\n")
    return project


def _test_command() -> str:
    """The tests are such that Python's own runner takes them, where commands find no pytest."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"
    found = subprocess.run(  # noqa: S603 - our own Python, as commands see it
        [os.path.join(_programs(), "python3"), "-I", "-c", look], env={}, check=False, capture_output=True
    )
    return f"python3 -m {'unittest' if found.returncode else 'pytest'} -q"


def _programs() -> str:
    return os.path.dirname(os.path.abspath(sys.executable))


def demo_tools(project: Path) -> LocalTools:
    # Commands inherit nothing. They find the Python that runs this demo by a PATH of their own.
    return LocalTools(
        project,
        environment={
            "PATH": f"{_programs()}:/usr/local/bin:/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        },
    )


def demo_agent(tools: LocalTools) -> Agent:
    command = Path(tools.root, "README.md").read_text().removeprefix(_TESTS).strip()
    return Agent(
        provider=ScriptedProvider(_turns(command), by_position=True),
        name="demo",
        instructions=INSTRUCTIONS,
        tools=tools,
        policy=RulePolicy([Rule(id="tests", verdict="allow", tools="bash", command=command, reason="Tests may run.")]),
    )


def _turns(command: str) -> list[Turn | TurnWriter]:
    tests = proposed("bash", {"command": command})
    edit = {"path": SOURCE, "old_string": "items > 100", "new_string": FIXED}
    return [
        Turn(text="I look at the project, and run its tests.", calls=(_read("README.md"), tests)),
        Turn(
            text="One test fails. I read it, and what it tests.",
            calls=(_read("test_shop.py"), _read(SOURCE), _read(f"../{KEY}")),
        ),
        Turn(text="The comparison is off by one.", calls=(proposed(EDIT, edit),)),
        lambda request: Turn(text="I verify it.", calls=(tests,)) if _went_well(request) else Turn(text=_REFUSED),
        lambda request: Turn(text=_PASS if _went_well(request) else _FAIL),
    ]


def _read(path: str) -> ProposedCall:
    return proposed("read_file", {"path": path})


def _went_well(request: ModelRequest) -> bool:
    """The last call, by what the model is told."""
    told = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    return '"ok":true' in told[-1].partition("\n")[0]


class Attempt(NamedTuple):
    what: str
    command: str


class Tried(NamedTuple):
    what: str
    worked: bool
    #: What stood in the way, in the words of the command.
    said: str


async def try_to_get_out(folder: Path) -> list[Tried]:
    """Nothing of it may work. A server of this very host is there to be found."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        attempts = _attempts(folder, server.sockets[0].getsockname()[1])
        calls = tuple(proposed("bash", {"command": attempt.command}) for attempt in attempts)
        agent = Agent(
            provider=ScriptedProvider([Turn(calls=calls), Turn(text="Done.")]),
            tools=demo_tools(folder / "project"),
            policy=RulePolicy([Rule(id="commands", verdict="allow", tools="bash")]),
        )
        # Where a sandbox holds back less than it should, each command asks, whatever the rules say.
        async with Runner(agent, interaction=HeadlessInteractionProvider("approve")) as runner:
            result = await runner.run("Try.")
    seen = sorted(result.observations, key=lambda one: int(one.call_id.rpartition("_")[2]))
    return [Tried(attempt.what, one.ok, _said(one)) for attempt, one in zip(attempts, seen, strict=True)]


def _attempts(folder: Path, port: int) -> Sequence[Attempt]:
    return (
        Attempt("read a key beside the project", f"cat '{folder}/{KEY}'"),
        Attempt("read the log of the run", f"head -c 16 '{folder}/runs.db'"),
        Attempt("read variables of this process", f"cat /proc/{os.getpid()}/environ"),
        Attempt("write a hook for git", f"echo make >> {HOOK}"),
        Attempt("call a server on this host", f"echo hello > /dev/tcp/127.0.0.1/{port}"),
    )


def _said(seen: Observation) -> str:
    lines = (seen.content.text if seen.content else "").splitlines()
    return next((line.rpartition(": ")[2] for line in lines if ": " in line and not line.startswith("[")), seen.code)
