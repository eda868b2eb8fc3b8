"""The same job where a policy speaks: what it allows asks nobody, what it denies does not start, and turns are kept."""

from pathlib import Path

import pytest

from interlock import CallbackInteractionProvider, Question, ToolRuntime, load_policy
from interlock.domain.event import InvocationCompleted, InvocationStarted, PolicyEvaluated
from tests.support import call, facts

from .story import COMMANDS, make_project, runtime_for

POLICY = """\
version: 1
deny:
  - bash(git reset --hard:*)
ask:
  - bash(rm:*)
allow:
  - bash(python3 -m unittest:*)
"""
TEST = COMMANDS["unittest"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return make_project(tmp_path / "project")


def a_run(root: Path, **options: object) -> ToolRuntime:
    return runtime_for(root, "bubblewrap", policy=load_policy(root.parent / "policy.yaml"), **options)


TABLE = {
    "read_file": ("allow", {"path": "shop/prices.py"}),
    "grep": ("allow", {"pattern": "total"}),
    "edit_file": ("ask", {"path": "shop/prices.py", "old_string": "+ 1", "new_string": "+ 0"}),
    "bash tests": ("allow", {"command": TEST}),
    "bash reads": ("allow", {"command": "cat shop/prices.py | wc -l"}),
    "bash other tests": ("ask", {"command": "npm test"}),
    "bash deletes": ("ask", {"command": "rm -rf node_modules"}),
    "bash loses": ("deny", {"command": "git reset --hard HEAD~1"}),
    "bash hides it": ("deny", {"command": f"{TEST} && git -C . reset HEAD~1 --hard"}),
}


@pytest.mark.requirement("R213", "R233")
async def test_the_sample_policy_decides_about_the_real_tools(root: Path) -> None:
    async with a_run(root, interaction=CallbackInteractionProvider(lambda question: False)) as runtime:
        await runtime.execute([call("first", "read_file", path="shop/prices.py")])
        result = await runtime.execute(
            [call(name, name.partition(" ")[0], **arguments) for name, (_, arguments) in TABLE.items()]
        )
        judged = [fact for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]

    verdicts = {fact.call_id: str(fact.decision.verdict) for fact in judged}
    assert verdicts == {"first": "allow"} | {name: verdict for name, (verdict, _) in TABLE.items()}
    codes = {observation.call_id: observation.code for observation in result.observations}
    assert {name for name, code in codes.items() if code == "policy_denied"} == {"bash loses", "bash hides it"}
    assert {name for name, code in codes.items() if code == "user_denied"} == {
        "edit_file",
        "bash other tests",
        "bash deletes",
    }


@pytest.mark.requirement("R217", "R221", "R223", "R227")
async def test_an_edit_and_a_test_of_one_turn_ask_nobody_here_and_the_test_runs_after_the_edit(root: Path) -> None:
    asked: list[Question] = []
    person = CallbackInteractionProvider(lambda question: asked.append(question) or False)
    async with a_run(root, mode="accept_edits", interaction=person) as runtime:
        await runtime.execute([call("read", "read_file", path="shop/prices.py")])
        result = await runtime.execute(
            [
                call("edit", "edit_file", path="shop/prices.py", old_string=" + 1", new_string=""),
                call("test", "bash", command=TEST),
                call("see", "grep", pattern="return", path="shop"),
            ]
        )
        log = await facts(runtime)

    assert [observation.ok for observation in result.observations] == [True, True, True]
    assert [observation.summary for observation in result.observations][1] == "unittest passed."
    assert asked == []
    ended, started = (
        [fact.call_id for fact in log if isinstance(fact, kind)] for kind in (InvocationCompleted, InvocationStarted)
    )
    assert started == ended == ["read", "edit", "test", "see"]
    waited = {fact.call_id: fact.waited_for for fact in log if isinstance(fact, InvocationStarted)}
    assert waited["test"] == ("edit",)


@pytest.mark.requirement("R225", "R226", "R228")
async def test_whoever_watches_tests_that_hang_can_cancel_them_and_the_turn_goes_on(root: Path) -> None:
    (root / "tests" / "test_waits.py").write_text("import time\nprint('still here', flush=True)\ntime.sleep(1000)\n")
    heard: list[str] = []

    def stop(call_id: str, line: str) -> None:
        heard.append(line)
        runtime.cancel_call(call_id)

    async with a_run(root, on_progress=stop) as runtime:
        result = await runtime.execute([call("test", "bash", command=TEST), call("see", "list_dir", path="tests")])

    assert [observation.code for observation in result.observations] == ["cancelled", "ok"]
    assert heard[0] == "still here"
