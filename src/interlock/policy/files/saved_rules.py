"""Saved rules: rules that people approved permanently, in a separate block of a policy file.

Each is one line between two comments, at the end of the list `rules`. A file is changed as text: a line is put in or
removed, and everything else stays as people wrote it, byte for byte. The new text is parsed again and has to mean what
the old one did with one rule more, or less; else the change is refused.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from time import time_ns
from typing import Any, cast

import msgspec
import yaml

from ...domain.errors import ConfigurationError
from ..engine.rule import Rule
from .document import parse_document
from .examples import check_examples
from .layer_compiler import compile_layer
from .problems import PolicyFileError
from .rule_comparison import find_wider_condition
from .source import parse_source

BLOCK_BEGIN = "# interlock: kept rules begin here; each line is a rule, written by the program"
BLOCK_END = "# interlock: kept rules end here"
_YAML: Any = yaml
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_RULE_CHARS = 10_000


def parse_rule(text: str) -> dict[str, Any]:
    """Parse one line of YAML or JSON as a rule with an id. Raise `ConfigurationError` unless it allows something."""
    line = text.strip().removeprefix("- ").strip()
    if not line or "\n" in line or "\r" in line or len(line) > _MAX_RULE_CHARS:
        raise ConfigurationError(f"A rule to keep is one line of at most {_MAX_RULE_CHARS:,} characters.")
    try:
        value = parse_source(line.encode(errors="surrogatepass"), "rule").value
    except PolicyFileError as error:
        raise ConfigurationError(f"This is no rule to keep: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError("A rule to keep has keys, as in {decision: allow, tools: read_file}.")
    rule = cast(dict[str, Any], value)
    if rule.get("decision") != "allow":
        raise ConfigurationError("Only rules that allow are kept; write others into the file.")
    return rule if "id" in rule else {"id": f"kept-{sha256(_encode(rule)).hexdigest()[:8]}", **rule}


def load_rule(entry: dict[str, Any]) -> Rule:
    """Return an entry of `rules` as the rule that a user's policy file would have, with its examples checked.

    Raises:
        PolicyFileError: The entry is not a valid rule, or an example of it fails.
    """
    source = parse_source(_encode({"version": 1, "rules": [entry]}), "rule")
    layer = compile_layer(source, parse_document(source), "user", time_ns)
    if problems := check_examples(source, layer.located_rules, ()):
        raise PolicyFileError(problems)
    return layer.rules[0]


def find_rule_problem(rule: str, suggested: str) -> str:
    """Return why this rule may not be saved where the other one was suggested; empty when it may.

    It may when it is the suggested one, or one that is provably narrower.
    """
    if not suggested:
        return "No rule was suggested with this question, so none can be kept."
    if rule.strip() == suggested.strip():
        return ""
    try:
        key = find_wider_condition(load_rule(parse_rule(rule)), load_rule(parse_rule(suggested)))
    except (ConfigurationError, PolicyFileError) as error:
        return f"The rule cannot be compared with the suggested one: {error}"
    if not key:
        return ""
    return (
        f"The rule is not provably narrower than the suggested one: see its `{key}`. "
        "Keep the suggested rule, or add conditions to it."
    )


def has_rule(content: bytes, rule: dict[str, Any], path: str) -> bool:
    """Return True if the file already has exactly this rule."""
    return any(_encode(kept) == _encode(rule) for _, kept in _iterate_saved_rules(_split_lines(content.decode()), path))


def add_rule(content: bytes, rule: dict[str, Any], path: str) -> bytes:
    """Return the file with one rule more. An empty file becomes a policy."""
    text = _drop_empty_list(content.decode() or "version: 1\n")
    newline = "\r\n" if "\r\n" in text else "\n"
    line = json.dumps(rule, ensure_ascii=False, separators=(", ", ": "))
    lines = _split_lines(text)
    place, indent, begins = _find_insertion_point(text, lines)
    if begins is None:
        new = [f"{indent}- {line}{newline}"]
    else:
        new = [*begins, *(f"{indent}{each}{newline}" for each in (BLOCK_BEGIN, f"- {line}", BLOCK_END))]
    if place and not lines[place - 1].endswith("\n"):
        new.insert(0, newline)
    changed = "".join([*lines[:place], *new, *lines[place:]]).encode()
    return _verify_change(text.encode(), changed, rule, path)


def remove_rule(content: bytes, rule_id: str, path: str) -> bytes | None:
    """Return the file without a saved rule; None when it has no such rule."""
    parse_source(content, path)
    lines = _split_lines(content.decode())
    for index, rule in _iterate_saved_rules(lines, path):
        if rule.get("id") == rule_id:
            changed = "".join([*lines[:index], *lines[index + 1 :]]).encode()
            _verify_change(changed, content, rule, path)
            return changed
    return None


def _verify_change(less: bytes, more: bytes, rule: dict[str, Any], path: str) -> bytes:
    """Return the longer text, when it says what the shorter one does and this rule."""
    said: Any = parse_source(less, path).value
    try:
        now: Any = parse_source(more, path).value
    except PolicyFileError:
        now = {}
    rules: list[Any] = list(now.get("rules") or [])
    found = next((index for index, each in enumerate(rules) if _encode(each) == _encode(rule)), None)
    if found is not None:
        del rules[found]
        if _encode({**said, "rules": said.get("rules") or []}) == _encode({**now, "rules": rules}):
            return more
    raise ConfigurationError(f"{path}: a rule can be kept only in a plain list of rules, one under the other.")


def _drop_empty_list(text: str) -> str:
    """Return the text with `rules:` in place of `rules: []`."""
    for key, value in _YAML.compose(text, Loader=_LOADER).value:
        if key.value == "rules" and isinstance(value, yaml.SequenceNode) and not value.value:
            return text[: value.start_mark.index].rstrip(" ") + text[value.end_mark.index :]
    return text


def _find_insertion_point(text: str, lines: list[str]) -> tuple[int, str, list[str] | None]:
    """Return where a line goes, its indent, and what comes before a new block; None where there is a block."""
    for index, line in enumerate(lines):
        if line.strip() == BLOCK_END:
            return index, line[: len(line) - len(line.lstrip())], None
    last, indent = _find_end_of_rules(text)
    if last is None:
        return len(lines), "  ", ["rules:\r\n" if "\r\n" in text else "rules:\n"]
    return min(last + 1, len(lines)), indent, []


def _find_end_of_rules(text: str) -> tuple[int | None, str]:
    """Return the last line of the list `rules`, and how far in its entries stand."""
    # The text was read by `parse_source`, so it is small, not deep, and without aliases.
    document = _YAML.compose(text, Loader=_LOADER)
    for key, value in document.value if isinstance(document, yaml.MappingNode) else ():
        if key.value == "rules":
            is_list = isinstance(value, yaml.SequenceNode)
            return (_find_last_line(value), " " * value.start_mark.column) if is_list else (key.start_mark.line, "  ")
    return None, ""


def _find_last_line(first: Any) -> int:
    node: Any = first
    while not isinstance(node, yaml.ScalarNode) and not node.flow_style:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    # A text over several lines ends where the next line begins.
    return node.end_mark.line if node.end_mark.column else node.end_mark.line - 1


def _iterate_saved_rules(lines: list[str], path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of the block, each with its rule."""
    inside = False
    for index, line in enumerate(lines):
        text = line.strip()
        if text in (BLOCK_BEGIN, BLOCK_END):
            inside = text == BLOCK_BEGIN
        elif inside and text.startswith("- "):
            value = parse_source(text.removeprefix("- ").encode(), path).value
            if isinstance(value, dict):
                yield index, cast(dict[str, Any], value)


def _split_lines(text: str) -> list[str]:
    """Split a text into lines with their ends, so that they join to the same text."""
    pieces = text.split("\n")
    return [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
