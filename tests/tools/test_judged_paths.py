"""What a tool opens is what was judged, whatever is moved between the decision and the opening.

In the workspace `door` is a link to `public`, and by a swap to `private`, which a rule asks about or denies.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import (
    Answer,
    Decision,
    HeadlessInteractionProvider,
    LocalTools,
    Observation,
    Question,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
)
from interlock.domain.decision import Verdict
from interlock.domain.tool import ToolContext
from interlock.policy.interface import PolicyEvent
from interlock.sandbox.host import beneath
from interlock.sandbox.host.beneath import OpenedPath
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.list_dir import list_dir_tool
from interlock.tools.files.read_file import read_file_tool
from interlock.tools.files.write_file import write_file_tool
from interlock.tools.search.glob import glob_tool
from interlock.tools.search.grep import grep_tool
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.support import call

from .search_runs import rg, sandbox

pytestmark = pytest.mark.requirement("P19")

PLAN = "the secret plan"
CALLS: dict[str, dict[str, object]] = {
    "read_file": {"path": "door/plan.txt"},
    "list_dir": {"path": "door"},
    "grep": {"path": "door", "pattern": "plan"},
    "glob": {"path": "door", "pattern": "*"},
    "write_file": {"path": "door/new.txt", "content": "x"},
    "edit_file": {"path": "door/plan.txt", "old_string": "plan", "new_string": "x"},
}
RULES = {
    "ask": [Rule(id="private", verdict="ask", path="private/**")],
    "deny for one tool": [Rule(id=name, verdict="deny", tools=name, path="private/**") for name in CALLS],
}
WAITS = HeadlessInteractionProvider("wait")
every_tool = pytest.mark.parametrize("name", CALLS)


class Scene:
    """The folder, and what is in it that nobody may read or change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder, plan in (("public", "the public plan"), ("private", PLAN)):
            (root / folder).mkdir(parents=True)
            (root / folder / "plan.txt").write_text(plan)
        (root / "private/hidden-name.txt").touch()
        self.lead_to("public")

    def lead_to(self, folder: str) -> None:
        (self.root / "door.new").symlink_to(folder)
        os.replace(self.root / "door.new", self.root / "door")

    def swap(self) -> None:
        self.lead_to("private")

    def check_private(self, observation: Observation) -> None:
        shown = msgspec.json.encode(observation).decode()
        assert "secret" not in shown
        assert "hidden-name" not in shown
        assert sorted(path.name for path in (self.root / "private").iterdir()) == ["hidden-name.txt", "plan.txt"]
        assert (self.root / "private/plan.txt").read_text() == PLAN


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "ws")


@pytest.fixture(params=RULES)
def rules(request: pytest.FixtureRequest) -> list[Rule]:
    return RULES[request.param]


