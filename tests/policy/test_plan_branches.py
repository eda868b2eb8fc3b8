"""What a policy works out before it sees the arguments must not decide what only the arguments can."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, PermissionMode, ResourceKind
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import ArgumentIs, ResourceDeclaration, Rule
from interlock.policy.engine.rule_policy import RulePolicy

WORKSPACE = "/nowhere/project"
RUN_IN: dict[str, ResourceKind] = {"command": "command", "cwd": "path"}


def decide(
    policy: RulePolicy, tool: str, mode: PermissionMode = PermissionMode.DEFAULT, agent: str = "", **options: Any
) -> Decision:
    declared = {key: options.pop(key) for key in ("risk", "resources") if key in options}
    situation = CallContext(run_id="run_1", workspace=WORKSPACE, mode=mode, agent=agent)
    return policy.evaluate(example_event(tool, options, situation, **declared))


def test_a_refusal_of_an_argument_holds_beside_a_rule_that_looks_at_no_argument() -> None:
    rules = [
        Rule(id="all", verdict="deny", arguments={"target": ArgumentIs("prod")}),
        Rule(id="reviewer", verdict="ask", agent="reviewer"),
    ]

    assert decide(RulePolicy(rules), "deploy", target="prod").verdict == "deny"
    assert decide(RulePolicy(rules), "deploy", target="test").verdict == "allow"


def test_only_a_rule_about_paths_commands_or_hosts_raises_a_doubt() -> None:
    rules = [Rule(id="person", verdict="ask", tools="bash", agent="coder", reason="Coders ask.")]
    decision = decide(RulePolicy(rules), "bash", agent="coder", command="$X")

    assert decision.rule_ids == ("person",)
    assert "cannot be shown" not in decision.reason


def test_a_rule_that_allows_raises_no_doubt() -> None:
    rules = [Rule(id="ls", verdict="allow", command="ls")]

    assert decide(RulePolicy(rules), "bash", PermissionMode.TRUSTED, command="$X").verdict == "allow"


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_a_doubt_names_five_rules_and_counts_the_others(count: int, more: str) -> None:
    rules = [Rule(id=f"rule-{number}", verdict="deny", command=f"program-{number}") for number in range(count)]
    decision = decide(RulePolicy(rules), "bash", command="$X")
    named = [f"rule-{number}" for number in range(min(count, 5))]

    assert f"not what {', '.join(named)}{more} is about" in decision.reason
    assert (decision.verdict, decision.rule_ids) == ("ask", tuple(named))


def test_a_doubt_names_the_layers_of_all_its_rules() -> None:
    rules = [
        Rule(id="a", verdict="deny", command="rm", layer="user rule"),
        Rule(id="b", verdict="ask", command="mv", layer="project rule"),
        Rule(id="c", verdict="ask", command="cp", layer="user rule"),
    ]

    assert decide(RulePolicy(rules), "bash", command="$X").layer.endswith("user rule, project rule")


@pytest.mark.parametrize(("command", "verdict"), [("ls", "allow"), ("rm x", "deny")])
@pytest.mark.parametrize("resources", [{"command": "command"}, RUN_IN])
def test_in_read_only_mode_a_command_that_reads_is_told_from_one_that_does_not(
    resources: dict[str, ResourceKind], command: str, verdict: str
) -> None:
    call: dict[str, Any] = {"risk": ("execute",), "resources": resources, "command": command}
    if "cwd" in resources:
        call["cwd"] = "src"

    assert decide(RulePolicy(), "run_in", PermissionMode.READ_ONLY, **call).verdict == verdict
    assert decide(RulePolicy(default="allow"), "run_in", PermissionMode.READ_ONLY, **call).verdict == verdict


@pytest.mark.parametrize(("command", "verdict"), [("ls", "allow"), ("rm x", "deny")])
def test_in_read_only_mode_an_allow_of_a_tool_is_none_of_what_changes_something(command: str, verdict: str) -> None:
    policy = RulePolicy([Rule(id="bash", verdict="allow", tools="bash")])

    assert decide(policy, "bash", PermissionMode.READ_ONLY, command=command).verdict == verdict
    assert decide(policy, "bash", command=command).verdict == "allow"


def test_an_edit_that_the_mode_accepts_is_accepted_in_its_name_also_where_the_policy_allows_all() -> None:
    decision = decide(RulePolicy(default="allow"), "edit_file", PermissionMode.ACCEPT_EDITS, path="src/a.py")

    assert (decision.verdict, decision.rule_ids) == ("allow", ("mode:accept_edits",))


@pytest.mark.parametrize("path", ["src/a.py", "src/b.py"])
def test_a_question_about_every_call_of_a_tool_names_the_paths_of_this_one(path: str) -> None:
    policy = RulePolicy([Rule(id="edits", verdict="ask", tools="edit_file")])
    decision = decide(policy, "edit_file", path=path)

    assert (decision.verdict, decision.paths) == ("ask", (path,))


def test_a_question_of_no_rule_has_a_suggestion_for_this_very_call() -> None:
    policy = RulePolicy()
    one, other = (decide(policy, "deploy", risk=("network",), target=target) for target in ("prod", "test"))

    assert (one.scope, "prod" in one.suggested_rule, "test" in other.suggested_rule) == ("rule", True, True)


@pytest.mark.parametrize(("target", "verdict"), [("prod", "ask"), ("test", "allow")])
def test_a_rule_whose_arguments_do_not_fit_raises_no_doubt(target: str, verdict: str) -> None:
    rules = [Rule(id="prod", verdict="deny", command="rm", arguments={"target": ArgumentIs("prod")})]

    assert decide(RulePolicy(rules), "bash", PermissionMode.TRUSTED, command="$X", target=target).verdict == verdict


@pytest.mark.parametrize(
    ("tool", "arguments"), [("edit_file", {"path": "a"}), ("bash", {"command": "echo x > a"}), ("deploy", {})]
)
def test_a_refusal_for_any_program_says_nothing_about_what_is_no_command(tool: str, arguments: dict[str, Any]) -> None:
    rules = [Rule(id="force", verdict="deny", command="* --force")]

    assert decide(RulePolicy(rules), tool, **arguments) == msgspec.structs.replace(
        decide(RulePolicy(), tool, **arguments), policy_digest=RulePolicy(rules).digest
    )


def test_the_narrowest_scope_and_the_shortest_time_of_several_questions_hold() -> None:
    rules = [
        Rule(id="a", verdict="ask", scope="rule", answer_within_seconds=60, suggested_rule="- one"),
        Rule(id="b", verdict="ask", scope="once"),
        Rule(id="c", verdict="ask", scope="run", answer_within_seconds=30, suggested_rule="- two"),
    ]
    decision = decide(RulePolicy(rules), "deploy", risk=("network",))

    assert (decision.scope, decision.answer_within_seconds) == ("once", 30)
    assert decision.suggested_rule == "- one\n- two"


def test_a_script_that_is_asked_about_for_one_part_by_rule_has_the_scope_of_that_rule() -> None:
    rules = [Rule(id="push", verdict="ask", command="git push", scope="once")]
    decision = decide(RulePolicy(rules), "bash", command="git push; make")

    assert (decision.scope, decision.suggested_rule) == ("once", "")


def test_a_question_suggests_a_rule_for_the_parts_that_are_asked_about_alone() -> None:
    decision = decide(RulePolicy(), "bash", command="ls; make all")

    assert "make" in decision.suggested_rule
    assert '"ls"' not in decision.suggested_rule


def test_a_policy_that_only_declares_what_arguments_name_is_known_by_its_digest() -> None:
    declares = RulePolicy(resources=[ResourceDeclaration("put", {"where": "path"})])

    assert decide(declares, "put", risk=("write",), where="a.py").policy_digest == declares.digest
    assert decide(RulePolicy(), "put", risk=("write",), where="a.py").policy_digest == ""


def test_who_is_asked_for_a_value_hears_what_other_rules_ask_about_and_not_what_they_allow() -> None:
    rules = [
        Rule(id="1-allow", verdict="allow", reason="Fine."),
        Rule(id="2-ask", verdict="ask", reason="It costs money.", answer_within_seconds=30),
        Rule(id="3-value", verdict="request_input", target_arg="amount", reason="How much?"),
        Rule(id="4-value", verdict="request_input", target_arg="amount", reason="Say it."),
    ]
    decision = decide(RulePolicy(rules), "pay", risk=("network",))

    assert (decision.verdict, decision.target_arg) == ("request_input", "amount")
    assert set(decision.rule_ids) == {"2-ask", "3-value", "4-value"}
    assert ("It costs money." in decision.reason, "Fine." in decision.reason) == (True, False)
    assert decision.answer_within_seconds == 30


def test_the_rule_that_a_rule_suggests_is_suggested() -> None:
    rules = [Rule(id="push", verdict="ask", command="git push", suggested_rule="- {decision: allow}")]

    assert decide(RulePolicy(rules), "bash", command="git push").suggested_rule == "- {decision: allow}"


def test_one_rule_that_wants_a_value_and_one_that_asks_are_one_question_for_the_value() -> None:
    rules = [Rule(id="ask", verdict="ask"), Rule(id="value", verdict="request_input", target_arg="amount")]
    decision = decide(RulePolicy(rules), "pay", risk=("network",))

    assert (decision.verdict, decision.target_arg, set(decision.rule_ids)) == (
        "request_input",
        "amount",
        {"ask", "value"},
    )


def test_a_question_for_a_value_about_a_command_names_its_risks_and_the_files_that_it_runs(tmp_path: Path) -> None:
    policy = RulePolicy([Rule(id="code", verdict="request_input", tools="bash", target_arg="code")])
    situation = CallContext(run_id="run_1", workspace=str(tmp_path))
    decision = policy.evaluate(example_event("bash", {"command": "sh deploy.sh"}, situation))

    assert decision.verdict == "request_input"
    assert "deploy.sh" in decision.paths
    assert "runs any code" in decision.risk
