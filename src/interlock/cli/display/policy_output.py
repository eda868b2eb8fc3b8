"""Output of `interlock policy`, for people and as unambiguous YAML."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import yaml

from ...domain.decision import Decision
from ...policy.analysis.backtest import Backtest, DecisionChange
from ...policy.analysis.explain import ExplainedPart, Explanation, describe_rule
from ...policy.analysis.suggestions import RuleSuggestion
from ...policy.engine.rule import Rule
from ...rendering.text import to_compact_json
from .output import echo, style_verdict, truncate_text

_MAX_FLIPS = 200
#: What every reader of YAML takes for a text, without quotes.
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*(?<! )")


def to_yaml(document: Any) -> str:
    return yaml.dump(document, Dumper=_YamlDumper, sort_keys=False, allow_unicode=False, width=110)


class _YamlDumper(yaml.SafeDumper):
    """Every text that some reader may take for something else is in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return cast(Any, writer).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YamlDumper.add_representer(str, _represent_text)


def echo_explanation(explanation: Explanation) -> None:
    echo(explanation.tool, ": ", style_verdict(explanation.decision.verdict), f" ({explanation.decision.layer})")
    _echo_decision(explanation.decision)
    for number, part in enumerate(explanation.parts, start=1):
        _echo_part(number, part)
    if explanation.enforcement:
        echo("held to:")
    for enforcement in explanation.enforcement:
        echo(f"  {enforcement.rule_id}: {enforcement.point}, {enforcement.how}")
    echo(f"policy {explanation.policy_digest}")


def _echo_decision(decision: Decision) -> None:
    echo(f"  {decision.reason}")
    lines = {
        "rules": ", ".join(decision.rule_ids),
        "for the model": decision.advice,
        "asks": decision.prompt,
        "exactly this would be allowed by": decision.suggested_rule,
    }
    for name, text in lines.items():
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
    for evaluation in part.said:
        echo(
            f"  {', '.join(evaluation.rule_ids)} ({evaluation.layer}) says ",
            style_verdict(evaluation.verdict),
            f": {evaluation.reason}",
        )
    if not part.said:
        echo(f"  no rule speaks: {part.decision.reason}")


def echo_backtest(result: Backtest) -> None:
    for flip in sorted(result.flips, key=lambda flip: not flip.looser)[:_MAX_FLIPS]:
        _echo_flip(flip)
    if len(result.flips) > _MAX_FLIPS:
        echo(f"... and {len(result.flips) - _MAX_FLIPS:,} more; --json has them all")
    echo(f"{len(result.flips):,} decisions flip, {result.unchanged:,} stay")
    for skipped in result.skipped:
        echo(f"{skipped.count:,} cannot be judged again: {skipped.reason}")
    if result.never_fired:
        echo(f"rules that never fire here: {', '.join(result.never_fired)}")


def _echo_flip(flip: DecisionChange) -> None:
    was, now = _format_rule_ids(flip.was_rules), _format_rule_ids(flip.now_rules)
    echo(
        style_verdict(flip.was),
        f"{was} -> ",
        style_verdict(flip.now),
        f"{now}: {flip.tool} ",
        truncate_text(to_compact_json(flip.arguments)),
    )
    person = "" if flip.said == "none" else f"; a person was asked: {flip.said}"
    echo(f"  {flip.run_id} {flip.call_id}{person}")


def _format_rule_ids(rule_ids: Sequence[str]) -> str:
    return f" ({', '.join(rule_ids)})" if rule_ids else ""


def echo_suggestions(found: Sequence[RuleSuggestion]) -> None:
    for suggestion in found:
        asked = "question" if suggestion.out_of == 1 else "questions"
        echo(
            f"# answers {suggestion.covers:,} of {suggestion.out_of:,} {asked} of the past, none that a person refused"
        )
        print(to_yaml([suggestion.rule]), end="")


def echo_rules(rules: Iterable[Rule]) -> None:
    for rule in rules:
        echo(f"{rule.layer}: {rule.id}: ", style_verdict(rule.verdict), f" {describe_rule(rule)}")
