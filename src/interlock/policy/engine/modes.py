"""What a permission mode says. `read_only` refuses whatever may change something; `accept_edits` and `trusted` answer
only where no rule speaks and the risk alone would ask: never beyond a deny, and never instead of a rule that asks."""

from ...domain.decision import Decision, Verdict, default_decision
from ...domain.tool import Mode, Risk
from ..shell.word_set import word_set
from .paths import Touched
from .patterns import folded
from .rule import Default
from .subject import Subject

_LAYER = "permission mode"
_READS = frozenset({Risk.READ})
_EDITS = frozenset({Risk.READ, Risk.WRITE})
#: What other programs execute or obey when they find it: changing it is more than an edit.
_PROTECTED = word_set(
    ".git .gitmodules .gitattributes .github .gitlab-ci.yml .circleci .husky .pre-commit-config.yaml .envrc .env "
    ".bashrc .bash_profile .profile .zshrc .zshenv .npmrc .yarnrc .yarnrc.yml .vscode .idea .cursor .claude .codex "
    ".gemini .mcp.json .interlock .ssh .aws .netrc sitecustomize.py usercustomize.py"
)


def refused_by_mode(mode: Mode, risk: frozenset[Risk]) -> Decision | None:
    if mode is not Mode.READ_ONLY or risk <= _READS:
        return None
    return _decision(Verdict.DENY, mode, "The run is in read-only mode, and this may change something.", risk)


def by_default(default: Default, mode: Mode, subject: Subject) -> Decision:
    """What happens when no rule speaks."""
    risk = subject.risk
    if default == "deny":
        return _by_policy(default, risk)
    if mode is Mode.TRUSTED:
        return _decision(Verdict.ALLOW, mode, "The run is trusted, and no rule speaks.", risk)
    if mode is Mode.ACCEPT_EDITS and risk <= _EDITS and Risk.WRITE in risk and _stays_inside(subject):
        return _decision(Verdict.ALLOW, mode, "Edits in the workspace are accepted, and no rule speaks.", risk)
    return default_decision(risk) if default == "risk" else _by_policy(default, risk)


def _stays_inside(subject: Subject) -> bool:
    return (
        not subject.opaque
        and bool(subject.paths)
        and all(path.inside and not _is_protected(path) for path in subject.paths)
    )


def _is_protected(path: Touched) -> bool:
    return any(_PROTECTED.intersection(folded(place.relative or "").split("/")) for place in path.places)


def _by_policy(default: Default, risk: frozenset[Risk]) -> Decision:
    reason = f"No rule allows this, and then this policy says {default}."
    return Decision(verdict=Verdict(default), reason=reason, risk=tuple(sorted(risk)))


def _decision(verdict: Verdict, mode: Mode, reason: str, risk: frozenset[Risk]) -> Decision:
    return Decision(verdict=verdict, reason=reason, rule_ids=(f"mode:{mode}",), layer=_LAYER, risk=tuple(sorted(risk)))
