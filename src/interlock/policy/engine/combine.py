"""Several decisions as one: the strictest verdict, with the words of every rule that gave it."""

from collections.abc import Iterable, Sequence

import msgspec

from ...domain.decision import APPROVAL_SCOPES, Decision, Verdict, pick_strictest


def merge_decisions(decisions: Sequence[Decision]) -> Decision:
    verdict = pick_strictest(decisions).verdict
    winners = sorted((said for said in decisions if said.verdict is verdict), key=lambda said: said.rule_ids)
    if verdict is Verdict.REQUEST_INPUT:
        # A value that a person gives is also the yes to what other rules ask about, so they must hear of it.
        winners += [
            msgspec.structs.replace(said, verdict=verdict, target_arg=winners[0].target_arg)
            for said in decisions
            if said.verdict is Verdict.ASK
        ]
    if len(winners) == 1:
        return winners[0]
    merged = msgspec.structs.replace(
        winners[0],
        rule_ids=tuple(dict.fromkeys(rule_id for winner in winners for rule_id in winner.rule_ids)),
        reason=_join_unique(" ", (winner.reason for winner in winners)),
        layer=_join_unique(", ", (winner.layer for winner in winners)),
        risk=tuple(dict.fromkeys(risk for winner in winners for risk in winner.risk)),
        prompt=_join_unique("\n", (winner.prompt for winner in winners)),
        suggested_rule=_join_unique("\n", (winner.suggested_rule for winner in winners)),
        advice=_join_unique(" ", (winner.advice for winner in winners)),
        scope=min((winner.scope for winner in winners), key=APPROVAL_SCOPES.index),
        answer_within_seconds=min(
            (winner.answer_within_seconds for winner in winners if winner.answer_within_seconds is not None),
            default=None,
        ),
    )
    arguments = {winner.target_arg for winner in winners}
    if len(arguments) == 1:
        return merged
    reason = f"The rules want different arguments from a person: {', '.join(sorted(arguments))}."
    return msgspec.structs.replace(merged, verdict=Verdict.DENY, reason=reason, target_arg="", scope="once")


def deny_on_condition_error(decision: Decision, problem: str) -> Decision:
    """The rule could not say whether it speaks: then it says no."""
    reason = f"The condition of rule {decision.rule_ids[0]} {problem}, so the call is refused."
    return msgspec.structs.replace(decision, verdict=Verdict.DENY, reason=reason, target_arg="", scope="once")


def _join_unique(separator: str, texts: Iterable[str]) -> str:
    return separator.join(dict.fromkeys(filter(None, texts)))
