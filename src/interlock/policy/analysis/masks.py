"""The paths that rules deny to every tool, as a predicate: what a sandbox must hide or keep read-only."""

from collections.abc import Callable, Iterable
from time import time_ns

from ...domain.tool import Mask
from ..patterns import PatternSet, fold_text, path_glob_to_regexes
from .explain import RuleSource, find_masks


class MaskMatcher:
    """Matches paths like a denying rule: case-insensitively, and a folder with its content."""

    def __init__(self, masks: Iterable[Mask], workspace: str) -> None:
        masks = tuple(masks)
        self._workspace = workspace.rstrip("/")
        self._hidden = _compile_masks(mask for mask in masks if mask.access != "write")
        self._read_only = _compile_masks(mask for mask in masks if mask.access != "read")

    def is_hidden(self, relative_path: str) -> bool:
        """Return True if no tool may read this path of the workspace."""
        return self._matches(self._hidden, relative_path)

    def is_read_only(self, relative_path: str) -> bool:
        """Return True if no tool may write it."""
        return self._matches(self._read_only, relative_path)

    def _matches(self, patterns: PatternSet | None, relative_path: str) -> bool:
        if patterns is None:
            return False
        texts = (f"r:{relative_path}", f"a:{self._workspace}/{relative_path}")
        return any(patterns.find_matches(form) for text in texts for form in {text, fold_text(text)})


class MaskSource:
    """The current masks of a policy. Recomputed when the rules change, or when one ends."""

    def __init__(self, policy: RuleSource, now: Callable[[], int] = time_ns) -> None:
        self._policy = policy
        self._now = now
        self._rules: object = None
        self._until = 0
        self._known: dict[str, tuple[Mask, ...]] = {}

    def masks_for(self, tool: str) -> tuple[Mask, ...]:
        """Return the masks for every tool, and for this one."""
        rules, now = self._policy.rules, self._now()
        if rules is not self._rules or 0 < self._until <= now:
            self._rules = rules
            self._until = min((rule.expires_at for rule in rules if rule.expires_at > now), default=0)
            self._known = {}
        if tool not in self._known:
            self._known[tool] = find_masks(self._policy, now, tool)
        return self._known[tool]


def _compile_masks(masks: Iterable[Mask]) -> PatternSet | None:
    found = [pattern for mask in masks for pattern in path_glob_to_regexes(mask.pattern, wide=True)]
    return PatternSet(found) if found else None
