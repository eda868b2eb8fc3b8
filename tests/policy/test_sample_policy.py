"""The sample table of a coding agent that fixes a test, in every mode, and what its questions say."""

from pathlib import Path

import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, JsonObject, PermissionMode
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy
from tests.each import each

POLICY = RulePolicy(
    [
        Rule(id="look", verdict="allow", tools=["read_file", "grep"]),
        Rule(
            id="keep-files",
            verdict="deny",
            command="rm -rf",
            reason="Deleting folders is not undone.",
            advice="Remove single files with rm.",
        ),
        Rule(id="keep-changes", verdict="deny", command="git reset --hard", reason="Uncommitted work would be lost."),
    ]
)
#: In the order of `Mode`: read_only, default, accept_edits, contained, trusted.
TABLE = [
    ("read_file", {"path": "package.json"}, "allow allow allow allow allow"),
    ("grep", {"pattern": "sum", "path": ["src", "tests"]}, "allow allow allow allow allow"),
    ("bash", {"command": "npm test"}, "deny ask ask allow allow"),
    ("edit_file", {"path": "src/sum.ts"}, "deny ask allow allow allow"),
    ("bash", {"command": "rm -rf node_modules"}, "deny deny deny deny deny"),
    ("bash", {"command": "git reset --hard"}, "deny deny deny deny deny"),
]


def decide(
    tool: str, arguments: JsonObject, mode: PermissionMode = PermissionMode.DEFAULT, policy: RulePolicy = POLICY
) -> Decision:
    situation = CallContext(run_id="run_1", mode=mode, workspace="/nowhere/project")
    return policy.evaluate(example_event(tool, arguments, situation))


@pytest.mark.requirement("R213", "R208")
@each(
    ("tool", "arguments", "mode", "expected"),
    [
        (tool, arguments, mode, verdict)
        for tool, arguments, verdicts in TABLE
        for mode, verdict in zip(PermissionMode, verdicts.split(), strict=True)
    ],
)
def test_the_sample_table_of_a_coding_agent(
    tool: str, arguments: JsonObject, mode: PermissionMode, expected: str
) -> None:
    assert decide(tool, arguments, mode).verdict == expected


@pytest.mark.requirement("R213", "R215")
@each("mode", list(PermissionMode))
@each(
    "script",
    [
        "rm -fr node_modules",
        "rm -r -f node_modules",
        "rm --recursive --force node_modules",
        "rm node_modules -rf",
        "/bin/rm -rf node_modules",
        "sudo rm -rf node_modules",
        "env rm -rf node_modules",
        "npm test && rm -rf node_modules",
        "(rm -rf node_modules)",
        "bash -c 'rm -rf node_modules'",
        "r\\m -rf node_modules",
        "$X; rm -rf node_modules",
        "git reset --hard HEAD~1",
        "git -C . reset --hard",
        "git reset HEAD --hard",
        "git reset --har",
        "ls; git reset --hard",
        "timeout 5 git reset --hard",
    ],
)
def test_what_destroys_is_denied_however_it_is_written(script: str, mode: PermissionMode) -> None:
    decision = decide("bash", {"command": script}, mode)

    assert decision.verdict == "deny"
    assert {"keep-files", "keep-changes"} & set(decision.rule_ids)


@pytest.mark.requirement("R213")
def test_the_seat_belt_does_not_annoy() -> None:
    for script in ("rm src/old.ts", "git reset HEAD~1", "git status", "echo 'rm -rf /' is bad"):
        assert decide("bash", {"command": script}, PermissionMode.TRUSTED).verdict == "allow"


@pytest.mark.requirement("R209")
def test_allow_and_deny_have_reason_and_ids_and_ask_has_risk_and_a_rule_that_would_do() -> None:
    allowed = decide("read_file", {"path": "package.json"})
    denied = decide("bash", {"command": "rm -rf node_modules"})
    asked = decide("bash", {"command": "npm test"})

    assert (allowed.reason, allowed.rule_ids) == ("Rule look says allow.", ("look",))
    assert (denied.reason, denied.rule_ids) == ("Deleting folders is not undone.", ("keep-files",))
    assert denied.advice == "Remove single files with rm."
    assert asked.reason == "No rule matches, and its risk is execute."
    assert asked.risk[0] == "execute"
    assert '"words":["npm","test"]}],"workspace":"/nowhere/project"' in asked.suggested_rule


@pytest.mark.requirement("R216")
@each(
    ("script", "fact"),
    [
        ("npm test", "runs project scripts"),
        ("make build", "runs project scripts"),
        ("npm install left-pad", "may run install scripts"),
        ("npm install left-pad", "uses the network"),
        ("jest --coverage", "may write a coverage directory"),
        ("git push --force", "commits on the other side may be lost"),
        ("sudo make install", "runs as another user"),
        ("echo hi > notes.txt", "writes notes.txt"),
        ("ls && git clean -fd", "files that git does not know are lost"),
    ],
)
def test_a_question_says_in_words_what_the_command_risks(script: str, fact: str) -> None:
    decision = decide("bash", {"command": script})

    assert decision.verdict == "ask"
    assert fact in decision.risk
    assert len(set(decision.risk)) == len(decision.risk)


@pytest.mark.requirement("R216")
def test_a_question_by_a_rule_has_the_risks_too_and_only_of_the_parts_that_ask() -> None:
    policy = RulePolicy(
        [Rule(id="push", verdict="ask", command="git push"), Rule(id="t", verdict="allow", command="npm test")]
    )

    decision = decide("bash", {"command": "npm test && git push"}, policy=policy)

    assert (decision.rule_ids, decision.risk) == (("push",), ("execute", "uses the network"))


@pytest.mark.requirement("R209")
def test_a_question_names_the_paths_that_an_approval_is_bound_to(tmp_path: Path) -> None:
    situation = CallContext(run_id="run_1", workspace=str(tmp_path))
    event = example_event("bash", {"command": "python run.py < in.txt > out.txt"}, situation)

    decision = RulePolicy().evaluate(event)

    assert {"run.py", "in.txt", "out.txt"} <= set(decision.paths)
