"""Our policies, and one that is asynchronous, pass the conformance suite."""

from pathlib import Path

import pytest

from interlock import Decision, PolicyEngine, PolicyEvent, Rule, RulePolicy, load_policy
from interlock.testing.conformance import PolicyConformance


class TestRulePolicy(PolicyConformance):
    @pytest.fixture(params=["allow", "ask", "deny"])
    def policy(self, request: pytest.FixtureRequest) -> PolicyEngine:
        return RulePolicy(
            [Rule(id="files", verdict=request.param, path="**"), Rule(id="rm", verdict="ask", command="rm")]
        )


class TestPolicyWithoutRules(PolicyConformance):
    @pytest.fixture
    def policy(self) -> PolicyEngine:
        return RulePolicy()


class TestPolicyFile(PolicyConformance):
    @pytest.fixture
    def policy(self, tmp_path: Path) -> PolicyEngine:
        (tmp_path / "policy.yaml").write_text("version: 1\ndeny: [bash(rm:*)]\nask: [{path: '*.md'}]\nallow: [fetch]\n")
        return load_policy(tmp_path / "policy.yaml")


class AsyncPolicy:
    async def evaluate(self, event: PolicyEvent) -> Decision:
        return RulePolicy().evaluate(event)


class TestAsyncPolicy(PolicyConformance):
    @pytest.fixture
    def policy(self) -> PolicyEngine:
        return AsyncPolicy()
