"""Permission modes. `read_only` denies whatever may change something; `accept_edits` and `trusted` answer only where no
rule matches and the risk alone would ask: never beyond a deny, and never instead of a rule that asks.
"""

from ...domain.decision import Decision, Verdict, default_decision
from ...domain.tool import PermissionMode, Risk
from ..patterns import fold_text
from ..shell.command import make_word_set
from .call_parts import CallPart
from .paths import PathAccess
from .rule import DefaultVerdict

_LAYER = "permission mode"
_READ_RISKS = frozenset({Risk.READ})
_EDIT_RISKS = frozenset({Risk.READ, Risk.WRITE})
#: What other programs execute or obey when they find it: changing it is more than an edit.
_PROTECTED = make_word_set(
    ".git .gitmodules .gitattributes .github .gitlab-ci.yml .circleci .husky .pre-commit-config.yaml .envrc .env "
    ".bashrc .bash_profile .profile .zshrc .zshenv .npmrc .yarnrc .yarnrc.yml .vscode .idea .cursor .claude .codex "
    ".gemini .mcp.json .interlock .ssh .aws .netrc sitecustomize.py usercustomize.py"
)


def deny_by_mode(mode: PermissionMode, risk: frozenset[Risk]) -> Decision | None:
    """Deny calls that change something in read-only mode. Return None otherwise."""
    if mode is not PermissionMode.READ_ONLY or risk <= _READ_RISKS:
        return None
    return _mode_decision(Verdict.DENY, mode, "The run is in read-only mode, and this may change something.", risk)


def decide_by_default(default: DefaultVerdict, mode: PermissionMode, subject: CallPart) -> Decision:
    """Return the decision when no rule matches."""
    risk = subject.risk
    if default == "deny":
        return _policy_default(default, risk)
    if mode is PermissionMode.TRUSTED:
        return _mode_decision(Verdict.ALLOW, mode, "The run is trusted, and no rule speaks.", risk)
    if (
        mode is PermissionMode.ACCEPT_EDITS
        and risk <= _EDIT_RISKS
        and Risk.WRITE in risk
        and _is_inside_workspace(subject)
    ):
        return _mode_decision(Verdict.ALLOW, mode, "Edits in the workspace are accepted, and no rule speaks.", risk)
    return default_decision(risk) if default == "risk" else _policy_default(default, risk)


def _is_inside_workspace(subject: CallPart) -> bool:
    return (
        not subject.opaque
        and bool(subject.paths)
        and all(path.is_inside_workspace and not _is_protected(path) for path in subject.paths)
    )


def _is_protected(path: PathAccess) -> bool:
    return any(_PROTECTED.intersection(fold_text(place.relative or "").split("/")) for place in path.targets)


def _policy_default(default: DefaultVerdict, risk: frozenset[Risk]) -> Decision:
    reason = f"No rule allows this, and then this policy says {default}."
    return Decision(verdict=Verdict(default), reason=reason, risk=tuple(sorted(risk)))


def _mode_decision(verdict: Verdict, mode: PermissionMode, reason: str, risk: frozenset[Risk]) -> Decision:
    return Decision(verdict=verdict, reason=reason, rule_ids=(f"mode:{mode}",), layer=_LAYER, risk=tuple(sorted(risk)))
