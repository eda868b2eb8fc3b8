"""Policy decisions: may this call start? Verdicts are ordered, so the strictest one wins by `max`."""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from .budget import BudgetUse
from .effect import Effect, EffectRule
from .json import validate_fields
from .tool import Risk
from .trial import AskTime


class Verdict(StrEnum):
    """The outcome of a policy evaluation, ordered from permissive to strict."""

    ALLOW = "allow"
    ASK = "ask"
    REQUEST_INPUT = "request_input"
    DENY = "deny"

    @classmethod
    def _missing_(cls, value: object) -> "Verdict | None":
        """Accept other words for the same: `defer` and `request_approval`, `request_user_input`."""
        return _VERDICT_ALIASES.get(value) if isinstance(value, str) else None


#: Other words for a verdict, wherever one is given.
_VERDICT_ALIASES = {
    "defer": Verdict.ASK,
    "request_approval": Verdict.ASK,
    "request_user_input": Verdict.REQUEST_INPUT,
}
VERDICT_WORDS = (*Verdict, *_VERDICT_ALIASES)

#: What a person answers.
QUESTION_VERDICTS = frozenset({Verdict.ASK, Verdict.REQUEST_INPUT})
#: Scope of an approval: this call; the same call again in this run; the same for a time; a saved rule.
ApprovalScope: TypeAlias = Literal["once", "run", "window", "rule"]
APPROVAL_SCOPES: tuple[ApprovalScope, ...] = ("once", "run", "window", "rule")

#: Who may answer a question: a person, or also the client that requested the call, by its claim.
Approver: TypeAlias = Literal["person", "client"]

_STRICTNESS = {verdict: rank for rank, verdict in enumerate(Verdict)}


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a policy decides about a call: allow, ask, deny or request a value, with the reason."""

    verdict: Verdict
    reason: str
    rule_ids: tuple[str, ...] = ()
    #: Who decided: `project rule`, `user rule`, `permission mode`, `enterprise policy`, `path boundary`, `tool limit`,
    #: or `default` where no rule matched.
    layer: str = "default"
    #: Concrete risk, for the person who is asked.
    risk: tuple[str, ...] = ()
    prompt: str = ""
    #: With `ask` and `request_input`: the title of the question, a template over the arguments:
    #: `Refund {amount} for {order}`. Empty: that of the tool.
    title: str = ""
    suggested_rule: str = ""
    #: For the model: what to do instead.
    advice: str = ""
    #: With `request_input`: the argument that the person's value becomes.
    target_arg: str = ""
    policy_digest: str = ""
    #: With `ask`: the widest scope that an approval may have.
    scope: ApprovalScope = "once"
    #: With `ask` and `request_input`: how long the question stays open. None: no limit.
    answer_within_seconds: float | None = None
    #: With `ask` and `request_input`: whether the claim of a client counts as an answer.
    approver: Approver = "person"
    #: The paths that the call names, as they were evaluated, or that decide what it runs: a file tool opens
    #: no other. With `ask`, what is in them is bound to the approval. The log has them with questions only.
    paths: tuple[str, ...] = ()
    #: With `ask`: whether a person sees the call before it runs, or its effect after a trial, where that is possible.
    ask: AskTime = "before"
    #: With `ask`: all code that the call would run is known and named. Otherwise the question says that it is not.
    names_all_code: bool = False
    #: What a policy says about the effect of the call.
    effect_rule: EffectRule | None = None
    #: The effect, as the runtime evaluated it. A policy leaves it out.
    effect: Effect | None = None
    #: The budgets that the call counts to, as the runtime found them. A policy leaves them out.
    budgets: tuple[BudgetUse, ...] = ()

    def __post_init__(self) -> None:
        validate_fields(self)
        if type(self.verdict) is not Verdict:
            msgspec.structs.force_setattr(self, "verdict", Verdict(self.verdict))


def pick_strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the decision with the strictest verdict."""
    return max(decisions, key=lambda decision: _STRICTNESS[decision.verdict])


