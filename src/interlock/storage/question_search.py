"""Search in questions: words that have to occur, and bounds of numbers in the arguments, such as `amount>=500`."""

import re
from collections import deque
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from operator import eq, ge, gt, le, lt
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from ..domain.call import Question

#: Of a question, what a search looks at: its title, tool and rules, and the first of its arguments.
MAX_QUESTION_WORDS = 2_000
_MAX_VALUES = 400
#: Numbers of a question that bounds apply to, and the length of their names.
_MAX_NUMBERS = 40
_MAX_NAME_CHARS = 80
_MAX_SEARCH_WORDS = 8

Comparison: TypeAlias = Literal[">=", "<=", ">", "<", "="]
_COMPARE: Mapping[str, Any] = {">=": ge, "<=": le, ">": gt, "<": lt, "=": eq}
_BOUND = re.compile(r"(?<!\S)([^\s<>=]+?)\s*(>=|<=|>|<|=)\s*(-?\d{1,15}(?:\.\d{1,9})?)(?!\S)")
#: `542`, `542.00`, `542.00 EUR`, `$542`.
_NUMBER = re.compile(r"(?:[A-Z]{3} ?|[$€£¥])?(-?\d{1,15}(?:\.\d{1,9})?)(?: ?(?:[A-Z]{3}|[$€£¥%]))?")


class NumberBound(NamedTuple):
    """A bound of a number in the arguments."""

    name: str
    comparison: Comparison
    value: float


class QuestionSearch(NamedTuple):
    """What a search asks for. All of it has to hold."""

    words: tuple[str, ...]
    bounds: tuple[NumberBound, ...]

    def matches(self, question: Question) -> bool:
        """Return True if the question has all of it."""
        text, numbers = list_question_words(question), list_question_numbers(question)
        return all(word in text for word in self.words) and all(
            bound.name in numbers and _COMPARE[bound.comparison](numbers[bound.name], bound.value)
            for bound in self.bounds
        )


def parse_search(text: str) -> QuestionSearch:
    """Return what a text asks for: `refund mia amount>=500`. Of very many words the first count."""
    bounds = tuple(
        NumberBound(normalize_search_text(found[1]), cast(Comparison, found[2]), float(found[3]))
        for found in islice(_BOUND.finditer(text), _MAX_SEARCH_WORDS)
    )
    words = _BOUND.sub(" ", text).split()[:_MAX_SEARCH_WORDS]
    return QuestionSearch(tuple(map(normalize_search_text, words)), bounds)


def normalize_search_text(text: str) -> str:
    """Return text in the form used for search: case-insensitive."""
    return text.casefold()


def list_question_words(question: Question) -> str:
    """Return the text that a search in questions looks at: the title, and arguments as far as there is space."""
    words = [question.headline, question.tool_name, question.capability, *question.rule_ids]
    left: list[Any] = [question.arguments]
    for _ in range(_MAX_VALUES):
        if not left:
            break
        value = left.pop()
        if isinstance(value, dict):
            for name, inner in reversed(list(islice(cast(dict[str, Any], value).items(), _MAX_VALUES))):
                left += [inner, name]
        elif isinstance(value, list):
            left += reversed(cast(list[Any], value)[:_MAX_VALUES])
        else:
            words.append(str(value)[:MAX_QUESTION_WORDS])
    return normalize_search_text("\n".join(words)[:MAX_QUESTION_WORDS])


def list_question_numbers(question: Question) -> dict[str, float]:
    """Return the numbers of a question by name: `amount`, and for one inside of another value `order.amount` as well.
    Of several with one name, the outermost counts.
    """
    found: dict[str, float] = {}
    left: deque[tuple[str, Any]] = deque((fact.name, fact.value) for fact in question.key_facts)
    left.extend(question.arguments.items())
    for _ in range(_MAX_VALUES):
        if not left or len(found) >= _MAX_NUMBERS:
            break
        path, value = left.popleft()
        if isinstance(value, dict):
            inner = islice(cast(dict[str, Any], value).items(), _MAX_VALUES)
            left.extend((f"{path}.{name}", each) for name, each in inner)
        elif isinstance(value, list):
            left.extend((path, each) for each in cast(list[Any], value)[:_MAX_VALUES])
        elif (number := _to_number(value)) is not None and len(path) <= _MAX_NAME_CHARS:
            for name in (path, path.rpartition(".")[2]):
                found.setdefault(normalize_search_text(name), number)
    return found


def _to_number(value: Any) -> float | None:
    if isinstance(value, str):
        matched = _NUMBER.fullmatch(value.strip()) if len(value) <= _MAX_NAME_CHARS else None
        return None if matched is None else float(matched[1])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
