"""tree-sitter-bash: the second opinion on a script, and what can be seen in one that is not proved.

tree-sitter alone is not enough: it takes some bytes for blanks that bash does not, and recovers from errors.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from .bash_words import scan_word
from .command import make_word_set
from .hidden_programs import is_program_variable

_READ_KINDS = make_word_set(
    "program list pipeline subshell compound_statement negated_command redirected_statement command command_name "
    "word number raw_string string string_content ansi_c_string concatenation comment variable_assignment "
    "variable_name file_redirect file_descriptor heredoc_redirect heredoc_start heredoc_body heredoc_end "
    "herestring_redirect test_command unary_expression binary_expression test_operator extglob_pattern"
)
_COMMAND_KINDS = make_word_set("command test_command declaration_command unset_command")
_NON_WORD_KINDS = make_word_set("file_redirect heredoc_redirect herestring_redirect variable_assignment")


class SeenCommands(NamedTuple):
    """What looks like commands and redirects. Unproven."""

    commands: list[tuple[str, ...]]
    #: Paths that are opened, and whether for writing.
    redirects: list[tuple[str, bool]]


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


#: To bash, every byte beyond ASCII is a letter of a word. To the grammar's scanner it is an index into a table of 256.
_AS_LETTERS = bytes(range(128)) + b"x" * 128


def parse(source: bytes) -> Node:
    """Parse bash source to a syntax tree."""
    return Parser(_language()).parse(source.translate(_AS_LETTERS)).root_node


def find_disagreement(root: Node, starts: frozenset[int]) -> str:
    """Return why the tree does not confirm that the script is plain and that its programs are at these positions; empty
    when it does.
    """
    if root.has_error:
        return "it cannot be parsed"
    found = set[int]()
    for node in _walk_nodes(root):
        if node.is_named and node.type not in _READ_KINDS:
            return f"it has a construct that is not read: {node.type.replace('_', ' ')}"
        if node.type in ("command_name", "test_command"):
            found.add(node.start_byte)
    return "" if found == set(starts) else "two parsers do not agree on it"


def collect_seen(root: Node, source: bytes) -> SeenCommands:
    """Collect all commands and redirections of a syntax tree."""
    found = SeenCommands([], [])
    for node in _walk_nodes(root):
        children = node.children
        for at, child in enumerate(children):
            if child.type in _COMMAND_KINDS:
                found.commands.append(tuple(_command_words(children, at, source)))
            elif child.type == "variable_assignment" and is_program_variable(
                _variable_name(text := _word_text(child, source))
            ):
                found.commands.append((text,))
            elif child.type == "file_redirect":
                writes = not any(part.type in ("<", "<&") for part in child.children)
                found.redirects.extend(
                    [(_word_text(target, source), writes) for target in _redirect_targets(child)[:1]]
                )
    return found


def _variable_name(assignment: str) -> str:
    return assignment.partition("=")[0].removesuffix("+")


def _walk_nodes(root: Node) -> Iterator[Node]:
    """Yield all nodes, in the order of the text; without recursion, since a script may be nested deeply."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _command_words(nodes: list[Node], at: int, source: bytes) -> Iterator[str]:
    """Yield the words of the command there, also those behind a redirect, which the tree counts to the redirect."""
    for child in nodes[at].children:
        if child.type not in _NON_WORD_KINDS:
            yield _word_text(child, source)
    for number in range(at + 1, len(nodes)):
        if nodes[number].type != "file_redirect":
            break
        yield from [_word_text(word, source) for word in _redirect_targets(nodes[number])[1:]]


def _redirect_targets(redirect: Node) -> list[Node]:
    return [child for child in redirect.children if child.is_named and child.type != "file_descriptor"]


def _word_text(node: Node, source: bytes) -> str:
    """Return the word without its quotes where it is literal; what is written otherwise."""
    word = scan_word(source, node.start_byte)
    if not word.reason and word.end == node.end_byte:
        return word.text
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