def merge_decisions(decision: Decision, opinion: Decision) -> Decision:
    """Return the stricter of two decisions; equally strict ones are combined, with both reasons and the narrower
    scope.
    """
    if frozenset((decision.verdict, opinion.verdict)) == QUESTION_VERDICTS:
        # The value that a person gives also approves what the other asks about, so the question must mention it.
        value_request = pick_strictest((decision, opinion))
        approval_request = opinion if value_request is decision else decision
        decision, opinion = (
            value_request,
            msgspec.structs.replace(
                approval_request, verdict=value_request.verdict, target_arg=value_request.target_arg
            ),
        )
    if decision.verdict is not opinion.verdict:
        return pick_strictest((decision, opinion))
    if decision.target_arg != opinion.target_arg:
        reason = f"Different arguments are wanted from a person: {decision.target_arg}, {opinion.target_arg}."
        return msgspec.structs.replace(decision, verdict=Verdict.DENY, reason=reason, target_arg="", scope="once")
    scope = min(decision.scope, opinion.scope, key=APPROVAL_SCOPES.index)
    limits = [each for each in (decision.answer_within_seconds, opinion.answer_within_seconds) if each is not None]
    return msgspec.structs.replace(
        decision,
        reason=" ".join(dict.fromkeys(filter(None, (decision.reason, opinion.reason)))),
        rule_ids=tuple(dict.fromkeys((*decision.rule_ids, *opinion.rule_ids))),
        layer=", ".join(dict.fromkeys(filter(None, (decision.layer, opinion.layer)))),
        risk=tuple(dict.fromkeys((*decision.risk, *opinion.risk))),
        prompt="\n".join(dict.fromkeys(filter(None, (decision.prompt, opinion.prompt)))),
        title=decision.title or opinion.title,
        suggested_rule=decision.suggested_rule if scope == "rule" else "",
        scope=scope,
        answer_within_seconds=min(limits, default=None),
        approver="client" if decision.approver == opinion.approver == "client" else "person",
        paths=tuple(dict.fromkeys((*decision.paths, *opinion.paths))),
        ask="after" if decision.ask == opinion.ask == "after" else "before",
        names_all_code=decision.names_all_code or opinion.names_all_code,
    )


def default_decision(risk: frozenset[Risk]) -> Decision:
    """Return the decision when no rule matches: it follows from the tool's declared risk."""
    if risk <= {Risk.READ}:
        return ALLOWED_BY_DEFAULT
    words = tuple(sorted(risk))
    return Decision(verdict=Verdict.ASK, reason=f"No rule matches, and its risk is {', '.join(words)}.", risk=words)


ALLOWED_BY_DEFAULT = Decision(verdict=Verdict.ALLOW, reason="No rule matches.")


FourEyes: TypeAlias = Literal["off", "high_risk", "all"]

#: The layer that asks about a call whose outcome is unknown.
RECOVERY_LAYER = "recovery"
#: The layer that allows a call because it has no effect in its trial.
TRIAL_LAYER = "trial"
#: The layer of decisions about repeated effects; after another one where both ask.
EFFECT_LAYER = "effect"
#: Risk words in a question that require a second person.
HIGH_RISKS = frozenset((Risk.EXECUTE, Risk.NETWORK, Risk.DELEGATE))


def needs_second_person(risk: Collection[str], layer: str, setting: FourEyes) -> bool:
    """Return whether a question with this risk, asked by this layer, needs a second person."""
    if setting == "high_risk":
        may_happen_twice = layer == RECOVERY_LAYER or layer.endswith(EFFECT_LAYER)
        return may_happen_twice or not HIGH_RISKS.isdisjoint(risk)
    return setting == "all"


FailurePolicy: TypeAlias = Literal["continue", "degrade", "fail"]


class FailSafeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a run after a failure, a denial, or an unknown outcome.

    `continue` informs the model, `degrade` ends the run as degraded, and `fail` fails it.
    """

    #: After a tool ran and failed.
    tool_failure_policy: FailurePolicy = "continue"
    #: After policy or a person refused a call.
    approval_denial_policy: FailurePolicy = "continue"
    #: The same for people alone: they refused it, or did not answer in time. None: as after policy refused.
    rejection_policy: FailurePolicy | None = None
    #: After a call started and the process died before its end was recorded, so its outcome is unknown:
    #: the model is informed, or a person is asked whether it may run again.
    unknown_outcome_policy: Literal["tell", "ask"] = "tell"
    #: After a model gave no answer, retries included: the run fails, or stays resumable.
    model_failure_policy: Literal["fail", "keep"] = "fail"

    @property
    def after_rejection(self) -> FailurePolicy:
        """Policy that applies after a person rejected a call."""
        return self.rejection_policy or self.approval_denial_policy


def ask_also(decision: Decision, added: Decision) -> Decision:
    """Return the decision with another question that a person answers in the same answer, for this call only. Fields
    beside reason, rules, layer, risk and prompt stay those of the first.
    """
    reason, layer, verdict, rule_ids, prompt = added.reason, added.layer, added.verdict, added.rule_ids, added.prompt
    if decision.verdict is not Verdict.ALLOW:
        reason, layer, verdict = f"{decision.reason} {reason}", f"{decision.layer}, {layer}", decision.verdict
        rule_ids, prompt = (*decision.rule_ids, *rule_ids), f"{decision.prompt}\n{prompt}".lstrip()
    return msgspec.structs.replace(
        decision,
        verdict=verdict,
        reason=reason,
        rule_ids=rule_ids,
        layer=layer,
        risk=tuple(dict.fromkeys((*added.risk, *decision.risk))),
        prompt=prompt,
        suggested_rule="",
        scope="once",
    )
