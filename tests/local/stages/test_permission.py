"""The gate in front of the real tools: the sample table in every mode, what a question says, and who is stronger."""

from pathlib import Path
from typing import Any

import pytest

from interlock import PermissionMode, Rule, RulePolicy
from interlock.domain.event import ApprovalRequested, InvocationStarted, PolicyEvaluated
from tests.policy.test_sample_policy import POLICY

from .runs import OPEN, Person, local_run, text_of

pytestmark = pytest.mark.usefixtures("confined")
#: In the order of `Mode`: read_only, default, accept_edits, contained, trusted. `read_only` is not even shown edits.
TABLE = [
    ("read_file", {"path": "package.json"}, "allow allow allow allow allow"),
    ("grep", {"pattern": "add", "path": "src"}, "allow allow allow allow allow"),
    ("bash", {"command": "npm test"}, "deny ask ask allow allow"),
    ("edit_file", {"path": "package.json", "old_string": "{}", "new_string": "[]"}, "hidden ask allow allow allow"),
    ("bash", {"command": "rm -rf node_modules"}, "deny deny deny deny deny"),
    ("bash", {"command": "git reset --hard"}, "deny deny deny deny deny"),
]


@pytest.fixture
def project(root: Path) -> Path:
    (root / "package.json").write_text("{}")
    (root / "node_modules/left-pad").mkdir(parents=True)
    return root


@pytest.mark.requirement("R200", "R201", "R213", "R233")
@pytest.mark.parametrize(
    ("tool", "arguments", "mode", "verdict"),
    [
        (tool, arguments, mode, verdict)
        for tool, arguments, verdicts in TABLE
        for mode, verdict in zip(PermissionMode, verdicts.split(), strict=True)
    ],
)
async def test_the_sample_policy_decides_about_the_real_tools_as_its_table_says(
    project: Path, tool: str, arguments: dict[str, Any], mode: PermissionMode, verdict: str
) -> None:
    person = Person(approves=False)

    async with local_run(project, policy=POLICY, mode=mode, interaction=person) as run:
        await run.do("read_file", path="package.json")
        observed = await run.do(tool, **arguments)
        decided = [fact.decision.verdict for fact in await run.facts(PolicyEvaluated, "c2")]
        started = [fact.call_id for fact in await run.facts(InvocationStarted)]

    assert decided == ([] if verdict == "hidden" else [verdict])
    assert ("c2" in started, len(person.asked)) == (verdict == "allow", 1 if verdict == "ask" else 0)
    refused_as = {"allow": observed.code, "ask": "user_denied", "deny": "policy_denied", "hidden": "tool_not_visible"}
    assert observed.code == refused_as[verdict]
    assert (project / "node_modules/left-pad").is_dir()


@pytest.mark.requirement("R213", "R216")
async def test_without_a_rule_a_command_that_destroys_is_a_question_that_says_so(project: Path) -> None:
    person = Person(approves=False)

    async with local_run(project, mode="default", interaction=person) as run:
        refused = await run.bash("rm -rf node_modules")
        await run.bash("git reset --hard")

    removal, reset = person.asked
    assert refused.code == "user_denied"
    assert {"execute", "deletes files recursively", "deletes without asking"} <= set(removal.risk)
    assert "uncommitted changes are lost" in reset.risk
    assert (project / "node_modules/left-pad").is_dir()


@pytest.mark.requirement("R216")
@pytest.mark.parametrize(
    ("command", "risks"),
    [
        ("npm test", {"runs project scripts"}),
        ("npm install left-pad", {"may run install scripts", "uses the network"}),
        ("npm test -- --coverage", {"runs project scripts", "may write a coverage directory"}),
        ("cd src && pytest --cov > out.txt", {"runs project scripts", "may write a coverage directory"}),
    ],
)
async def test_a_question_about_a_command_has_its_risks_the_sandbox_and_what_is_shown_of_its_output(
    project: Path, command: str, risks: set[str]
) -> None:
    person = Person(approves=False)

    async with local_run(project, mode="default", interaction=person) as run:
        await run.bash(command)
        [asked] = await run.facts(ApprovalRequested)

    [question] = person.asked
    expected = {"execute", "sandbox: bubblewrap/workspace-write", "output is cut at 30000 characters", *risks}
    assert expected <= set(question.risk)
    assert question.bound.surroundings.sandbox == "bubblewrap/workspace-write"
    assert (question.bound.surroundings.cwd, question.arguments["command"]) == (str(project), command)
    assert asked.question.risk == question.risk


@pytest.mark.requirement("R216")
async def test_a_question_about_an_edit_names_the_file_and_binds_what_is_in_it(project: Path) -> None:
    async with local_run(project, mode="default", interaction=OPEN) as run:
        await run.do("read_file", path="notes.txt")
        result = await run.propose(("edit_file", {"path": "notes.txt", "old_string": "two", "new_string": "2"}))

    [question] = result.questions
    assert "write" in question.risk
    assert [file.path for file in question.bound.surroundings.files] == ["notes.txt"]
    assert question.bound.surroundings.files[0].sha256
    assert (project / "notes.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.requirement("R213", "R233")
@pytest.mark.parametrize(
    "script",
    [
        "ls && git reset --hard",
        "git -C . reset --hard",
        "bash -c 'git reset --hard'",
        "(rm -rf node_modules)",
        "env X=1 rm -r -f node_modules",
        "true; $X; rm -rf node_modules",
    ],
)
async def test_a_deny_beats_every_allow_and_the_sandbox_lets_nothing_start(project: Path, script: str) -> None:
    allow = Rule(id="shell", verdict="allow", tools="bash")
    policy = RulePolicy([allow, *POLICY.rules])

    async with local_run(project, policy=policy) as run:
        refused = await run.bash(script)
        behind = await run.bash(script, background=True)
        started = await run.facts(InvocationStarted)
        tasks = await run.do("list_tasks")

    assert (refused.code, behind.code, started) == ("policy_denied", "policy_denied", [])
    assert text_of(tasks) == "There are no background tasks."
    assert (project / "node_modules/left-pad").is_dir()


@pytest.mark.requirement("R232", "R233")
async def test_what_a_rule_allows_is_still_held_back_and_what_it_denies_is_also_hidden(project: Path) -> None:
    (project / "private").mkdir()
    (project / "private/plan.txt").write_text("the secret plan")
    rules = [Rule(id="all", verdict="allow", tools="*"), Rule(id="private", verdict="deny", path="private/")]

    async with local_run(project, policy=RulePolicy(rules), interaction=Person()) as run:
        named = await run.bash("cat private/plan.txt")
        unnamed = await run.bash("for f in */*.txt; do tail $f; done; echo $?; touch /usr/x || echo held")
        searched = await run.do("grep", pattern="plan")
        read = await run.do("read_file", path="private/plan.txt")

    assert (named.code, read.code) == ("policy_denied", "policy_denied")
    assert "held" in text_of(unnamed)
    assert "secret plan" not in f"{unnamed}{searched}{read}"
