"""Commands that are tried in an overlay: a person approves what happens, and exactly that happens."""

import os
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Answer, CallbackInteractionProvider, Observation, Question, Rule, RulePolicy, ToolRuntime
from interlock.changes.store import ChangeStore
from interlock.domain.trial import TriedChange
from interlock.local import LocalTools
from interlock.policy import EgressRule
from interlock.sandbox.commands.probe import choose_sandbox
from tests.sandbox.network.hosts import HOST, serving
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.support import call

pytestmark = pytest.mark.skipif(
    "overlay" not in choose_sandbox().confinement.capabilities, reason="this host has no overlays for commands"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "old.sh").write_text("exit 0\n")
    return folder


class Person:
    """Answers as told, and remembers the questions."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []
        self.before_answer: Callable[[], Any] = lambda: None

    async def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        self.before_answer()
        return Answer(approved=self.answers.pop(0), by="ada")

    @property
    def changes(self) -> list[TriedChange]:
        trial = self.asked[-1].trial
        assert trial is not None
        return list(trial.changes)


class Box:
    """Runs commands one after the other."""

    def __init__(self, runtime: ToolRuntime) -> None:
        self._runtime = runtime
        self._count = 0

    async def bash(self, command: str, **arguments: Any) -> Observation:
        self._count += 1
        intent = call(f"c{self._count}", "bash", command=command, **arguments)
        return (await self._runtime.execute([intent])).observations[0]


@asynccontextmanager
async def box(workspace: Path, person: Person, **options: Any) -> AsyncGenerator[Box]:
    tools = LocalTools(workspace, changes=workspace.parent / "changes", **options.pop("tools", {}))
    async with ToolRuntime(tools=tools, interaction=CallbackInteractionProvider(person.answer), **options) as runtime:
        yield Box(runtime)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a folder: modes, contents, targets."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = b"" if stat.S_ISDIR(status.st_mode) else path.read_bytes() if path.is_file() else b"?"
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else content
        found[str(path.relative_to(folder))] = status.st_mode, content
    return found


CHANGES_ALL = (
    "sed -i s/one/ONE/ a.txt; rm old.sh; mkdir -p new/deep; echo x > new/deep/x; ln -s a.txt link; "
    "echo '#!/bin/sh' > run; chmod 755 run; echo done"
)


@pytest.mark.requirement("P27")
async def test_an_approval_commits_exactly_what_was_shown(workspace: Path) -> None:
    person = Person(True)
    async with box(workspace, person) as here:
        seen = await here.bash(CHANGES_ALL)

    assert person.changes == [
        TriedChange("a.txt", "modified", "+1 -1"),
        TriedChange("link", "created", "link to a.txt"),
        TriedChange("new/deep/x", "created", "+1 -0"),
        TriedChange("old.sh", "deleted", "+0 -1"),
        TriedChange("run", "created", "+1 -0, executable"),
    ]
    assert person.asked[0].trial is not None
    assert "-one\n+ONE" in person.asked[0].trial.diff
    assert person.asked[0].trial.output == "done\n"
    assert (seen.ok, seen.exit_code) == (True, 0)
    assert {name: content for name, (_, content) in tree(workspace).items()} == {
        "a.txt": b"ONE\ntwo\n",
        "link": b"a.txt",
        "new": b"",
        "new/deep": b"",
        "new/deep/x": b"x\n",
        "run": b"#!/bin/sh\n",
    }
    assert os.access(workspace / "run", os.X_OK)


@pytest.mark.requirement("P27")
async def test_a_refusal_leaves_nothing_behind(workspace: Path) -> None:
    before = tree(workspace)
    async with box(workspace, Person(False)) as here:
        seen = await here.bash(CHANGES_ALL)

    assert seen.code == "user_denied"
    assert "It was only tried: nothing of it was kept." in seen.summary
    assert tree(workspace) == before
    assert os.listdir(workspace.parent / "changes/overlays") == []


@pytest.mark.requirement("P27")
async def test_drift_before_the_answer_tries_again_and_shows_it(workspace: Path) -> None:
    person = Person(True, True)
    async with box(workspace, person) as here:
        person.before_answer = lambda: len(person.asked) == 1 and (workspace / "a.txt").write_text("mine\n")
        seen = await here.bash("echo more >> a.txt")

    assert [change.what for change in person.asked[1].changes] == ["file a.txt"]
    assert seen.ok
    assert (workspace / "a.txt").read_text() == "mine\nmore\n"


async def test_what_changes_nothing_is_not_asked_about(workspace: Path) -> None:
    (workspace / "test_x.py").write_text("def test_x():\n    assert True\n")
    person = Person()
    async with box(workspace, person) as here:
        failed = await here.bash("python3 -c 'import sys; sys.exit(3)'")
        cached = await here.bash("mkdir -p __pycache__ .pytest_cache; echo x > __pycache__/x.pyc; echo ran")

    assert person.asked == []
    assert (failed.exit_code, cached.exit_code) == (3, 0)
    assert not (workspace / "__pycache__").exists()


async def test_a_command_that_needs_the_network_is_asked_about_before(workspace: Path) -> None:
    person = Person(False)
    async with box(workspace, person) as here:
        await here.bash("curl https://example.com")

    assert person.asked[0].trial is None
    assert "It could not be tried first: it needs the network." in person.asked[0].reason


async def test_a_background_command_is_asked_about_before(workspace: Path) -> None:
    person = Person(False)
    async with box(workspace, person) as here:
        await here.bash("touch x", background=True)

    assert person.asked[0].trial is None


async def test_hidden_and_guarded_files_are_the_same_in_a_trial(workspace: Path) -> None:
    (workspace / ".env").write_text("TOKEN=swordfish\n")
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("[core]\n")
    person = Person(True)
    async with box(workspace, person) as here:
        seen = await here.bash("cat .env; rm -f .env; echo x >> .git/config; echo y > y; true")

    assert "swordfish" not in str(seen)
    assert person.changes == [TriedChange("y", "created", "+1 -0")]
    assert (workspace / ".env").read_text() == "TOKEN=swordfish\n"
    assert (workspace / ".git/config").read_text() == "[core]\n"


async def test_a_check_in_a_trial_says_nothing_about_another_workspace(workspace: Path) -> None:
    (workspace / "test_x.py").write_text("import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n")
    person = Person(True)
    async with box(workspace, person) as here:
        person.before_answer = lambda: (workspace / "other.py").write_text("changed = True\n")
        seen = await here.bash("python3 -m unittest -q; echo x > made")

    assert seen.kind == "verification"
    assert seen.facts["verification"]["workspace"] == "unknown"


async def test_a_rule_may_ask_before(workspace: Path) -> None:
    person = Person(True)
    policy = RulePolicy([Rule(id="look", verdict="ask", tools="bash", ask="before")])
    async with box(workspace, person, policy=policy) as here:
        seen = await here.bash("echo x > made")

    assert person.asked[0].trial is None
    assert seen.ok
    assert (workspace / "made").exists()


async def test_an_allowed_command_writes_at_its_end_and_names_its_change_set(workspace: Path) -> None:
    person = Person()
    async with box(workspace, person, mode="trusted") as here:
        seen = await here.bash(CHANGES_ALL)
        reads = await here.bash("cat a.txt")

    assert person.asked == []
    assert len(seen.facts["change_set"]) == 64
    assert "change_set" not in reads.facts
    assert (workspace / "a.txt").read_text() == "ONE\ntwo\n"


async def test_a_command_that_an_overlay_refuses_runs_without_one(workspace: Path) -> None:
    """Folders of the workspace cannot be renamed in an overlay."""
    (workspace / "folder").mkdir()
    (workspace / "folder/x").write_text("x")
    async with box(workspace, Person(), mode="trusted") as here:
        seen = await here.bash("python3 -c \"import os; os.rename('folder', 'other')\"")

    assert seen.ok
    assert "change_set" not in seen.facts
    assert sorted(tree(workspace)) == ["a.txt", "old.sh", "other", "other/x"]


async def test_what_programs_make_again_is_not_kept(workspace: Path) -> None:
    (workspace / "node_modules/x").mkdir(parents=True)
    (workspace / "node_modules/x/index.js").write_text("old\n")
    async with box(workspace, Person(), mode="trusted") as here:
        seen = await here.bash("rm -r node_modules; echo new > a.txt")

    changed = ChangeStore(workspace.parent / "changes").load(seen.facts["change_set"])
    unkept = [one.path for one in changed.changes if one.before.kind == "file" and not one.before.digest]
    assert unkept == ["node_modules/x/index.js"]
    assert not (workspace / "node_modules").exists()


async def test_a_hidden_failure_of_a_rename_is_found_too(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder/x").write_text("x")
    async with box(workspace, Person(), mode="trusted") as here:
        await here.bash("python3 -c \"import os; os.rename('folder', 'other')\"; true")

    assert (workspace / "other/x").exists()


async def test_a_command_that_reached_a_host_never_runs_again(workspace: Path) -> None:
    """However much its output looks as if the overlay had refused something."""
    policy = RulePolicy([Rule(id="all", verdict="allow", tools="*")])
    program = "import urllib.request as r; r.urlopen('http://{}/').read(); print('EXDEV')"
    async with serving() as host:
        rule = EgressRule(verdict="allow", hosts=HOST, ports=host.port)
        async with box(workspace, Person(), policy=policy, tools={"egress": [rule]}) as here:
            seen = await here.bash(f'python3 -c "{program.format(f"{HOST}:{host.port}")}"; echo new > a.txt')

    assert seen.ok
    assert host.connections == 1
    assert (workspace / "a.txt").read_text() == "new\n"


async def test_commands_can_write_at_once(workspace: Path) -> None:
    async with box(workspace, Person(), mode="trusted", tools={"undo_commands": False}) as here:
        seen = await here.bash("echo x > made")

    assert seen.ok
    assert "change_set" not in seen.facts


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
