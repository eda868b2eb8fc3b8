"""Rules and policy files: write, load, test and explain them."""

from .. import lazy_package

_NAMES = {
    "domain.budget": ("BudgetRule",),
    "domain.decision": ("Decision", "FailSafeConfig", "PolicyDecision", "Verdict"),
    "domain.effect": ("EffectRule",),
    "domain.egress": ("EgressRule",),
    "domain.tool": ("Mask", "PermissionMode"),
    "policy.analysis.backtest": ("Backtest", "backtest"),
    "policy.analysis.explain": ("Explanation", "explain", "find_masks"),
    "policy.analysis.recorded_calls": ("RecordedCall", "read_recorded_calls"),
    "policy.analysis.suggestions": ("RuleSuggestion", "find_suggestions"),
    "policy.engine.example_event": ("example_event",),
    "policy.engine.rule": (
        "ArgumentGlob",
        "ArgumentIs",
        "ArgumentRegex",
        "CommandPattern",
        "EffectDeclaration",
        "ResourceDeclaration",
        "Rule",
    ),
    "policy.engine.rule_policy": ("RulePolicy",),
    "policy.files.policy_files": ("PolicyFiles", "check_file", "load_policy"),
    "policy.files.problems": ("PolicyFileError",),
    "policy.interface": ("PolicyEngine", "PolicyEvent"),
}

lazy_package(__name__, _NAMES)
