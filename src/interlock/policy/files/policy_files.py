"""Policies in files, in up to four layers, as one policy engine.

All files are read and checked before anything changes. When one has a problem, the policy that was in force stays in
force; when there was none yet, everything is refused until the files are in order. A policy that was asked for and
cannot be read never means that things are allowed.

The rules of all layers decide together, and the strictest default of the files counts. A project file can only tighten:
it has no allow rules, and nothing else loosens.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import time_ns
from typing import Any

import msgspec

from ...domain.budget import BudgetRule
from ...domain.decision import Decision
from ...domain.egress import EgressRule
from ...domain.errors import ConfigurationError
from ..engine.rule import DefaultVerdict, Rule
from ..engine.rule_policy import RulePolicy
from ..interface import PolicyEvent
from . import saved_rules
from .atomic_write import lock_folder, replace_file
from .document import parse_document
from .examples import check_examples
from .layer_compiler import LAYER_LABELS, Layer, LayerRules, compile_layer
from .problems import PolicyFileError, PolicyProblem
from .source import parse_source, read_policy_file

#: The rule that denies while a policy cannot be read.
BROKEN_RULE_ID = "interlock:policy-file"
_DEFAULTS_BY_STRICTNESS: tuple[DefaultVerdict, ...] = ("allow", "risk", "ask", "deny")


class PolicyFileReport(msgspec.Struct, frozen=True):
    """The result of checking a valid file."""

    rules: tuple[Rule, ...]
    warnings: tuple[PolicyProblem, ...] = ()
    egress: tuple[EgressRule, ...] = ()
    budgets: tuple[BudgetRule, ...] = ()


class _LoadedPolicy(msgspec.Struct, frozen=True):
    policy: RulePolicy
    warnings: tuple[PolicyProblem, ...] = ()


def check_file(path: str | Path, layer: Layer = "user") -> PolicyFileReport:
    """Check a file. Raise `PolicyFileError` with all problems."""
    read = read_layer(str(path), layer)
    _build_policy([read], time_ns)
    return PolicyFileReport(read.rules, read.warnings, read.egress, read.budgets)


def load_policy(path: str | Path, layer: Layer = "user") -> RulePolicy:
    """Load a policy file, and check it with its examples. `PolicyFileError` lists everything that is wrong in it."""
    return _build_policy([read_layer(str(path), layer)], time_ns)


def read_layer(
    path: str, layer: Layer, content: bytes | None = None, *, workspace: str = "", now: Callable[[], int] = time_ns
) -> LayerRules:
    """Read one file and check its examples."""
    source = parse_source(read_policy_file(path) if content is None else content, path)
    read = compile_layer(source, parse_document(source), layer, now)
    if failing := check_examples(source, read.located_rules, read.resources, workspace):
        raise PolicyFileError(failing)
    return read


class PolicyFiles:
    """The policy of the named files. They are read now, and again by `reload()`."""

    def __init__(  # noqa: PLR0913 - one for each layer
        self,
        *,
        managed: str | Path | None = None,
        user: str | Path | None = None,
        project: str | Path | None = None,
        session: str | Path | None = None,
        workspace: str = "",
        now: Callable[[], int] = time_ns,
        read: Callable[[str], bytes] = read_policy_file,
    ) -> None:
        """
        Args:
            read: The content of a file by its path, whenever it is read. `PolicyFileError` when it may not count.
        """
        named: dict[Layer, str | Path | None] = {
            "managed": managed,
            "user": user,
            "project": project,
            "session": session,
        }
        self._paths: dict[Layer, str] = {layer: str(path) for layer, path in named.items() if path is not None}
        self._workspace = workspace
        self._now = now
        self._read = read
        self._lock = Lock()
        self._problems: tuple[PolicyProblem, ...] = ()
        try:
            self._loaded = self._load({})
        except PolicyFileError as error:
            self._problems = error.problems
            self._loaded = _LoadedPolicy(RulePolicy([self._make_deny_rule(error.problems)], default="deny"))
        #: The budgets of all layers. An attribute, since it is read for every call.
        self.budgets = self._loaded.policy.budgets

    def evaluate(self, event: PolicyEvent) -> Decision:
        """Decide about a call with the loaded rules."""
        return self._loaded.policy.evaluate(event)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of the files, which no tool may access. One need not exist to be read at the next start."""
        return tuple(map(os.path.abspath, self._paths.values()))

    @property
    def kept_in(self) -> str:
        """The file that rules are saved in; empty where none can be saved."""
        path = self._paths.get("user", "")
        return os.path.realpath(path) if path and not path.endswith(".toml") else ""

    @property
    def policy(self) -> RulePolicy:
        """Policy compiled from the files."""
        return self._loaded.policy

    @property
    def digest(self) -> str:
        """Digest of the loaded rules."""
        return self._loaded.policy.digest

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules of all layers."""
        return self._loaded.policy.rules

    @property
    def egress(self) -> tuple[EgressRule, ...]:
        """Egress rules of all layers."""
        return self._loaded.policy.egress

    @property
    def problems(self) -> tuple[PolicyProblem, ...]:
        """The problems of the last load. Empty when the files are in force."""
        return self._problems

    @property
    def warnings(self) -> tuple[PolicyProblem, ...]:
        """Problems that did not prevent loading."""
        return self._loaded.warnings

    def reload(self) -> tuple[PolicyProblem, ...]:
        """Read all files again: all of them are in force from now on, or with any problem none of them."""
        with self._lock:
            try:
                self._activate(self._load({}))
            except PolicyFileError as error:
                self._problems = error.problems
            return self._problems

    def keep(self, rule: str) -> str:
        """Save an allow rule in the user's file, and return its id. Refused when the file would be invalid."""
        with self._locked_user_file() as path:
            entry = saved_rules.parse_rule(rule)
            content = self._add_rule_to_content(path, entry)
            if content is None:
                self._activate(self._load({}))
            else:
                self._replace_user_file(path, content)
            return str(entry["id"])

    def preview_keep(self, rule: str) -> str:
        """Return the digest that the policy would have with this rule saved, and change nothing.

        Raises:
            ConfigurationError: The rule could not be kept.
        """
        path = self._require_user_file()
        content = self._add_rule_to_content(path, saved_rules.parse_rule(rule))
        return self._load({} if content is None else {"user": content}).policy.digest

    def _add_rule_to_content(self, path: str, entry: dict[str, Any]) -> bytes | None:
        """Return the content of the file with one rule more; None when it has that rule already."""
        before = read_policy_file(path) if os.path.lexists(path) else b""
        if before:
            parse_document(parse_source(before, path))
        return None if saved_rules.has_rule(before, entry, path) else saved_rules.add_rule(before, entry, path)

    def revoke(self, rule_id: str) -> bool:
        """Remove a saved rule from the user's file. Return False when there is no such rule."""
        with self._locked_user_file() as path:
            after = saved_rules.remove_rule(read_policy_file(path), rule_id, path) if os.path.lexists(path) else None
            if after is not None:
                self._replace_user_file(path, after)
            return after is not None

    def _replace_user_file(self, path: str, content: bytes) -> None:
        loaded = self._load({"user": content})
        replace_file(path, content)
        self._activate(loaded)

    @contextmanager
    def _locked_user_file(self) -> Generator[str]:
        """Lock the user's file against other writers, and yield its path."""
        path = self._require_user_file()
        try:
            with self._lock, lock_folder(path):
                yield path
        except OSError as error:
            raise PolicyFileError([PolicyProblem(path, 0, f"it cannot be written: {error.strerror}")]) from error

    def _require_user_file(self) -> str:
        path = self._paths.get("user")
        if path is None:
            raise ConfigurationError("No user policy file was named, so no rule can be kept.")
        if path.endswith(".toml"):
            raise ConfigurationError(f"{path}: rules are kept in YAML files only.")
        return path

    def _activate(self, loaded: _LoadedPolicy) -> None:
        self._loaded, self._problems, self.budgets = loaded, (), loaded.policy.budgets

    def _load(self, contents: Mapping[Layer, bytes]) -> _LoadedPolicy:
        layers: list[LayerRules] = []
        problems: list[PolicyProblem] = []
        for layer, path in self._paths.items():
            try:
                content = contents[layer] if layer in contents else self._read(path)
                layers.append(read_layer(path, layer, content, workspace=self._workspace, now=self._now))
            except PolicyFileError as error:
                problems += error.problems
        problems += _find_duplicate_ids(layers)
        if problems:
            raise PolicyFileError(problems)
        warnings = tuple(warning for layer in layers for warning in layer.warnings)
        return _LoadedPolicy(_build_policy(layers, self._now), warnings)

    def _make_deny_rule(self, problems: tuple[PolicyProblem, ...]) -> Rule:
        first = problems[0]
        layer: Layer = next(layer for layer, path in self._paths.items() if path == first.path)
        more = f" There are {len(problems) - 1} more problems." if len(problems) > 1 else ""
        return Rule(
            id=BROKEN_RULE_ID,
            verdict="deny",
            layer=LAYER_LABELS[layer],
            reason=f"The policy cannot be read, so nothing may run. {first}.{more} Fix the file and load it again.",
        )


