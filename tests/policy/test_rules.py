"""What rules in code decide, one case at a time."""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from interlock.domain.decision import ALLOWED_BY_DEFAULT, Decision, Verdict
from interlock.domain.errors import InterlockError
from interlock.domain.tool import CallContext, PermissionMode, ToolDefinition
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule_policy import Rule, RulePolicy
from interlock.policy.interface import PolicyEngine, PolicyEvent
from interlock.registry.decorator import ToolOptions, tool
from tests.each import each


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def handler() -> None: ...


def make_tool(name: str = "bash", **options: Any) -> ToolDefinition:
    return tool(handler, **cast(ToolOptions, {"name": name, "args_model": Anything, **options}))


def make_event(
    definition: ToolDefinition, mode: PermissionMode = PermissionMode.DEFAULT, **arguments: Any
) -> PolicyEvent:
    situation = CallContext(run_id="run_1", mode=mode)
    return PolicyEvent("call_1", definition, definition.args_model.model_validate(arguments), situation)


def verdict(policy: PolicyEngine, event: PolicyEvent) -> str:
    decision = policy.evaluate(event)
    assert isinstance(decision, Decision)
    return decision.verdict


@pytest.mark.requirement("D03")
def test_where_no_rule_matches_the_declared_risk_decides() -> None:
    policy = RulePolicy([Rule(id="other", verdict="deny", tools="other")])

    allowed = msgspec.structs.replace(ALLOWED_BY_DEFAULT, policy_digest=policy.digest)
    assert policy.evaluate(make_event(make_tool())) == allowed
    assert policy.evaluate(make_event(make_tool(risk="read"))) == allowed
    for risk in ("write", "execute", "network", "delegate"):
        decision = policy.evaluate(make_event(make_tool(risk={"read", risk})))
        assert (decision.verdict, decision.risk) == (Verdict.ASK, tuple(sorted(("read", risk))))
        assert decision.reason == f"No rule matches, and its risk is {', '.join(sorted(('read', risk)))}."
        assert (decision.rule_ids, decision.policy_digest) == ((), policy.digest)


@pytest.mark.requirement("D03")
def test_a_policy_may_set_its_own_default() -> None:
    event = make_event(make_tool(risk="read"))

    policy = RulePolicy(default="deny")
    assert policy.evaluate(event) == Decision(
        verdict=Verdict.DENY,
        reason="No rule matches; the policy default is deny.",
        risk=("read",),
        policy_digest=policy.digest,
    )
    assert verdict(RulePolicy(default="ask"), event) == "ask"
    assert verdict(RulePolicy(default="allow"), make_event(make_tool(risk="execute"))) == "allow"


@pytest.mark.requirement("R209")
def test_a_decision_carries_everything_its_rule_says() -> None:
    policy = RulePolicy(
        [
            Rule(
                id="shell",
                verdict="ask",
                tools="bash",
                reason="Shell commands are looked at.",
                layer="user rule",
                prompt="Run it?",
                suggested_rule="allow bash 'npm test'",
                advice="Use read_file to read.",
            )
        ]
    )

    assert policy.evaluate(make_event(make_tool(risk="execute"))) == Decision(
        verdict=Verdict.ASK,
        reason="Shell commands are looked at.",
        rule_ids=("shell",),
        layer="user rule",
        risk=("execute",),
        prompt="Run it?",
        suggested_rule="allow bash 'npm test'",
        advice="Use read_file to read.",
        policy_digest=policy.digest,
        scope="run",
    )


@pytest.mark.requirement("R054")
@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("allow", Verdict.ALLOW),
        ("deny", Verdict.DENY),
        ("ask", Verdict.ASK),
        ("defer", Verdict.ASK),
        ("request_approval", Verdict.ASK),
        ("request_input", Verdict.REQUEST_INPUT),
        ("request_user_input", Verdict.REQUEST_INPUT),
    ],
)
def test_every_word_for_a_verdict_is_understood(word: str, meaning: Verdict) -> None:
    target = "path" if meaning is Verdict.REQUEST_INPUT else ""
    policy = RulePolicy([Rule(id="a", verdict=word, target_arg=target)])

    decision = policy.evaluate(make_event(make_tool()))

    assert (decision.verdict, decision.target_arg) == (meaning, target)
    assert decision.reason == f"Rule a says {meaning}."


@pytest.mark.requirement("D04", "R215")
def test_deny_beats_any_allow_whatever_its_order_source_or_detail() -> None:
    deny = Rule(id="b", verdict="deny", tools="*", layer="user rule")
    allow = Rule(id="a", verdict="allow", tools="bash", layer="enterprise policy")
    exact = Rule(id="c", verdict="allow", tools="bash", risk="execute", when=lambda event: True)
    event = make_event(make_tool(risk="execute"))

    for rules in ([deny, allow, exact], [exact, allow, deny]):
        decision = RulePolicy(rules).evaluate(event)
        assert (decision.verdict, decision.rule_ids, decision.layer) == ("deny", ("b",), "user rule")


