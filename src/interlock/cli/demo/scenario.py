"""The scenario of the demo: a small project whose tests fail, the scripted model, and commands that try to escape.

Everything else is real: the files, the tests, the sandbox, the policy, the questions, the log, and the targets of the
commands. What the model says after the edit depends on its outcome.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...agent.agent import Agent
from ...domain.messages import ProposedCall, ToolMessage
from ...domain.observation import Observation
from ...interaction.providers import HeadlessInteractionProvider
from ...local import LocalTools
from ...models.interface import ModelRequest
from ...models.scripted import ScriptedModel, ScriptedTurn, TurnFactory, tool_call
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
#: What the command that cleans up changes: it is asked about with its effect, and undone at the end.
LEFTOVER, NOTES = "old.py", "NOTES"
TIDY = f"mv {LEFTOVER} a.py; echo ok >> {NOTES}"
_TESTS_PREFIX = "Tests: "
_PASSED_TEXT = f"Fixed: {SOURCE} compared with `>` where the test wants `>=`. The tests pass."
_FAILED_TEXT = "I changed the comparison, but the tests still fail."
_REFUSED_TEXT = "The edit was refused, so nothing was changed, and the test still fails."
PROJECT_FILES: Mapping[str, str] = {
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
    LEFTOVER: "def discount(items): ...\n",
    NOTES: "to do\n",
}


def make_project(folder: Path) -> Path:
    """Create the example project in a folder. Return its path."""
    project = folder / "project"
    (project / HOOK).parent.mkdir(parents=True)
    for name, text in {**PROJECT_FILES, "README.md": f"{_TESTS_PREFIX}{_test_command()}\n", HOOK: "exit 0\n"}.items():
        (project / name).write_text(text)
    (folder / KEY).write_text("not for the model\n")
    return project


def _test_command() -> str:
    """Return the command that runs the tests: pytest, or unittest where commands find no pytest."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"
    found = subprocess.run(  # noqa: S603 - our own Python, as commands see it
        [os.path.join(_programs_folder(), "python3"), "-I", "-c", look], env={}, check=False, capture_output=True
    )
    return f"python3 -m {'unittest' if found.returncode else 'pytest'} -q"


def _programs_folder() -> str:
    return os.path.dirname(os.path.abspath(sys.executable))


def demo_tools(project: Path, changes: Path | None = None) -> LocalTools:
    """Build the tools of the demo, with an environment in which commands find this Python."""
    # Commands inherit nothing. They find the Python that runs this demo by their own PATH.
    return LocalTools(
        project,
        environment={
            "PATH": f"{_programs_folder()}:/usr/local/bin:/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        },
        changes=changes,
    )


def demo_agent(tools: LocalTools) -> Agent:
    """Build the agent of the demo: a scripted model and one rule that allows the tests."""
    command = Path(tools.root, "README.md").read_text().removeprefix(_TESTS_PREFIX).strip()
    return Agent(
        provider=ScriptedModel(_build_turns(command), by_position=True),
        name="demo",
        instructions=INSTRUCTIONS,
        tools=tools,
        policy=RulePolicy([Rule(id="tests", verdict="allow", tools="bash", command=command, reason="Tests may run.")]),
    )


def _build_turns(command: str) -> list[ScriptedTurn | TurnFactory]:
    tests = tool_call("bash", command=command)
    edit = {"path": SOURCE, "old_string": "items > 100", "new_string": FIXED}
    return [
        ScriptedTurn(text="I look at the project, and run its tests.", calls=(_read_call("README.md"), tests)),
        ScriptedTurn(
            text="One test fails. I read it, and what it tests.",
            calls=(_read_call("test_shop.py"), _read_call(SOURCE), _read_call(f"../{KEY}")),
        ),
        ScriptedTurn(text="The comparison is off by one.", calls=(tool_call(EDIT, **edit),)),
        lambda request: (
            ScriptedTurn(text="I clean up.", calls=(tool_call("bash", command=TIDY),))
            if _last_call_succeeded(request)
            else ScriptedTurn(text=_REFUSED_TEXT)
        ),
        ScriptedTurn(text="I verify it.", calls=(tests,)),
        lambda request: ScriptedTurn(text=_PASSED_TEXT if _last_call_succeeded(request) else _FAILED_TEXT),
    ]


def _read_call(path: str) -> ProposedCall:
    return tool_call("read_file", path=path)


def _last_call_succeeded(request: ModelRequest) -> bool:
    """Return True if the last call succeeded, by its tool message."""
    results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    return '"ok":true' in results[-1].partition("\n")[0]


class AttemptResult(NamedTuple):
    """The result of an escape attempt."""

    what: str
    has_worked: bool
    #: What stood in the way, in the words of the command.
    message: str


async def try_escapes(folder: Path) -> list[AttemptResult]:
    """Run the escape attempts; none may work. A server of this host is there to be found."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        attempts = {
            "read a key beside the project": f"cat '{folder}/{KEY}'",
            "read the log of the run": f"head -c 16 '{folder}/runs.db'",
            "read variables of this process": f"cat /proc/{os.getpid()}/environ",
            "write a hook for git": f"echo make >> {HOOK}",
            "call a server on this host": f"echo hello > /dev/tcp/127.0.0.1/{server.sockets[0].getsockname()[1]}",
        }
        calls = tuple(tool_call("bash", command=command) for command in attempts.values())
        agent = Agent(
            provider=ScriptedModel([ScriptedTurn(calls=calls), ScriptedTurn(text="Done.")]),
            tools=demo_tools(folder / "project"),
            policy=RulePolicy([Rule(id="commands", verdict="allow", tools="bash")]),
        )
        # Where confinement is incomplete, each command requires approval, whatever the rules say.
        async with Runner(agent, interaction=HeadlessInteractionProvider("approve")) as runner:
            result = await runner.run("Try.")
    observations = sorted(result.observations, key=lambda one: int(one.call_id.rpartition("_")[2]))
    return [AttemptResult(what, one.ok, _find_message(one)) for what, one in zip(attempts, observations, strict=True)]


def _find_message(observation: Observation) -> str:
    lines = (observation.content.text if observation.content else "").splitlines()
    return next(
        (line.rpartition(": ")[2] for line in lines if ": " in line and not line.startswith("[")), observation.code
    )
