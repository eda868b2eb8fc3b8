"""Output of `interlock policy`, for people and as unambiguous YAML."""

from collections.abc import Iterable, Sequence

from ...domain.budget import BudgetRule
from ...domain.decision import Decision
from ...domain.egress import EgressRule
from ...policy.analysis.backtest import Backtest, DecisionChange
from ...policy.analysis.explain import ExplainedPart, Explanation, describe_egress_rule, describe_rule
from ...policy.analysis.suggestions import RuleSuggestion
from ...policy.engine.rule import Rule
from ...policy.files.yaml_text import to_yaml
from ...rendering.text import pluralize, to_compact_json
from ...rendering.times import format_utc
from ...storage.budgets import BudgetUsage
from .output import echo, style_verdict, truncate_text

_MAX_FLIPS = 200


def echo_explanation(explanation: Explanation) -> None:
    """Print the decision about a call, its parts and where it is enforced."""
    echo(explanation.tool, ": ", style_verdict(explanation.decision.verdict), f" ({explanation.decision.layer})")
    _echo_decision(explanation.decision)
    if explanation.effect:
        echo("  effect: ", truncate_text(explanation.effect))
    for line in explanation.egress:
        echo("  egress: ", truncate_text(line))
    for line in explanation.budgets:
        echo("  budget: ", truncate_text(line))
    for number, part in enumerate(explanation.parts, start=1):
        _echo_part(number, part)
    if explanation.enforcement:
        echo("held to:")
    for enforcement in explanation.enforcement:
        echo(f"  {enforcement.rule_id}: {enforcement.point}, {enforcement.how}")
    echo(f"policy {explanation.policy_digest}")


def _echo_decision(decision: Decision) -> None:
    echo(f"  {decision.reason}")
    fields = {
        "rules": ", ".join(decision.rule_ids),
        "for the model": decision.advice,
        "asks": decision.prompt,
        "approver": "a person, or the client by its claim" if decision.approver == "client" else "",
        "calls of this kind would be allowed by": decision.suggested_rule,
    }
    for name, text in fields.items():
        if text:
            echo(f"  {name}: {text}")


def _echo_part(number: int, part: ExplainedPart) -> None:
    echo(f"part {number}: ", truncate_text(part.what), ": ", style_verdict(part.decision.verdict))
    lines = {
        "not known": part.opaque,
        "risk": ", ".join(part.risk),
        "facts": "; ".join(part.facts),
        "paths": ", ".join(part.paths),
        "hosts": ", ".join(part.hosts),
    }
    for name, text in lines.items():
        if text:
            echo(f"  {name}: ", truncate_text(text))
    for said in part.said:
        echo(f"  {', '.join(said.rule_ids)} ({said.layer}) says ", style_verdict(said.verdict), f": {said.reason}")
    if not part.said:
        echo(f"  no rule speaks: {part.decision.reason}")


def echo_backtest(result: Backtest) -> None:
    """Print the changed decisions of a backtest, looser ones first, and a summary."""
    for flip in sorted(result.flips, key=lambda flip: not flip.looser)[:_MAX_FLIPS]:
        _echo_flip(flip)
    if len(result.flips) > _MAX_FLIPS:
        echo(f"... and {len(result.flips) - _MAX_FLIPS:,} more; --json has them all")
    echo(f"{len(result.flips):,} decisions flip, {result.unchanged:,} stay")
    for skipped in result.skipped:
        echo(f"{skipped.count:,} cannot be judged again: {skipped.reason}")
    if result.never_fired:
        echo(f"rules that never fire here: {', '.join(result.never_fired)}")
    for trial in result.budgets:
        whose = "".join(f", {name} {value or '(none)'}" for name, value in trial.peak_subject.items())
        echo(
            f"budget {trial.id} ({trial.about}): {trial.counted:,} fit, {trial.exceeded:,} would not; "
            f"at most {trial.peak:,.15g} in one window{whose}"
        )


def _echo_flip(flip: DecisionChange) -> None:
    was, now = (f" ({', '.join(rules)})" if rules else "" for rules in (flip.was_rules, flip.now_rules))
    arguments = truncate_text(to_compact_json(flip.arguments))
    echo(style_verdict(flip.was), f"{was} -> ", style_verdict(flip.now), f"{now}: {flip.tool} ", arguments)
    person = "" if flip.said == "none" else f"; a person was asked: {flip.said}"
    echo(f"  {flip.run_id} {flip.call_id}{person}")


def echo_suggestions(found: Sequence[RuleSuggestion]) -> None:
    """Print suggested rules as YAML with the share of past questions they would answer."""
    for suggestion in found:
        asked = f"{suggestion.covers:,} of {pluralize(suggestion.out_of, 'question')}"
        echo(f"# answers {asked} of the past, none that a person refused")
        print(to_yaml([suggestion.rule]), end="")


def echo_rules(rules: Iterable[Rule], egress: Iterable[EgressRule] = (), budgets: Iterable[BudgetRule] = ()) -> None:
    """Print each rule on one line."""
    for rule in rules:
        echo(f"{rule.layer}: {rule.id}: ", style_verdict(rule.verdict), f" {describe_rule(rule)}")
    for rule in egress:
        echo(f"{rule.layer}: {rule.id}: egress ", style_verdict(rule.verdict), f" {describe_egress_rule(rule)}")
    for rule in budgets:
        echo(f"{rule.layer}: {rule.id}: budget ", style_verdict(rule.then), f" {rule.describe()}")


def echo_budgets(counters: Sequence[BudgetUsage]) -> None:
    """Print each budget with what was used of it, and the budgets that nothing was used of."""
    for each in counters:
        whose = "".join(f" {name} {value or '(none)'}" for name, value in each.subject.items())
        until = format_utc(each.resets_at)
        echo(
            f"{each.id}:{whose or ' all'}: {each.used:,.15g} of {each.limit:,.15g} {each.unit} a {each.window} "
            f"({each.percent:.0f} %), resets at {until}"
        )
