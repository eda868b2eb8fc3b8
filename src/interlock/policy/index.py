"""The rules that may speak about a subject, found without asking each of them.

A rule is filed once, under the rarest thing that it names: the program of a command, a host, a path, the value of an
argument. What names none of these is asked every time. Being found is not speaking: `rules.py` looks at the rest.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import basename
from typing import Any

from ..domain import json
from ..domain.resources import values_at
from .compiled import Compiled
from .paths import Touched
from .patterns import PatternSet, folded
from .rule import ArgumentIs
from .subject import Subject


class Index:
    def __init__(self, rules: Sequence[Compiled]) -> None:
        self.rules = rules
        self._programs: dict[str, list[int]] = defaultdict(list)
        self._hosts: dict[str, list[int]] = defaultdict(list)
        self._values: dict[tuple[str, ...], dict[bytes, list[int]]] = {}
        self._always: list[int] = []
        self._wide = _PathSet((at, rule) for at, rule in enumerate(rules) if rule.paths and rule.wide)
        self._narrow = _PathSet((at, rule) for at, rule in enumerate(rules) if rule.paths and not rule.wide)
        for at, rule in enumerate(rules):
            self._file(at, rule)

    def found(self, subject: Subject, arguments: Mapping[str, Any]) -> Iterator[Compiled]:
        """The rules that may speak. Of those about paths, only those whose paths fit."""
        by_path = self._by_path(subject.paths) if subject.paths else set[int]()
        found = {*self._always, *by_path, *self._by_program(subject), *self._by_host(subject)}
        for names, filed in self._values.items():
            for value in values_at(arguments, list(names)):
                found.update(filed.get(json.encode_sorted(value), ()))
        for at in sorted(found):
            rule = self.rules[at]
            if not rule.paths or at in by_path:
                yield rule

    def _file(self, at: int, rule: Compiled) -> None:
        exact = [(names, test.value) for names, test, _ in rule.arguments if isinstance(test, ArgumentIs)]
        if rule.commands and not any(set(pattern.words[0]) & set("*?[") for pattern in rule.commands):
            for name in {basename(pattern.words[0]) for pattern in rule.commands}:
                self._programs[name].append(at)
        elif rule.hosts and "*" not in rule.hosts:
            for host in {pattern.removeprefix("*.") for pattern in rule.hosts}:
                self._hosts[host].append(at)
        elif exact:
            names, value = exact[0]
            self._values.setdefault(names, {}).setdefault(json.encode_sorted(value), []).append(at)
        elif not rule.paths:
            self._always.append(at)

    def _by_program(self, subject: Subject) -> Iterator[int]:
        if subject.command is not None and self._programs:
            for name in {basename(word) for word in (subject.command.argv[0], *subject.command.wrappers)}:
                yield from self._programs.get(name, ())

    def _by_host(self, subject: Subject) -> Iterator[int]:
        if self._hosts:
            for host in subject.hosts:
                labels = host.split(".")
                for start in range(len(labels)):
                    yield from self._hosts.get(".".join(labels[start:]), ())

    def _by_path(self, paths: tuple[Touched, ...]) -> set[int]:
        return {*self._wide.any_of(paths), *self._narrow.all_of(paths)}


class _PathSet:
    """The path patterns of many rules, in one automaton."""

    def __init__(self, rules: Iterable[tuple[int, Compiled]]) -> None:
        self._rules = dict(rules)
        patterns = [(at, pattern) for at, rule in self._rules.items() for pattern in rule.paths]
        self._of_pattern = [at for at, _ in patterns]
        self._set = PatternSet([pattern for _, pattern in patterns]) if patterns else None

    def any_of(self, paths: tuple[Touched, ...]) -> set[int]:
        """Rules with a pattern that fits one of the places that one of the paths may lead to."""
        if self._set is None:
            return set()
        return {
            at
            for path in paths
            for at in self._hits(self._set, [folded(text) for place in path.places for text in place.texts])
            if self._is_meant(at, path)
        }

    def all_of(self, paths: tuple[Touched, ...]) -> set[int]:
        """Rules whose patterns fit every place that every path may lead to."""
        if self._set is None or not all(path.places for path in paths):
            return set()
        hits = [
            {at for at in self._hits(self._set, place.texts) if self._is_meant(at, path)}
            for path in paths
            for place in path.places
        ]
        return hits[0].intersection(*hits[1:])

    def _hits(self, patterns: PatternSet, texts: Iterable[str]) -> set[int]:
        return {self._of_pattern[hit] for text in texts for hit in patterns.matching(text)}

    def _is_meant(self, at: int, path: Touched) -> bool:
        access = self._rules[at].access
        return access is None or (access == "write") == path.writes
