"""Results of `interlock policy`, for people and as YAML that every reader takes for the same."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import yaml

from ...domain.decision import Decision
from ...policy.analysis.backtest import Backtest, Flip
from ...policy.analysis.describe import about
from ...policy.analysis.explain import Explanation, Part
from ...policy.analysis.suggest import Suggestion
from ...policy.engine.rule import Rule
from .output import compact, cut, say, verdict

_MAX_FLIPS = 200
#: What every reader of YAML takes for a text, without quotes.
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*(?<! )")


def as_yaml(document: Any) -> str:
    return yaml.dump(document, Dumper=_Writer, sort_keys=False, allow_unicode=False, width=110)


class _Writer(yaml.SafeDumper):
    """Every text that some reader may take for something else is in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return cast(Any, writer).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Writer.add_representer(str, _text_node)


def show_explanation(explained: Explanation) -> None:
    say(explained.tool, ": ", verdict(explained.decision.verdict), f" ({explained.decision.layer})")
    _decision(explained.decision)
    for number, part in enumerate(explained.parts, start=1):
        _part(number, part)
    if explained.enforcement:
        say("held to:")
    for held in explained.enforcement:
        say(f"  {held.rule_id}: {held.point}, {held.how}")
    say(f"policy {explained.policy_digest}")


def _decision(decision: Decision) -> None:
    say(f"  {decision.reason}")
    lines = {
        "rules": ", ".join(decision.rule_ids),
        "for the model": decision.advice,
        "asks": decision.prompt,
        "exactly this would be allowed by": decision.suggested_rule,
    }
    for name, text in lines.items():
        if text:
            say(f"  {name}: {text}")


def _part(number: int, part: Part) -> None:
    say(f"part {number}: ", cut(part.what), ": ", verdict(part.decision.verdict))
    lines = {
        "not known": part.opaque,
        "risk": ", ".join(part.risk),
        "facts": "; ".join(part.facts),
        "paths": ", ".join(part.paths),
        "hosts": ", ".join(part.hosts),
    }
    for name, text in lines.items():
        if text:
            say(f"  {name}: ", cut(text))
    for said in part.said:
        say(f"  {', '.join(said.rule_ids)} ({said.layer}) says ", verdict(said.verdict), f": {said.reason}")
    if not part.said:
        say(f"  no rule speaks: {part.decision.reason}")


def show_backtest(result: Backtest) -> None:
    for flip in sorted(result.flips, key=lambda flip: not flip.looser)[:_MAX_FLIPS]:
        _flip(flip)
    if len(result.flips) > _MAX_FLIPS:
        say(f"... and {len(result.flips) - _MAX_FLIPS:,} more; --json has them all")
    say(f"{len(result.flips):,} decisions flip, {result.unchanged:,} stay")
    for skipped in result.skipped:
        say(f"{skipped.count:,} cannot be judged again: {skipped.reason}")
    if result.never_fired:
        say(f"rules that never fire here: {', '.join(result.never_fired)}")


def _flip(flip: Flip) -> None:
    was, now = _by(flip.was_rules), _by(flip.now_rules)
    say(verdict(flip.was), f"{was} -> ", verdict(flip.now), f"{now}: {flip.tool} ", cut(compact(flip.arguments)))
    person = "" if flip.said == "none" else f"; a person was asked: {flip.said}"
    say(f"  {flip.run_id} {flip.call_id}{person}")


def _by(rule_ids: Sequence[str]) -> str:
    return f" ({', '.join(rule_ids)})" if rule_ids else ""


def show_suggestions(found: Sequence[Suggestion]) -> None:
    for suggestion in found:
        asked = "question" if suggestion.out_of == 1 else "questions"
        say(f"# answers {suggestion.covers:,} of {suggestion.out_of:,} {asked} of the past, none that a person refused")
        print(as_yaml([suggestion.rule]), end="")


def show_rules(rules: Iterable[Rule]) -> None:
    for rule in rules:
        say(f"{rule.layer}: {rule.id}: ", verdict(rule.verdict), f" {about(rule)}")