def _find_duplicate_ids(layers: list[LayerRules]) -> list[PolicyProblem]:
    first: dict[str, LayerRules] = {}
    problems: list[PolicyProblem] = []
    for layer in layers:
        for rule_id, line in layer.lines.items():
            known = first.setdefault(rule_id, layer)
            if known is not layer:
                reason = f"the id {rule_id} is given twice; first in {known.path}, line {known.lines[rule_id]}"
                problems.append(PolicyProblem(layer.path, line, reason))
    return problems


def _build_policy(layers: list[LayerRules], now: Callable[[], int]) -> RulePolicy:
    rules = [rule for layer in layers for rule in layer.rules]
    resources = [declared for layer in layers for declared in layer.resources]
    effects = [declared for layer in layers for declared in layer.effects]
    egress = [rule for layer in layers for rule in layer.egress]
    budgets = [rule for layer in layers for rule in layer.budgets]
    defaults: list[DefaultVerdict] = [layer.default for layer in layers if layer.default is not None]
    try:
        default = max(defaults, key=_DEFAULTS_BY_STRICTNESS.index) if defaults else "risk"
        return RulePolicy(rules, default, resources, now, effects, egress, budgets)
    except ConfigurationError as error:  # each rule is valid, and all of them together are not
        raise PolicyFileError([PolicyProblem(layer.path, 0, str(error)) for layer in layers]) from None
