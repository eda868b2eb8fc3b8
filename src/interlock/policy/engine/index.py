"""The rules that may speak about a subject, found without asking each of them.

A rule is filed once, under the rarest thing that it names: the program of a command, a host, a path, the value of an
argument. What names none of these is asked every time. Being found is not speaking: `rules.py` looks at the rest.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...domain.resources import values_at
from ..shell.command import SimpleCommand
from ..shell.match import ANY_WORD, program_name
from .compiled import Compiled, one_form
from .paths import Touched
from .patterns import PatternSet, folded
from .rule import ArgumentIs, CommandPattern
from .subject import Subject


class Index:
    def __init__(self, rules: Sequence[Compiled]) -> None:
        self.rules = rules
        self._hosts: dict[str, list[int]] = defaultdict(list)
        self._values: dict[tuple[str, ...], dict[bytes, list[int]]] = {}
        self._always: list[int] = []
        self._wide = _PathSet((at, rule) for at, rule in enumerate(rules) if rule.paths and rule.wide)
        self._narrow = _PathSet((at, rule) for at, rule in enumerate(rules) if rule.paths and not rule.wide)
        self._programs = _Programs((at, rule) for at, rule in enumerate(rules) if _names_programs(rule))
        for at, rule in enumerate(rules):
            self._file(at, rule)

    def found(self, subject: Subject, arguments: Mapping[str, Any]) -> Iterator[Compiled]:
        """The rules that may speak. Of those about paths, only those whose paths fit."""
        by_path = self._by_path(subject.paths) if subject.paths else set[int]()
        by_program = self._programs.found(subject.command) if subject.command is not None else ()
        found = {*self._always, *by_path, *by_program, *self._by_host(subject)}
        for names, filed in self._values.items():
            for value in values_at(arguments, list(names)):
                found.update(filed.get(one_form(value), ()))
        for at in sorted(found):
            rule = self.rules[at]
            if not rule.paths or at in by_path:
                yield rule

    def _file(self, at: int, rule: Compiled) -> None:
        exact = [(names, test.value) for names, test, _ in rule.arguments if isinstance(test, ArgumentIs)]
        if _names_programs(rule):
            return
        if rule.hosts and "*" not in rule.hosts:
            for host in {pattern.removeprefix("*.") for pattern in rule.hosts}:
                self._hosts[host].append(at)
        elif exact:
            names, value = exact[0]
            self._values.setdefault(names, {}).setdefault(one_form(value), []).append(at)
        elif not rule.paths:
            self._always.append(at)

    def _by_host(self, subject: Subject) -> Iterator[int]:
        if self._hosts:
            for host in subject.hosts:
                labels = host.split(".")
                for start in range(len(labels)):
                    yield from self._hosts.get(".".join(labels[start:]), ())

    def _by_path(self, paths: tuple[Touched, ...]) -> set[int]:
        return {*self._wide.any_of(paths), *self._narrow.all_of(paths)}


class _Programs:
    """Rules by the program that they name, and by the rarest other word that a command must have to be meant."""

    def __init__(self, rules: Iterable[tuple[int, Compiled]]) -> None:
        patterns = [
            (at, program_name(pattern.words[0]), _literals(pattern)) for at, rule in rules for pattern in rule.commands
        ]
        uses = Counter((program, word) for _, program, words in patterns for word in words)
        self._rules: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, program, words in patterns:
            rarest = min(words, key=lambda word, program=program: uses[program, word], default="")
            self._rules[program][rarest].append(at)

    def found(self, command: SimpleCommand) -> Iterator[int]:
        by_word = self._rules.get(program_name(command.argv[0]), {})
        # What the file system makes of a wildcard may be any word.
        for word in by_word if command.globs else {"", *command.argv[1:]}:
            yield from by_word.get(word, ())
        # A pattern that names a wrapper goes on with words of the wrapped command, spelled as a program may be.
        for wrapper in command.wrappers:
            for rules in self._rules.get(program_name(wrapper), {}).values():
                yield from rules


def _names_programs(rule: Compiled) -> bool:
    return bool(rule.commands) and not any(set(pattern.words[0]) & set("*?[") for pattern in rule.commands)


def _literals(pattern: CommandPattern) -> list[str]:
    """The words that a command must have as they are written: neither options nor `*`."""
    return [word for word in pattern.words[1:] if word != ANY_WORD and (word == "-" or not word.startswith("-"))]


def _spellings(path: Touched) -> list[str]:
    return [spelling for place in path.places for text in place.texts for spelling in (text, folded(text))]


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
        return {at for path in paths for at in self._hits(self._set, _spellings(path)) if self._is_meant(at, path)}

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