class Swapping(RulePolicy):
    """Rules, and somebody who moves things as soon as they have decided."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def evaluate(self, event: PolicyEvent) -> Decision:
        decision = super().evaluate(event)
        self.then()
        return decision


def all_tools(workspace: Workspace) -> Iterator[ToolDefinition]:
    yield from (make(workspace) for make in (read_file_tool, write_file_tool, edit_file_tool, list_dir_tool))
    yield grep_tool(workspace, sandbox(), rg(), tuple)
    yield glob_tool(workspace, sandbox(), rg())


async def do(runtime: ToolRuntime, call_id: str, name: str) -> Observation:
    return (await runtime.execute([call(call_id, name, **CALLS[name])])).observations[0]


async def know_the_plan(runtime: ToolRuntime) -> None:
    """An edit needs a file that was read, under the name that it has at the moment."""
    await runtime.execute([call("known", "read_file", path="public/plan.txt")])


async def test_every_tool_with_a_path_is_tried_here(scene: Scene) -> None:
    tools = LocalTools(scene.root)
    named = {tool.name for tool in tools if "path" in tool.resources.values()}
    await tools.close()

    assert named == CALLS.keys()


@every_tool
async def test_link_swapped_after_the_decision_is_refused(name: str, rules: list[Rule], scene: Scene) -> None:
    policy = Swapping(rules)
    async with ToolRuntime(tools=LocalTools(scene.root), policy=policy, mode="trusted") as runtime:
        await know_the_plan(runtime)
        policy.then = scene.swap

        swapped = await do(runtime, "c1", name)

        assert (swapped.code, swapped.side_effects) == ("runtime_precondition_failed", ())
        assert swapped.failure is not None
        assert swapped.failure.retryable
        assert "leads elsewhere than when the call was judged" in swapped.summary
        scene.check_private(swapped)


@every_tool
async def test_the_retry_is_judged_where_the_path_leads(name: str, rules: list[Rule], scene: Scene) -> None:
    async with ToolRuntime(tools=LocalTools(scene.root), policy=RulePolicy(rules), mode="trusted") as runtime:
        scene.swap()

        observation = await do(runtime, "c1", name)

        assert not observation.ok
        scene.check_private(observation)


@every_tool
async def test_unmoved_link_is_opened(name: str, rules: list[Rule], scene: Scene) -> None:
    async with ToolRuntime(tools=LocalTools(scene.root), policy=RulePolicy(rules), mode="trusted") as runtime:
        await know_the_plan(runtime)

        assert (await do(runtime, "c1", name)).ok


@every_tool
async def test_no_look_of_a_tool_can_be_swapped_before(name: str, rules: list[Rule], scene: Scene) -> None:
    """The swap comes right before the first look, before the second, and so on until there is none any more."""
    looks = before = 0

    def reach(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
        nonlocal looks
        looks += 1
        if looks == before:
            scene.swap()
        return beneath.open_real_path(root_fd, path, flags, mode)

    while looks >= before:
        scene.lead_to("public")
        before += 1
        with Workspace(scene.root, opener=reach) as workspace:
            options: dict[str, Any] = {"policy": RulePolicy(rules), "workspace": scene.root, "mode": "trusted"}
            async with ToolRuntime(tools=[*all_tools(workspace)], **options) as runtime:
                await know_the_plan(runtime)
                looks = 0
                scene.check_private(await do(runtime, "c1", name))
        (scene.root / "public/plan.txt").write_text("the public plan")
        (scene.root / "public/new.txt").unlink(missing_ok=True)
    assert before > 2


async def test_pattern_cannot_lead_out_of_the_judged_folder(scene: Scene) -> None:
    (scene.root / "public/out").symlink_to("../private")
    async with ToolRuntime(tools=LocalTools(scene.root), policy=RulePolicy(RULES["ask"])) as runtime:
        [observation] = (await runtime.execute([call("c1", "glob", path="public", pattern="out/*")])).observations

        assert observation.code == "runtime_precondition_failed"
        scene.check_private(observation)


async def test_link_swapped_while_a_person_thinks_is_refused(scene: Scene) -> None:
    class Slow:
        approval_timeout_s, approval_fallback, interactive = 5.0, "deny", True

        async def ask(self, question: Question) -> Answer:
            scene.swap()
            return Answer(approved=True, by="ada")

    rules = [Rule(id="ask", verdict="ask", tools="write_file", path="public/**")]
    box = LocalTools(scene.root)
    interaction: Any = Slow()
    async with ToolRuntime(tools=box, policy=RulePolicy(rules), mode="trusted", interaction=interaction) as runtime:
        observation = await do(runtime, "c1", "write_file")

        assert observation.code == "runtime_precondition_failed"
        scene.check_private(observation)


async def test_an_approved_link_that_stays_is_written_through(scene: Scene) -> None:
    rules = [Rule(id="ask", verdict="ask", tools="write_file", path="public/**")]
    box = LocalTools(scene.root)
    async with ToolRuntime(tools=box, policy=RulePolicy(rules), mode="trusted", interaction=WAITS) as runtime:
        [question] = (await runtime.execute([call("c1", "write_file", **CALLS["write_file"])])).questions
        await runtime.decide(question.action_id, approved=True, by="ada")
        resumed = await runtime.resume()

        assert [each.ok for each in resumed.observations] == [True]
        assert (scene.root / "public/new.txt").read_text() == "x"


async def test_folder_moved_while_it_is_written_is_refused(scene: Scene) -> None:
    """Not a link this time: the opened folder itself gets another name before the file takes its place."""
    (scene.root / "made").mkdir()

    def move(_file: int | None) -> None:
        raise AssertionError("nothing is asked about a file that is elsewhere")

    def reach(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
        reached = beneath.open_real_path(root_fd, path, flags, mode)
        if path == "made" and (scene.root / "made").exists() and flags & os.O_DIRECTORY:
            (scene.root / "made").rename(scene.root / "private/made")
        return reached

    with Workspace(scene.root, opener=reach) as workspace, pytest.raises(Exception, match="leads elsewhere"):
        workspace.replace_file("made/x", b"new", frozenset({"made/x"}), precondition=move)
    assert list((scene.root / "private/made").iterdir()) == []


async def test_arguments_of_a_hook_are_held_to_their_own_places(scene: Scene) -> None:
    (scene.root / "other.txt").write_text("another plan")
    with Workspace(scene.root) as workspace:

        def other(arguments: dict[str, Any], _context: ToolContext) -> dict[str, Any]:
            return {**arguments, "path": "other.txt"}

        hooked = msgspec.structs.replace(read_file_tool(workspace), pre_hooks=(other,))
        async with ToolRuntime(tools=[hooked], workspace=scene.root) as runtime:
            observation = await do(runtime, "c1", "read_file")

    assert observation.ok
    assert "another plan" in msgspec.json.encode(observation).decode()


async def test_own_policy_judges_what_will_be_opened(scene: Scene) -> None:
    class Own:
        def evaluate(self, event: PolicyEvent) -> Decision:
            place = event.real_path(event.arguments["path"])
            scene.swap()
            allowed = place.startswith(f"{scene.root.resolve()}/public/")
            return Decision(verdict=Verdict.ALLOW if allowed else Verdict.DENY, reason="by place")

    async with ToolRuntime(tools=LocalTools(scene.root), policy=Own()) as runtime:
        observation = await do(runtime, "c1", "read_file")

        assert observation.code == "runtime_precondition_failed"
        scene.check_private(observation)


@pytest.mark.skipif(os.geteuid() != 0, reason="this is the ordinary user")
def test_as_an_ordinary_user_too() -> None:
    pytest_as_ordinary_user(__file__, "-k", "swapped")
