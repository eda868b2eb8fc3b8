"""Permission modes. `read_only` denies whatever may change something; the others answer only where no rule matches and
the risk alone would ask: never beyond a deny, and never instead of a rule that asks.

`contained` allows what the sandbox holds: commands of a tool that is `contained`, and edits in the workspace. It asks
where the sandbox ends: about the network, about tools outside of it, and about what nothing brings back.
"""

import msgspec

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


def decide_by_default(
    default: DefaultVerdict,
    mode: PermissionMode,
    subject: CallPart,
    *,
    contained: bool = False,
    has_egress: bool = False,
) -> Decision:
    """Return the decision when no rule matches. `contained`: a sandbox holds what the tool does. `has_egress`: egress
    rules decide which hosts it reaches.
    """
    risk = subject.risk
    if default == "deny":
        return _policy_default(default, risk)
    if mode is PermissionMode.TRUSTED:
        return _mode_decision(Verdict.ALLOW, mode, "The run is trusted, and no rule speaks.", risk)
    if mode is PermissionMode.CONTAINED and contained and not (default == "risk" and risk <= _READ_RISKS):
        return _decide_contained(subject, has_egress)
    if mode in (PermissionMode.ACCEPT_EDITS, PermissionMode.CONTAINED) and _is_accepted_edit(mode, subject):
        return _mode_decision(Verdict.ALLOW, mode, "Edits in the workspace are accepted, and no rule speaks.", risk)
    decision = default_decision(risk) if default == "risk" else _policy_default(default, risk)
    if mode is PermissionMode.CONTAINED and Risk.EXECUTE in risk and decision.verdict is Verdict.ASK:
        reason = f"{decision.reason} No sandbox without a network contains this tool."
        decision = msgspec.structs.replace(decision, reason=reason)
    return decision


def _is_accepted_edit(mode: PermissionMode, subject: CallPart) -> bool:
    """Return True for an edit in the workspace. In `contained`, what an uncontained shell writes is none."""
    is_edit = subject.risk <= _EDIT_RISKS and Risk.WRITE in subject.risk
    by_shell = mode is PermissionMode.CONTAINED and bool(subject.written)
    return is_edit and not by_shell and _is_inside_workspace(subject)


def _decide_contained(subject: CallPart, has_egress: bool) -> Decision:
    """Allow a command that the sandbox holds, and ask about what it does not hold."""
    protected = next((path.given for path in subject.paths if path.writes and _is_protected(path)), "")
    problem = subject.find_uncontained_risk(has_egress) or (f"it may change {protected[:200]}" if protected else "")
    if problem:
        reason = f"Not contained: {problem}."
        return _mode_decision(Verdict.ASK, PermissionMode.CONTAINED, reason, subject.risk)
    reason = "The sandbox contains it, and no rule matches."
    return _mode_decision(Verdict.ALLOW, PermissionMode.CONTAINED, reason, subject.risk)


def _is_inside_workspace(subject: CallPart) -> bool:
    return (
        not subject.opaque
        and bool(subject.paths)
        and all(path.is_inside_workspace and not _is_protected(path) for path in subject.paths)
    )


def _is_protected(path: PathAccess) -> bool:
    return any(_PROTECTED.intersection(fold_text(place.relative or "").split("/")) for place in path.targets)


def _policy_default(default: DefaultVerdict, risk: frozenset[Risk]) -> Decision:
    reason = f"No rule matches; the policy default is {default}."
    return Decision(verdict=Verdict(default), reason=reason, risk=tuple(sorted(risk)))


def _mode_decision(verdict: Verdict, mode: PermissionMode, reason: str, risk: frozenset[Risk]) -> Decision:
    return Decision(verdict=verdict, reason=reason, rule_ids=(f"mode:{mode}",), layer=_LAYER, risk=tuple(sorted(risk)))
