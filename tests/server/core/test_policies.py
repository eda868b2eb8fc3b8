"""What people are shown about policies: only those who may look, every rule, why, and what another one would say."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import MemoryLog, PolicyFiles, Rule, RulePolicy, tool
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import LogEntry
from interlock.oauth.interface import NoConsents
from interlock.policy import EgressRule
from interlock.policy.analysis.suggestions import AskingRule
from interlock.policy.interface import PolicyEvent
from interlock.server.core import policy_service as policies_module
from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.errors import ForbiddenError, InvalidRequestError, NotFoundError, UnavailableError
from interlock.server.core.identity.guard import AccessGuard
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.policy_service import (
    MAX_ARGUMENTS_CHARS,
    MAX_POLICY_CHARS,
    SUGGESTION_RUNS,
    ExampleCall,
    PolicyService,
    SuggestionReport,
)
from interlock.server.core.runs.agent_runners import AgentRunners
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.runs.support import agent_of, calls
from tests.server.core.people import opened

OPERATOR = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)), agents=frozenset(("shop",)))
STRANGER = Principal(name="user:sam", kind="person", roles=frozenset((Role.OPERATOR,)), agents=frozenset(("other",)))
AGENT = Principal(name="key:bot", kind="key", roles=frozenset((Role.AGENT,)))
RULES = RulePolicy(
    [
        Rule(id="no-refunds", verdict="deny", tools="refund", reason="Refunds are made by people.", layer="user rule"),
        Rule(id="look", verdict="allow", tools="look_up", layer="user rule"),
    ],
    egress=[EgressRule(id="packages", verdict="allow", hosts="pypi.org", ports=443, layer="user rule")],
)


@tool(risk="read")
def look_up(order: str, limit: int = 3) -> str:
    return f"{order} {limit}"


@tool(risk="write")
def refund(order: str) -> str:
    return order


@asynccontextmanager
async def desk(
    tmp_path: Path, policy: Any = RULES, clock: Callable[[], float] = lambda: 0.0
) -> AsyncGenerator[tuple[PolicyService, AgentRunners]]:
    turn = calls(("c1", "look_up", {"order": "A1"}), ("c2", "refund", {"order": "A1"}))
    agent = agent_of(turn, "Done.", tools=[look_up, refund], name="shop", policy=policy)
    log = MemoryLog()
    index = RunIndex(tmp_path / "index.db", log)
    fleet = AgentRunners([ServedAgent(agent=agent)], log, MemoryArtifacts(), NoConsents())
    try:
        with opened() as database:
            yield PolicyService(fleet, index, AccessGuard(index, AuditLog(database), "high_risk"), clock), fleet
    finally:
        await fleet.close()
        await index.close()


async def run_once(fleet: AgentRunners) -> str:
    handle = await fleet.by_agent["shop"].start("Look.")
    await handle.result()
    return handle.run_id


async def test_rules_are_listed_with_what_they_are_about_and_whose_they_are(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        shown = await policies.show(OPERATOR, "shop")
    assert (shown.kind, shown.default, shown.digest) == ("code", "risk", RULES.digest)
    assert [(rule.id, rule.layer, rule.verdict, rule.description) for rule in shown.egress] == [
        ("packages", "user rule", "allow", "hosts pypi.org, ports 443")
    ]
    assert [(rule.id, rule.layer, rule.verdict, rule.description) for rule in shown.rules] == [
        ("look", "user rule", "allow", "tools look_up"),
        ("no-refunds", "user rule", "deny", "tools refund"),
    ]
    assert {"look_up", "refund"} <= set(shown.tools)


async def test_files_that_are_not_in_order_are_shown_with_their_problems(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrules:\n  - id: a\n    decision: perhaps\n")
    async with desk(tmp_path, PolicyFiles(user=file)) as (policies, _):
        shown = await policies.show(OPERATOR, "shop")
    assert shown.kind == "files"
    assert shown.files == (str(file),)
    assert shown.problems
    assert shown.problems[0].startswith(f"{file}:")


@pytest.mark.parametrize("who", [STRANGER, AGENT], ids=["other agents' operator", "agent"])
@pytest.mark.parametrize("what", ["show", "explain", "backtest", "suggest"])
async def test_who_does_not_own_the_agent_sees_nothing_of_its_policy(tmp_path: Path, who: Principal, what: str) -> None:
    async with desk(tmp_path) as (policies, _):
        asked: dict[str, Callable[[], Awaitable[Any]]] = {
            "show": lambda: policies.show(who, "shop"),
            "explain": lambda: policies.explain(who, "shop", ExampleCall(tool="refund", arguments={"order": "1"})),
            "backtest": lambda: policies.backtest(who, "shop"),
            "suggest": lambda: policies.suggest(who, "shop"),
        }
        with pytest.raises(ForbiddenError):
            await asked[what]()


@pytest.mark.parametrize(
    ("who", "rule", "text"),
    [
        (OPERATOR, "{decision: allow, tools: look_up}", "It would have allowed 1 of the last 2 recorded calls."),
        (OPERATOR, "{decision: allow, tools: x, workspace: /w}", "Only in /w. It would have allowed 0 of the last 2 "),
        (OPERATOR, "permit(principal, action)", ""),
        (STRANGER, "{decision: allow, tools: look_up}", ""),
    ],
)
async def test_a_rule_is_previewed_for_those_who_may_see(tmp_path: Path, who: Principal, rule: str, text: str) -> None:
    async with desk(tmp_path) as (policies, fleet):
        await run_once(fleet)
        shown = await policies.preview_rule(who, "shop", rule)
        assert await policies.preview_rule(who, "other", rule) == ""

    assert shown.startswith(text)
    assert bool(shown) == bool(text)


async def test_an_agent_that_is_not_here_is_unknown(tmp_path: Path) -> None:
    admin = Principal(name="user:ada", kind="person", roles=frozenset((Role.ADMIN,)))
    async with desk(tmp_path) as (policies, _):
        with pytest.raises(NotFoundError, match="Unknown agent 'nobody'"):
            await policies.show(admin, "nobody")


async def test_a_call_is_explained_as_the_gate_decides_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        explained = await policies.explain(OPERATOR, "shop", ExampleCall(tool="refund", arguments={"order": "A1"}))
    assert explained.decision.verdict is Verdict.DENY
    assert explained.decision.rule_ids == ("no-refunds",)
    assert explained.known_tool
    assert explained.explanation is not None
    assert [said.rule_ids for part in explained.explanation.parts for said in part.said] == [("no-refunds",)]


async def test_arguments_that_do_not_fit_the_tool_name_the_field(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        with pytest.raises(InvalidRequestError, match="order"):
            await policies.explain(OPERATOR, "shop", ExampleCall(tool="refund", arguments={"other": 1}))
        big = ExampleCall(tool="refund", arguments={"order": "x" * MAX_ARGUMENTS_CHARS})
        with pytest.raises(InvalidRequestError, match="at most"):
            await policies.explain(OPERATOR, "shop", big)


async def test_a_tool_that_nobody_knows_is_explained_by_its_name_and_said_to_be_unknown(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        explained = await policies.explain(OPERATOR, "shop", ExampleCall(tool="no_such", arguments={}))
    assert (explained.known_tool, explained.decision.layer) == (False, "default")


async def test_an_engine_without_rules_still_says_what_it_decides(tmp_path: Path) -> None:
    class Mine:
        async def evaluate(self, event: PolicyEvent) -> Decision:
            if event.arguments["order"] == "boom":
                raise RuntimeError
            return Decision(verdict=Verdict.DENY, reason="Not today.")

    async with desk(tmp_path, Mine()) as (policies, _):
        assert (await policies.show(OPERATOR, "shop")).kind == "custom"
        explained = await policies.explain(OPERATOR, "shop", ExampleCall(tool="refund", arguments={"order": "1"}))
        assert (explained.decision.reason, explained.explanation) == ("Not today.", None)
        with pytest.raises(InvalidRequestError, match="gave no answer"):
            await policies.explain(OPERATOR, "shop", ExampleCall(tool="refund", arguments={"order": "boom"}))
        with pytest.raises(InvalidRequestError, match="paste one"):
            await policies.backtest(OPERATOR, "shop")


async def test_a_pasted_policy_is_tried_on_recorded_calls_and_changes_are_listed(tmp_path: Path) -> None:
    text = "version: 1\nrules:\n  - id: ask-first\n    decision: ask\n    tools: [look_up]\n"
    async with desk(tmp_path) as (policies, fleet):
        run_id = await run_once(fleet)
        tried = await policies.backtest(OPERATOR, "shop", text)
    assert (tried.runs, tried.calls, tried.left_out, tried.stopped) == (1, 2, (), "")
    assert {(flip.run_id, flip.tool, flip.was, flip.now) for flip in tried.result.flips} == {
        (run_id, "look_up", Verdict.ALLOW, Verdict.ASK),
        (run_id, "refund", Verdict.DENY, Verdict.ASK),
    }


async def test_the_policy_in_force_changes_nothing_about_what_it_decided(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, fleet):
        await run_once(fleet)
        tried = await policies.backtest(OPERATOR, "shop")
    assert tried.result.flips == ()
    assert tried.result.unchanged == 2


async def test_a_run_that_was_changed_is_left_out_and_named(tmp_path: Path) -> None:
    class Edited(MemoryLog):
        async def read(self, run_id: str, after_seq: int = -1, limit: int | None = None) -> list[LogEntry]:
            entries = await super().read(run_id, after_seq, limit)
            return [LogEntry(each.run_id, each.seq, each.body + b" ", each.hash) for each in entries]

    async with desk(tmp_path) as (policies, fleet):
        run_id = await run_once(fleet)
        fleet.log.__class__ = Edited
        tried = await policies.backtest(OPERATOR, "shop")
        fleet.log.__class__ = MemoryLog
    assert tried.runs == 0
    assert tried.left_out[0].startswith(f"{run_id}: ")


async def test_a_backtest_is_bounded_by_runs_and_by_time_and_says_so(tmp_path: Path) -> None:
    ticks = iter([0.0, *[0.0] * 3, *[policies_module.MAX_SECONDS + 1] * 100])
    async with desk(tmp_path, clock=lambda: next(ticks)) as (policies, fleet):
        for _ in range(3):
            await run_once(fleet)
        late = await policies.backtest(OPERATOR, "shop")
    assert late.stopped == "time"
    assert late.calls < 6
    (tmp_path / "second").mkdir()
    async with desk(tmp_path / "second") as (policies, fleet):
        for _ in range(3):
            await run_once(fleet)
        few = await policies.backtest(OPERATOR, "shop", runs=2)
    assert (few.runs, few.stopped) == (2, "runs")


async def test_a_second_backtest_at_the_same_time_is_told_to_wait(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        async with policies._backtest_lock:  # pyright: ignore[reportPrivateUsage] - as if one were under way
            with pytest.raises(UnavailableError):
                await policies.backtest(OPERATOR, "shop")
            with pytest.raises(UnavailableError):
                await policies.suggest(OPERATOR, "shop")
        assert (await policies.backtest(OPERATOR, "shop")).calls == 0
        assert (await policies.suggest(OPERATOR, "shop")).calls == 0


ASKS_FOR_LOOKS = RulePolicy([Rule(id="looks", verdict="ask", tools="look_up")])


async def run_answered(fleet: AgentRunners, look_up: bool, refund: bool) -> None:
    """Run once. A person answers both questions."""
    said = {"look_up": look_up, "refund": refund}
    handle = await fleet.by_agent["shop"].start("Look.")
    for each in (await handle.result()).questions:
        await handle.decide(each.action_id, approved=said[each.tool_name], payload_hash=each.payload_hash)
    await handle.wait_until_finished()


async def test_what_people_keep_approving_is_suggested(tmp_path: Path) -> None:
    async with desk(tmp_path, ASKS_FOR_LOOKS) as (policies, fleet):
        for _ in range(3):
            await run_answered(fleet, look_up=True, refund=True)
        found = await policies.suggest(OPERATOR, "shop")
        none = await policies.suggest(OPERATOR, "shop", min_count=4)

    (suggestion,) = found.suggestions
    assert (suggestion.rule["tools"], suggestion.covers, suggestion.out_of) == ("refund", 3, 6)
    asking = (AskingRule(rule_id="looks", asked=3, approved=3, rejected=0),)
    assert found == SuggestionReport(suggestions=(suggestion,), asking_rules=asking, runs=3, calls=6)
    assert none == SuggestionReport(suggestions=(), asking_rules=asking, runs=3, calls=6)


async def test_what_a_person_rejected_is_not_suggested(tmp_path: Path) -> None:
    async with desk(tmp_path, ASKS_FOR_LOOKS) as (policies, fleet):
        for refund in (True, True, True, False):
            await run_answered(fleet, look_up=False, refund=refund)
        found = await policies.suggest(OPERATOR, "shop")
    asking = (AskingRule(rule_id="looks", asked=4, approved=0, rejected=4),)
    assert found == SuggestionReport(suggestions=(), asking_rules=asking, runs=4, calls=8)


async def test_suggestions_stop_when_time_is_over(tmp_path: Path) -> None:
    ticks = iter([*[0.0] * 5, *[60.0] * 100])
    async with desk(tmp_path, ASKS_FOR_LOOKS, clock=lambda: next(ticks)) as (policies, fleet):
        for _ in range(3):
            await run_answered(fleet, look_up=True, refund=True)
        found = await policies.suggest(OPERATOR, "shop")
    assert (found.suggestions, found.runs, found.calls, found.stopped) == ((), 3, 1, "time")


async def test_suggestions_are_bounded_by_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SUGGESTION_RUNS <= policies_module.MAX_RUNS
    monkeypatch.setattr(policies_module, "SUGGESTION_RUNS", 2)
    async with desk(tmp_path, ASKS_FOR_LOOKS) as (policies, fleet):
        for _ in range(3):
            await run_answered(fleet, look_up=True, refund=True)
        found = await policies.suggest(OPERATOR, "shop")
    assert (found.suggestions, found.runs, found.stopped) == ((), 2, "runs")


async def test_a_policy_that_is_wrong_is_refused_with_its_lines(tmp_path: Path) -> None:
    async with desk(tmp_path) as (policies, _):
        with pytest.raises(InvalidRequestError, match=r"policy:4: "):
            await policies.backtest(OPERATOR, "shop", "version: 1\nrules:\n  - id: a\n    decision: perhaps\n")
        with pytest.raises(InvalidRequestError, match="at most"):
            await policies.backtest(OPERATOR, "shop", "#" * (MAX_POLICY_CHARS + 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec=None), max_size=60))
async def test_whatever_is_pasted_is_tried_or_refused_in_words(tmp_path: Path, text: str) -> None:
    async with desk(tmp_path) as (policies, _):
        with suppress(InvalidRequestError):
            await policies.backtest(OPERATOR, "shop", text)
