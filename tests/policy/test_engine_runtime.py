"""The engine in a run: what the log records of its decisions, and what a model is told when it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock import BatchResult, CallbackInteractionProvider, Question, Rule, RulePolicy, ToolRuntime, tool
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import ApprovalRequested, PolicyEvaluated
from tests.support import call, facts

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(risk="execute", resources={"command": "command"})
async def bash(command: str) -> str:
    ran.append(command)
    return "done"


@tool(risk="read", resources={"path": "path"})
async def read_file(path: str) -> str:
    ran.append(path)
    return "text"


@tool(risk="network", origin="mcp", source="web", resources={"pages.url": "host"})
async def fetch(pages: list[dict[str, str]]) -> str:
    ran.append("fetched")
    return "page"


TOOLS = [bash, read_file, fetch]
POLICY = RulePolicy(
    [
        Rule(
            id="secrets",
            verdict="deny",
            path="secrets/**",
            reason="Keys stay here.",
            layer="user rule",
            advice="Ask Ada.",
        ),
        Rule(id="evil", verdict="deny", host="*.evil.example", layer="enterprise policy"),
        Rule(id="push", verdict="ask", command="git push", reason="Pushes are looked at."),
    ]
)


async def judged(runtime: ToolRuntime) -> list[Decision]:
    return [fact.decision for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]


def told(result: BatchResult) -> dict[str, Any]:
    return json.loads(result.messages[0]["content"])


@pytest.mark.requirement("D10", "R211", "R212")
@pytest.mark.parametrize(
    ("name", "arguments", "rule", "layer"),
    [
        ("read_file", {"path": "./secrets/key"}, "secrets", "user rule"),
        ("bash", {"command": "ls && cat 'secrets'/key"}, "secrets", "user rule"),
        ("bash", {"command": "echo $X > secrets/key"}, "secrets", "user rule"),
        ("bash", {"command": "curl https://a.evil.example"}, "evil", "enterprise policy"),
        ("fetch", {"pages": [{"url": "docs.example"}, {"url": "evil.example"}]}, "evil", "enterprise policy"),
    ],
)
async def test_a_refusal_reaches_model_and_log_with_rule_layer_and_digest(
    name: str, arguments: dict[str, Any], rule: str, layer: str, tmp_path: Path
) -> None:
    async with ToolRuntime(tools=TOOLS, policy=POLICY, workspace=tmp_path) as runtime:
        result = await runtime.execute([call("c1", name, **arguments)])
        [decision] = await judged(runtime)

    assert (decision.verdict, decision.rule_ids, decision.layer) == ("deny", (rule,), layer)
    assert decision.policy_digest == POLICY.digest
    said = told(result)
    assert (said["error"], said["code"], said["sideEffects"]) == ("Denied by policy", "policy_denied", "none")
    assert (said["ruleIds"], said["layer"], said["reason"]) == ([rule], layer, decision.reason)
    assert "Nothing was executed." in said["message"]
    assert said.get("advice", "") == ("Ask Ada." if rule == "secrets" else "")
    assert ran == []


@pytest.mark.requirement("R211", "R212")
async def test_a_refusal_by_the_mode_names_mode_and_policy(tmp_path: Path) -> None:
    async with ToolRuntime(tools=TOOLS, policy=POLICY, workspace=tmp_path, mode="read_only") as runtime:
        result = await runtime.execute([call("c1", "bash", command="npm test")])
        [decision] = await judged(runtime)
        read = await runtime.execute([call("c2", "bash", command="ls")])

    assert (told(result)["layer"], told(result)["ruleIds"]) == ("permission mode", ["mode:read_only"])
    assert decision.policy_digest == POLICY.digest
    assert read.observations[0].ok
    assert ran == ["ls"]


@pytest.mark.requirement("R212", "R216")
async def test_a_question_and_its_decision_have_the_risks_in_words(tmp_path: Path) -> None:
    asked: list[Question] = []
    interaction = CallbackInteractionProvider(lambda question: asked.append(question) or False)
    async with ToolRuntime(tools=TOOLS, policy=POLICY, workspace=tmp_path, interaction=interaction) as runtime:
        await runtime.execute([call("c1", "bash", command="make && git push --force")])
        [decision] = await judged(runtime)
        [requested] = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalRequested)]

    assert (decision.verdict, decision.rule_ids, decision.policy_digest) == ("ask", ("push",), POLICY.digest)
    assert {"execute", "runs project scripts", "uses the network", "commits on the other side may be lost"} <= set(
        decision.risk
    )
    assert set(decision.risk) <= set(requested.question.risk)
    assert [question.rule_ids for question in asked] == [("push",)]
    assert ran == []


@pytest.mark.requirement("R212")
async def test_an_allowed_call_is_recorded_with_what_allowed_it(tmp_path: Path) -> None:
    async with ToolRuntime(tools=TOOLS, policy=POLICY, workspace=tmp_path) as runtime:
        await runtime.execute([call("c1", "bash", command="ls")])
        await runtime.execute([call("c2", "read_file", path="src/a.py")])
        decisions = await judged(runtime)

    assert [(each.verdict, each.layer, each.policy_digest) for each in decisions] == [
        ("allow", "default", POLICY.digest)
    ] * 2
    assert ran == ["ls", "src/a.py"]


@pytest.mark.requirement("R210", "R215")
async def test_no_opinion_of_a_tool_gets_past_a_deny_by_path(tmp_path: Path) -> None:
    @tool(
        resources={"path": "path"},
        authorize=lambda _arguments, _situation: Decision(verdict=Verdict.ALLOW, reason="Mine."),
    )
    async def peek(path: str) -> None:
        ran.append(path)

    async with ToolRuntime(tools=[peek], policy=POLICY, workspace=tmp_path) as runtime:
        result = await runtime.execute([call("c1", "peek", path="secrets/key")])

    assert result.observations[0].code == "policy_denied"
    assert ran == []