def test_all_rules_of_the_winning_verdict_are_named() -> None:
    policy = RulePolicy(
        [
            Rule(id="z", verdict="deny", reason="Never.", advice="Stop."),
            Rule(id="m", verdict="deny", reason="Not now.", layer="user rule", when=lambda event: True),
            Rule(id="a", verdict="ask", reason="Maybe."),
        ]
    )

    assert policy.evaluate(make_event(make_tool())) == Decision(
        verdict=Verdict.DENY,
        reason="Not now. Never.",
        rule_ids=("m", "z"),
        layer="user rule, project rule",
        advice="Stop.",
        policy_digest=policy.digest,
    )


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", {"read_file", "read_dir", "bash", "mcp__web__get"}),
        ("read_*", {"read_file", "read_dir"}),
        ("mcp__*__get", {"mcp__web__get"}),
        ("[rb]*", {"read_file", "read_dir", "bash"}),
        ("BASH", set[str]()),
        (["bash", "read_fil?"], {"bash", "read_file"}),
    ],
)
def test_tools_are_named_by_pattern(pattern: str | list[str], names: set[str]) -> None:
    policy = RulePolicy([Rule(id="a", verdict="deny", tools=pattern)])
    tools = ["read_file", "read_dir", "bash", "mcp__web__get"]

    assert {name for name in tools if verdict(policy, make_event(make_tool(name))) == "deny"} == names


def test_a_rule_may_be_about_an_origin() -> None:
    policy = RulePolicy([Rule(id="a", verdict="deny", origin="mcp")])

    assert verdict(policy, make_event(make_tool(origin="mcp"))) == "deny"
    assert verdict(policy, make_event(make_tool(origin="local"))) == "allow"


def test_to_refuse_a_risk_one_is_enough_and_to_allow_it_there_must_be_no_other() -> None:
    deny = RulePolicy([Rule(id="a", verdict="deny", risk={"execute", "network"})], default="ask")
    allow = RulePolicy([Rule(id="a", verdict="allow", risk={"read", "network"})], default="ask")
    both = make_event(make_tool(risk={"read", "execute"}))

    assert [verdict(deny, both), verdict(allow, both)] == ["deny", "ask"]
    assert verdict(allow, make_event(make_tool(risk="read"))) == "allow"
    assert verdict(allow, make_event(make_tool())) == "ask"
    assert verdict(deny, make_event(make_tool(risk="read"))) == "ask"


def test_a_tool_that_is_replaced_under_its_name_is_judged_anew() -> None:
    policy = RulePolicy([Rule(id="a", verdict="deny", risk="execute")])

    assert verdict(policy, make_event(make_tool("job", risk="read"))) == "allow"
    assert verdict(policy, make_event(make_tool("job", risk="execute"))) == "deny"


def _raises(event: PolicyEvent) -> bool:
    raise LookupError(event.arguments["secret"])


def _returns(value: object) -> Callable[[PolicyEvent], bool]:
    return lambda event: cast(bool, value)


@pytest.mark.requirement("D03")
@each("said", ["allow", "ask", "deny", "request_input"])
@each(
    ("condition", "fault"),
    [
        (_raises, "raised LookupError"),
        (_returns(None), "returned a NoneType"),
        (_returns("yes"), "returned a str"),
        (_returns(1), "returned a int"),
    ],
)
def test_a_condition_that_fails_denies_in_the_name_of_its_rule(
    condition: Callable[[PolicyEvent], bool], fault: str, said: str
) -> None:
    target = "path" if said == "request_input" else ""
    policy = RulePolicy([Rule(id="a", verdict=said, when=condition, target_arg=target)])

    assert policy.evaluate(make_event(make_tool(), secret="hunter2")) == Decision(
        verdict=Verdict.DENY,
        reason=f"The condition of rule a {fault}, so the call is refused.",
        rule_ids=("a",),
        layer="project rule",
        policy_digest=policy.digest,
    )


def test_rules_that_want_different_arguments_from_a_person_refuse() -> None:
    path = Rule(id="a", verdict="request_input", target_arg="path")
    mode = Rule(id="b", verdict="request_input", target_arg="mode")
    again = Rule(id="c", verdict="request_input", target_arg="path")
    event = make_event(make_tool())

    refused = RulePolicy([path, mode]).evaluate(event)
    asked = RulePolicy([path, again]).evaluate(event)

    assert (refused.verdict, refused.rule_ids, refused.target_arg) == ("deny", ("a", "b"), "")
    assert refused.reason == "The rules want different arguments from a person: mode, path."
    assert (asked.verdict, asked.rule_ids, asked.target_arg) == ("request_input", ("a", "c"), "path")


def _says(*beginnings: str) -> Callable[[PolicyEvent], bool]:
    return lambda event: event.arguments.get("command", "").startswith(beginnings)


