"""`LocalTools` itself: what it is told by a policy, when it is closed, and how it stands beside other tools."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallContext,
    Clock,
    ConfigurationError,
    DuplicateToolError,
    LocalTools,
    MemoryLog,
    PolicyFiles,
    Rule,
    RulePolicy,
    ToolRegistry,
    ToolRuntime,
    example_event,
    prefix_tools,
    rename_tools,
    tool,
)
from interlock.domain.tool import JsonObject
from interlock.policy.engine.example_event import TOOL_DEFAULTS
from interlock.policy.interface import PolicyEvent
from tests.each import each
from tests.support import call

from .runs import LocalRun, Person, local_run, text_of
from .signals import Pipe

PLAN = "the secret plan"
#: Nobody can say before what this reads: the gate asks about it, and a person here says yes.
UNNAMED = """eval "$(printf 'cat p%svate/plan.txt' ri)" 2>/dev/null; true"""


@pytest.fixture
def project(root: Path) -> Path:
    (root / "private").mkdir()
    (root / "private/plan.txt").write_text(PLAN)
    return root


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.requirement("R226")
async def test_the_tools_are_closed_with_the_runtime_and_nothing_of_them_is_left(
    root: Path, confined: None, pipe: Callable[[str], Pipe]
) -> None:
    begun, before = pipe("begun"), descriptors()

    async with local_run(root) as run:
        task = await run.bash("trap '' TERM; echo x > begun; sleep 60", background=True)
        await run.do("read_file", path="notes.txt")
        await run.do("grep", pattern="x")
        await begun.received()

    assert task.ok
    assert descriptors() <= before


async def test_closing_twice_and_closing_tools_that_were_never_used_is_nothing(root: Path) -> None:
    before = descriptors()
    box = LocalTools(root)
    await box.close()
    runtime = ToolRuntime(tools=LocalTools(root))
    await runtime.close()
    await runtime.close()

    assert descriptors() <= before


async def test_a_call_after_the_end_is_a_failure_in_words(root: Path, confined: None) -> None:
    async with local_run(root, log=MemoryLog()) as run:
        await run.do("read_file", path="notes.txt")
    late = [await run.do("read_file", path="notes.txt"), await run.bash("touch x")]

    assert not any(observation.ok for observation in late)
    assert not (root / "x").exists()


async def test_the_folder_of_the_tools_is_the_workspace_of_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    async with ToolRuntime(tools=LocalTools("project")) as runtime:
        assert runtime.situation.workspace == str(root)
    async with ToolRuntime(tools=[LocalTools(root)], workspace=root) as runtime:
        assert runtime.situation.workspace == str(root)


async def test_tools_of_the_developer_stand_beside_the_local_ones(root: Path) -> None:
    @tool
    async def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    async with ToolRuntime(tools=[shout, LocalTools(root)]) as runtime:
        calls = [call("c1", "shout", text="hi"), call("c2", "read_file", path="notes.txt")]
        said, read = (await runtime.execute(calls)).observations

    assert (text_of(said), read.ok) == ("HI", True)


async def test_two_toolboxes_with_the_same_names_are_a_mistake_that_is_told(root: Path, tmp_path: Path) -> None:
    boxes = [LocalTools(root), LocalTools(tmp_path)]
    with pytest.raises(DuplicateToolError, match="read_file"):
        ToolRuntime(tools=boxes)
    for box in boxes:
        await box.close()


async def test_a_second_toolbox_in_another_folder_is_a_mistake_that_is_told(root: Path, tmp_path: Path) -> None:
    """Rules judge paths from one folder, so those of the other would be taken for somewhere else."""
    (tmp_path / "docs").mkdir()
    boxes = [LocalTools(root), LocalTools(tmp_path / "docs")]

    with pytest.raises(ConfigurationError, match="several folders"):
        ToolRuntime(tools=[boxes[0], *prefix_tools(boxes[1], "docs_")])

    for box in boxes:
        await box.close()


async def test_a_folder_that_is_not_there_or_is_none_is_a_mistake_in_the_configuration(root: Path) -> None:
    before = descriptors()
    for wrong in (root / "missing", root / "notes.txt"):
        with pytest.raises(ConfigurationError):
            LocalTools(wrong)
    assert descriptors() <= before


async def test_a_folder_that_is_a_link_is_the_folder_that_it_leads_to(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    async with local_run(tmp_path / "link") as run:
        read = await run.do("read_file", path="notes.txt")
        away = await run.do("read_file", path=str(root / "notes.txt"), again=True)

    assert (run.box.root, read.ok, away.ok) == (str(root), True, True)


# What the policy says about paths.


class Switched:
    """A policy that can be exchanged while the run goes on."""

    def __init__(self, policy: RulePolicy) -> None:
        self.policy = policy

    def evaluate(self, event: PolicyEvent) -> Any:
        return self.policy.evaluate(event)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.policy.rules


def closed_to(tools: str = "*", **rule: Any) -> RulePolicy:
    return RulePolicy([Rule(id="private", verdict="deny", tools=tools, path="private/", **rule)])


async def can_see(run: LocalRun) -> dict[str, bool]:
    """In which ways the plan can be read, where nothing in a command names it."""
    shell = await run.bash(UNNAMED)
    assert shell.ok
    found = await run.do("grep", pattern="secret")
    listed = await run.do("glob", pattern="**/*.txt")
    read = await run.do("read_file", path="private/plan.txt", again=True)
    return {
        "bash": PLAN in text_of(shell),
        "grep": "plan.txt" in text_of(found),
        "glob": "plan.txt" in text_of(listed),
        "read": PLAN in text_of(read),
    }


@pytest.mark.requirement("R229", "R232")
async def test_what_is_denied_to_every_tool_is_hidden_from_now_on_when_the_policy_is_another(
    project: Path, confined: None
) -> None:
    policy = Switched(RulePolicy())

    async with local_run(project, policy=policy, interaction=Person()) as run:
        at_first = await can_see(run)
        policy.policy = closed_to()
        then = await can_see(run)
        policy.policy = RulePolicy()
        at_last = await can_see(run)

    assert (set(at_first.values()), set(then.values()), set(at_last.values())) == ({True}, {False}, {True})


async def test_a_policy_file_that_is_read_again_is_heard_by_the_sandbox(
    project: Path, confined: None, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrules: []\n")
    policy = PolicyFiles(user=file)

    async with local_run(project, policy=policy, interaction=Person()) as run:
        before = await can_see(run)
        file.write_text("version: 1\nrules:\n  - id: private\n    decision: deny\n    path: private/\n")
        policy.reload()
        after = await can_see(run)

    assert policy.problems == ()
    assert (set(before.values()), set(after.values())) == ({True}, {False})


async def test_a_rule_that_ends_hides_nothing_any_more(project: Path, confined: None) -> None:
    now, policy = [1_000], closed_to(expires_at=2_000)

    async with local_run(project, policy=policy, clock=Clock(now=lambda: now[0]), interaction=Person()) as run:
        before = await can_see(run)
        now[0] = 2_000
        after = await can_see(run)

    assert (set(before.values()), set(after.values())) == ({False}, {True})


async def test_what_is_denied_to_the_shell_alone_is_hidden_from_commands_only(project: Path, confined: None) -> None:
    async with local_run(project, policy=closed_to("bash"), interaction=Person()) as run:
        seen = await can_see(run)

    assert (seen["bash"], seen["read"]) == (False, True)


async def test_what_may_not_be_written_can_be_read_and_stays_as_it_is(project: Path, confined: None) -> None:
    script = """eval "$(printf 'cd p%svate; echo x > plan.txt; echo x > new.txt; rm -f plan.txt' ri)"; true"""

    async with local_run(project, policy=closed_to(access="write"), interaction=Person()) as run:
        seen = await can_see(run)
        command = await run.bash(script)
        written = await run.do("write_file", path="private/new.txt", content="x")

    assert (set(seen.values()), command.ok, written.code) == ({True}, True, "policy_denied")
    assert [path.name for path in (project / "private").iterdir()] == ["plan.txt"]
    assert (project / "private/plan.txt").read_text() == PLAN


# The same tools as examples in policy files speak of.


@pytest.mark.requirement("R213")
async def test_examples_of_policies_speak_of_the_tools_that_there_are(root: Path) -> None:
    box = LocalTools(root, allow_unsandboxed=True)
    await box.close()
    tools = {tool.name: tool for tool in box}

    assert set(TOOL_DEFAULTS) <= set(tools)
    for name, family in TOOL_DEFAULTS.items():
        assert (dict(tools[name].resources), tools[name].risk) == (dict(family.resources), family.risk)


_SAMPLES: dict[str, JsonObject] = {
    "read_file": {"path": "notes.txt"},
    "write_file": {"path": "notes.txt", "content": "x"},
    "edit_file": {"path": "notes.txt", "old_string": "a", "new_string": "b"},
    "grep": {"pattern": "x", "path": "src"},
    "glob": {"pattern": "*"},
    "list_dir": {"path": "private"},
    "bash": {"command": "git push"},
    "bash_outside": {"command": "git push", "reason": "x"},
    "read_task": {"task_id": "t"},
    "wait_task": {"task_id": "t"},
    "stop_task": {"task_id": "t"},
    "list_tasks": {},
}


@pytest.mark.requirement("R213")
@each("name", _SAMPLES)
@pytest.mark.parametrize(
    "rules",
    [
        [],
        [Rule(id="push", verdict="deny", command="git push")],
        [Rule(id="private", verdict="deny", path="private/")],
        [Rule(id="writes", verdict="deny", risk="write")],
        [Rule(id="runs", verdict="deny", risk="execute")],
    ],
    ids=["no rule", "command", "path", "write", "execute"],
)
async def test_a_policy_decides_about_an_example_as_it_does_about_the_real_tool(
    root: Path, name: str, rules: list[Rule]
) -> None:
    box, policy = LocalTools(root, allow_unsandboxed=True), RulePolicy(rules)
    await box.close()
    real = next(tool for tool in box if tool.name == name)
    situation = CallContext(run_id="run_1", workspace=str(root))

    event = PolicyEvent("c1", real, real.args_model.model_validate(_SAMPLES[name]), situation)

    assert policy.evaluate(example_event(name, _SAMPLES[name], situation)).verdict == policy.evaluate(event).verdict


def test_all_tools_of_the_box_have_a_sample(root: Path) -> None:
    box = LocalTools(root, allow_unsandboxed=True)
    asyncio.run(box.close())

    assert [tool.name for tool in box if tool.name not in _SAMPLES] == []


# Ways to hand the tools over in which nobody may forget the policy.


def in_an_iterator(box: LocalTools) -> Any:
    return iter([box])


def in_a_registry(box: LocalTools) -> Any:
    return ToolRegistry(box)


def one_by_one(box: LocalTools) -> Any:
    return list(box)


def under_other_names(box: LocalTools) -> Any:
    return rename_tools(prefix_tools(box, "my_"), {"my_bash": "bash"})


@pytest.mark.requirement("R232")
@pytest.mark.parametrize("handed_over", [in_an_iterator, in_a_registry, one_by_one, under_other_names])
async def test_what_the_policy_denies_is_hidden_however_the_tools_are_handed_over(
    project: Path, confined: None, handed_over: Callable[[LocalTools], Any]
) -> None:
    box = LocalTools(project)

    options: dict[str, Any] = {"policy": closed_to(), "mode": "trusted", "interaction": Person(), "workspace": project}
    async with ToolRuntime(tools=handed_over(box), **options) as runtime:
        [said] = (await runtime.execute([call("c1", "bash", command=UNNAMED)])).observations
    await box.close()

    assert said.ok
    assert PLAN not in text_of(said)


@pytest.mark.requirement("R232")
async def test_a_second_runtime_with_the_same_tools_does_not_open_what_the_policy_of_the_first_denies(
    project: Path, confined: None
) -> None:
    box = LocalTools(project)
    options: dict[str, Any] = {"mode": "trusted", "interaction": Person()}

    async with ToolRuntime(tools=box, policy=closed_to(), **options) as first, AsyncExitStack() as others:
        with suppress(ConfigurationError):  # which would be right as well
            await others.enter_async_context(ToolRuntime(tools=box, policy=RulePolicy(), **options))
        [said] = (await first.execute([call("c1", "bash", command=UNNAMED)])).observations

    assert said.ok
    assert PLAN not in text_of(said)


@pytest.mark.requirement("R229")
async def test_rules_are_about_the_files_that_the_tools_reach_whatever_workspace_is_named(root: Path) -> None:
    policy = RulePolicy([Rule(id="code", verdict="ask", path="/src/**")])
    person, box = Person(approves=False), LocalTools(root)

    try:
        runtime = ToolRuntime(tools=box, policy=policy, interaction=person, workspace=root / "src")
    except ConfigurationError:  # which would be right as well
        await box.close()
        return
    async with runtime:
        [read] = (await runtime.execute([call("c1", "read_file", path="src/sums.py")])).observations

    assert (read.code, len(person.asked)) == ("user_denied", 1)
