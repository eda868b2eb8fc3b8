"""Conditions on the run: who, from where, in which mode, until when, and what code or a formula says."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from interlock.domain.decision import Decision, Verdict
from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import ArgumentGlob, CommandPattern, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.interface import PolicyEvent
from tests.each import each


def decide(rule: Rule, now: Callable[[], int] = lambda: 100, **situation: Any) -> Decision:
    event = example_event("bash", {"command": "make"}, CallContext(run_id="run_1", **situation))
    return RulePolicy([rule], now=now).evaluate(event)


@each(("expires_at", "verdict"), [(0, "deny"), (99, "ask"), (100, "ask"), (101, "deny")])
@each("condition", [{}, {"command": "make"}, {"mode": "default"}])
def test_a_rule_ends_when_it_says(expires_at: int, verdict: str, condition: dict[str, Any]) -> None:
    assert decide(Rule(id="r", verdict="deny", expires_at=expires_at, **condition)).verdict == verdict


def test_a_rule_ends_while_the_policy_is_in_use() -> None:
    times = iter([99, 100])
    policy = RulePolicy([Rule(id="r", verdict="allow", expires_at=100)], now=lambda: next(times))
    event = example_event("bash", {"command": "make"})

    assert [policy.evaluate(event).verdict for _ in range(2)] == ["allow", "ask"]


@pytest.mark.parametrize(
    ("pattern", "agents"),
    [
        ("coder", {"coder"}),
        ("co*", {"coder", "copilot"}),
        (["reviewer", "c?der"], {"coder", "reviewer"}),
        ("*", {"coder", "copilot", "reviewer", "Coder", ""}),
        ("", {""}),
    ],
)
def test_agents_are_named_by_pattern(pattern: str | list[str], agents: set[str]) -> None:
    rule = Rule(id="r", verdict="deny", agent=pattern)

    named = {agent for agent in ("coder", "copilot", "reviewer", "Coder", "") if decide(rule, agent=agent).rule_ids}
    assert named == agents


@pytest.mark.parametrize("interactive", [True, False])
def test_a_rule_may_be_for_runs_with_or_without_a_person(interactive: bool) -> None:
    rule = Rule(id="r", verdict="deny", interactive=interactive)

    assert decide(rule, interactive=interactive).verdict == "deny"
    assert decide(rule, interactive=not interactive).verdict == "ask"


def test_a_rule_may_be_for_some_modes() -> None:
    rule = Rule(id="r", verdict="deny", mode=[PermissionMode.TRUSTED, "accept_edits"])

    assert [mode for mode in PermissionMode if decide(rule, mode=mode).rule_ids == ("r",)] == [
        PermissionMode.ACCEPT_EDITS,
        PermissionMode.TRUSTED,
    ]


@pytest.mark.parametrize(
    ("pattern", "sources"),
    [
        ("web", {"web"}),
        ("w*", {"web", "wiki"}),
        (["files", "wik?"], {"files", "wiki"}),
        ("*", {"web", "wiki", "files", ""}),
    ],
)
def test_servers_are_named_by_pattern(pattern: str | list[str], sources: set[str]) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", server=pattern)])
    tools = {source: example_event("t", {}, origin="mcp", source=source) for source in ("web", "wiki", "files", "")}

    assert {source for source, event in tools.items() if policy.evaluate(event).verdict == "deny"} == sources


def _raises(event: PolicyEvent) -> bool:
    raise ValueError(event.tool_name)


def _returns(value: object) -> Callable[[PolicyEvent], bool]:
    return lambda event: cast(bool, value)


@pytest.mark.requirement("D03")
@each("said", list(Verdict))
@each("when", [_raises, _returns(None), _returns(1), _returns("true"), _returns(0)])
def test_a_condition_that_raises_or_is_not_sure_denies(said: Verdict, when: Any) -> None:
    target = "command" if said is Verdict.REQUEST_INPUT else ""

    decision = decide(Rule(id="r", verdict=said, command="make", when=when, target_arg=target))

    assert (decision.verdict, decision.rule_ids, decision.target_arg) == ("deny", ("r",), "")


def test_a_condition_is_asked_once_for_all_parts_and_only_where_the_rest_fits() -> None:
    asked: list[str] = []

    def when(event: PolicyEvent) -> bool:
        asked.append(event.arguments["command"])
        return True

    policy = RulePolicy(
        [Rule(id="r", verdict="deny", command="make", agent="coder", expires_at=100, when=when)], now=int
    )
    coder, other = CallContext(run_id="run_1", agent="coder"), CallContext(run_id="run_1", agent="other")
    for script, situation in (("make a; make b; ls", coder), ("ls", coder), ("make", other)):
        policy.evaluate(example_event("bash", {"command": script}, situation))

    assert asked == ["make a; make b; ls"]


def test_conditions_all_have_to_hold() -> None:
    held: dict[str, Any] = {
        "tools": "b*",
        "risk": "execute",
        "origin": "local",
        "command": "make",
        "arguments": {"command": ArgumentGlob("m*")},
        "agent": "coder",
        "mode": "default",
        "interactive": True,
        "when": _returns(True),
        "expires_at": 101,
    }
    broken: dict[str, Any] = {
        "tools": "c*",
        "risk": "network",
        "origin": "mcp",
        "server": "web",
        "path": "src/**",
        "host": "a.example",
        "command": "rm",
        "arguments": {"command": ArgumentGlob("x*")},
        "agent": "other",
        "mode": "trusted",
        "interactive": False,
        "when": _returns(False),
        "expires_at": 100,
    }

    def verdict(fields: dict[str, Any]) -> str:
        return decide(Rule(id="r", verdict="deny", **fields), agent="coder", interactive=True).verdict

    assert verdict(held) == "deny"
    assert {name: verdict({**held, name: value}) for name, value in broken.items()} == dict.fromkeys(broken, "ask")


@each("verdict", ["allow", "deny"])
@each("field", ["path", "command", "host", "agent", "mode", "server", "tools", "risk"])
def test_a_condition_that_names_nothing_is_refused(field: str, verdict: str) -> None:
    with pytest.raises(ConfigurationError):
        RulePolicy([cast(Any, Rule)(id="r", verdict=verdict, **{field: []})])


@each(
    "fields",
    [
        {"path": ""},
        {"path": "  "},
        {"path": "a\0b"},
        {"path": "x" * 2_001},
        {"path": "[z-a]"},
        {"path": "[]"},
        {"path": "a[b"},
        {"path": "../other/**"},
        {"path": "a/../b"},
        {"path": "src", "access": "execute"},
        {"access": "read"},
        {"host": ""},
        {"host": "https://a.example/"},
        {"host": "a.example:443"},
        {"host": "a.example/x"},
        {"host": "a.*"},
        {"host": "*a.example"},
        {"host": "a b"},
        {"command": ""},
        {"command": "'rm"},
        {"command": [CommandPattern(())]},
        {"command": [CommandPattern(("",))]},
        {"mode": "yolo"},
        {"scope": "ever"},
        {"answer_within_seconds": 0},
        {"answer_within_seconds": float("nan")},
        {"arguments": {"x": ArgumentGlob("x" * 2_001)}},
    ],
)
def test_a_rule_that_could_never_mean_what_it_says_is_refused_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="'r'"):
        RulePolicy([cast(Any, Rule)(id="r", verdict="deny", **fields)])