@pytest.mark.requirement("R213")
def test_the_sample_table_of_a_coding_agent() -> None:
    def trusted(event: PolicyEvent) -> bool:
        return event.situation.mode is PermissionMode.TRUSTED and event.arguments["command"] == "npm test"

    policy = RulePolicy(
        [
            Rule(id="look", verdict="allow", tools=["read_file", "grep"]),
            Rule(id="tests", verdict="allow", tools="bash", when=trusted),
            Rule(id="lossy", verdict="deny", tools="bash", when=_says("git reset --hard", "rm -rf")),
        ]
    )
    bash = make_tool("bash", risk={"read", "execute"})

    assert verdict(policy, make_event(make_tool("read_file", risk="read"), path="a")) == "allow"
    assert verdict(policy, make_event(make_tool("grep", risk="read"), pattern="a")) == "allow"
    assert verdict(policy, make_event(bash, command="npm test")) == "ask"
    assert verdict(policy, make_event(bash, PermissionMode.TRUSTED, command="npm test")) == "allow"
    assert verdict(policy, make_event(make_tool("edit_file", risk="write"), path="a")) == "ask"
    assert verdict(policy, make_event(bash, command="rm -rf node_modules")) == "deny"
    assert verdict(policy, make_event(bash, PermissionMode.TRUSTED, command="git reset --hard")) == "deny"


def test_without_conditions_the_same_decision_object_is_returned() -> None:
    policy = RulePolicy([Rule(id="a", verdict="ask"), Rule(id="b", verdict="ask")])
    definition = make_tool(risk="execute")

    assert policy.evaluate(make_event(definition, x=1)) is policy.evaluate(make_event(definition, x=2))


def test_the_digest_covers_everything_that_is_declared() -> None:
    def condition(event: PolicyEvent) -> bool:
        return True

    rule: dict[str, Any] = {"id": "a", "verdict": "ask"}
    others: list[dict[str, Any]] = [
        {"id": "b"},
        {"verdict": "deny"},
        {"tools": "bash"},
        {"risk": "read"},
        {"origin": "mcp"},
        {"when": condition},
        {"reason": "Because."},
        {"layer": "user rule"},
        {"prompt": "Sure?"},
        {"suggested_rule": "allow bash"},
        {"advice": "Read."},
        {"verdict": "request_input", "target_arg": "path"},
    ]

    digests = [RulePolicy([Rule(**{**rule, **other})]).digest for other in [{}, *others]]
    digests += [RulePolicy().digest, RulePolicy(default="deny").digest]

    assert len(set(digests)) == len(digests)
    assert RulePolicy([Rule(**rule)]).digest == digests[0]


async def _async_condition(event: PolicyEvent) -> bool:
    return True


@each(
    ("fields", "message"),
    [
        ({"verdict": "perhaps"}, "the verdict is one of allow, ask, request_input, deny, defer"),
        ({"verdict": "request_input"}, "request_input needs a target_arg"),
        ({"target_arg": "path"}, "request_input needs a target_arg, and nothing else has one"),
        ({"tools": []}, "no tool can be called nothing"),
        ({"tools": "^bash$"}, "no tool can be called ^bash$"),
        ({"tools": ["bash", "read file"]}, "no tool can be called bash, read file"),
        ({"risk": "rm"}, "'rm' is not a valid Risk; a risk is one of read"),
        ({"risk": []}, "no tool has a risk out of none"),
        ({"origin": "web"}, "the origin is one of local, mcp, skill, extension"),
        ({"when": _async_condition}, "when must be a plain function"),
        ({"when": True}, "when must be a plain function"),
        ({"id": ""}, "an empty one"),
    ],
)
def test_a_rule_that_could_not_do_what_it_says_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InterlockError, match=re.escape(message)):
        RulePolicy([cast(Any, Rule)(**{"id": "a", "verdict": "deny", **fields})])


def test_two_rules_of_one_id_are_refused() -> None:
    with pytest.raises(InterlockError, match="id of its own; not so: a"):
        RulePolicy([Rule(id="a", verdict="deny"), Rule(id="a", verdict="allow")])


def test_an_unknown_default_is_refused() -> None:
    with pytest.raises(InterlockError, match="not 'perhaps'"):
        RulePolicy(default=cast(Any, "perhaps"))


def test_a_rule_for_a_workspace_holds_only_there() -> None:
    policy = RulePolicy([Rule(id="here", verdict="allow", tools="bash", workspace="/work/one")])

    verdicts = [
        policy.evaluate(example_event("bash", {"command": "make"}, CallContext(run_id="r", workspace=folder))).verdict
        for folder in ("/work/one", "/work/one/inside", "/work/two", "")
    ]

    assert verdicts == [Verdict.ALLOW, Verdict.ASK, Verdict.ASK, Verdict.ASK]


@pytest.mark.parametrize("workspace", ["work", "~/work", "", ()])
def test_a_workspace_is_an_absolute_folder(workspace: Any) -> None:
    with pytest.raises(InterlockError, match="workspace"):
        RulePolicy([Rule(id="x", verdict="allow", workspace=workspace)])
