"""An index of rules: finds the rules that may match without trying each of them.

A rule is filed once, under the rarest thing that it names: the program of a command, a host, a path, the value of an
argument. A rule that names none of these is always a candidate. Candidates are then matched in full: see
`tool_plan.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...domain.tool import values_at
from ..patterns import PatternSet, fold_text
from ..shell.command import SimpleCommand
from ..shell.command_match import ANY_WORD, normalize_program_name
from .call_parts import CallPart
from .compiled_rule import CompiledRule, normalize_value
from .paths import PathAccess
from .rule import ArgumentIs, CommandPattern


class RuleIndex:
    """Finds the rules that may match a part of a call."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = rules
        self._hosts: dict[str, list[int]] = defaultdict(list)
        self._values: dict[tuple[str, ...], dict[bytes, list[int]]] = {}
        self._always: list[int] = []
        self._wide = _PathIndex((at, rule) for at, rule in enumerate(rules) if rule.paths and rule.is_wide)
        self._narrow = _PathIndex((at, rule) for at, rule in enumerate(rules) if rule.paths and not rule.is_wide)
        self._programs = _ProgramIndex((at, rule) for at, rule in enumerate(rules) if _has_literal_programs(rule))
        for at, rule in enumerate(rules):
            self._add_rule(at, rule)

    def find_candidates(self, subject: CallPart, arguments: Mapping[str, Any]) -> Iterator[CompiledRule]:
        """Yield the rules that may match. Of those about paths, only those whose paths match."""
        by_path = self._find_by_path(subject.paths) if subject.paths else set[int]()
        by_program = self._programs.find(subject.command) if subject.command is not None else ()
        found = {*self._always, *by_path, *by_program, *self._find_by_host(subject)}
        for names, filed in self._values.items():
            for value in values_at(arguments, list(names)):
                found.update(filed.get(normalize_value(value), ()))
        for at in sorted(found):
            rule = self.rules[at]
            if not rule.paths or at in by_path:
                yield rule

    def _add_rule(self, at: int, rule: CompiledRule) -> None:
        exact = [(names, test.value) for names, test, _ in rule.arguments if isinstance(test, ArgumentIs)]
        if _has_literal_programs(rule):
            return
        if rule.hosts and "*" not in rule.hosts:
            for host in {pattern.removeprefix("*.") for pattern in rule.hosts}:
                self._hosts[host].append(at)
        elif exact:
            names, value = exact[0]
            self._values.setdefault(names, {}).setdefault(normalize_value(value), []).append(at)
        elif not rule.paths:
            self._always.append(at)

    def _find_by_host(self, subject: CallPart) -> Iterator[int]:
        if self._hosts:
            for host in subject.hosts:
                labels = host.split(".")
                for start in range(len(labels)):
                    yield from self._hosts.get(".".join(labels[start:]), ())

    def _find_by_path(self, paths: tuple[PathAccess, ...]) -> set[int]:
        return {*self._wide.find_any(paths), *self._narrow.find_all(paths)}


class _ProgramIndex:
    """Rules by the program that they name, and by the rarest other word that a command must have to be meant."""

    def __init__(self, rules: Iterable[tuple[int, CompiledRule]]) -> None:
        patterns = [
            (at, normalize_program_name(pattern.words[0]), _literal_words(pattern))
            for at, rule in rules
            for pattern in rule.commands
        ]
        uses = Counter((program, word) for _, program, words in patterns for word in words)
        self._rules: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, program, words in patterns:
            rarest = min(words, key=lambda word, program=program: uses[program, word], default="")
            self._rules[program][rarest].append(at)

    def find(self, command: SimpleCommand) -> Iterator[int]:
        by_word = self._rules.get(normalize_program_name(command.argv[0]), {})
        # What the file system makes of a wildcard may be any word.
        for word in by_word if command.globs else {"", *command.argv[1:]}:
            yield from by_word.get(word, ())
        # A pattern that names a wrapper continues with words of the wrapped command, spelled as a program may be.
        for wrapper in command.wrappers:
            for rules in self._rules.get(normalize_program_name(wrapper), {}).values():
                yield from rules


def _has_literal_programs(rule: CompiledRule) -> bool:
    return bool(rule.commands) and not any(set(pattern.words[0]) & set("*?[") for pattern in rule.commands)


def _literal_words(pattern: CommandPattern) -> list[str]:
    """Return the words that a command must have as they are written: neither options nor `*`."""
    return [word for word in pattern.words[1:] if word != ANY_WORD and (word == "-" or not word.startswith("-"))]


def _spellings(path: PathAccess) -> list[str]:
    return [spelling for place in path.targets for text in place.match_texts for spelling in (text, fold_text(text))]


class _PathIndex:
    """The path patterns of many rules, in one automaton."""

    def __init__(self, rules: Iterable[tuple[int, CompiledRule]]) -> None:
        self._rules = dict(rules)
        patterns = [(at, pattern) for at, rule in self._rules.items() for pattern in rule.paths]
        self._rule_of_pattern = [at for at, _ in patterns]
        self._set = PatternSet([pattern for _, pattern in patterns]) if patterns else None

    def find_any(self, paths: tuple[PathAccess, ...]) -> set[int]:
        """Find rules with a pattern that matches a possible target of any of the paths."""
        if self._set is None:
            return set()
        return {at for path in paths for at in self._match(self._set, _spellings(path)) if self._applies_to(at, path)}

    def find_all(self, paths: tuple[PathAccess, ...]) -> set[int]:
        """Find rules whose patterns match every possible target of all paths."""
        if self._set is None or not all(path.targets for path in paths):
            return set()
        hits = [
            {at for at in self._match(self._set, place.match_texts) if self._applies_to(at, path)}
            for path in paths
            for place in path.targets
        ]
        return hits[0].intersection(*hits[1:])

    def _match(self, patterns: PatternSet, texts: Iterable[str]) -> set[int]:
        return {self._rule_of_pattern[hit] for text in texts for hit in patterns.find_matches(text)}

    def _applies_to(self, at: int, path: PathAccess) -> bool:
        access = self._rules[at].rule.access
        return access is None or (access == "write") == path.writes
