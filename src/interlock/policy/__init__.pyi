"""Rules and policy files: write, load, test and explain them."""

from ..domain.budget import BudgetRule
from ..domain.decision import Decision, FailSafeConfig, Verdict
from ..domain.decision import Decision as PolicyDecision
from ..domain.effect import EffectRule
from ..domain.egress import EgressRule
from ..domain.tool import Mask, PermissionMode
from .analysis.backtest import Backtest, backtest
from .analysis.explain import Explanation, explain, find_masks
from .analysis.recorded_calls import RecordedCall, read_recorded_calls
from .analysis.suggestions import RuleSuggestion, find_suggestions
from .engine.example_event import example_event
from .engine.rule import (
    ArgumentGlob,
    ArgumentIs,
    ArgumentRegex,
    CommandPattern,
    EffectDeclaration,
    ResourceDeclaration,
    Rule,
)
from .engine.rule_policy import RulePolicy
from .files.policy_files import PolicyFiles, check_file, load_policy
from .files.problems import PolicyFileError
from .interface import PolicyEngine, PolicyEvent

__all__ = [
    "ArgumentGlob",
    "ArgumentIs",
    "ArgumentRegex",
    "Backtest",
    "BudgetRule",
    "CommandPattern",
    "Decision",
    "EffectDeclaration",
    "EffectRule",
    "EgressRule",
    "Explanation",
    "FailSafeConfig",
    "Mask",
    "PermissionMode",
    "PolicyDecision",
    "PolicyEngine",
    "PolicyEvent",
    "PolicyFileError",
    "PolicyFiles",
    "RecordedCall",
    "ResourceDeclaration",
    "Rule",
    "RulePolicy",
    "RuleSuggestion",
    "Verdict",
    "backtest",
    "check_file",
    "example_event",
    "explain",
    "find_masks",
    "find_suggestions",
    "load_policy",
    "read_recorded_calls",
]
