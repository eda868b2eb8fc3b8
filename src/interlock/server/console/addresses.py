"""Addresses in templates and scripts, where the server is served below a path (`rest/public_path.py`).

They are written from the root of the server, and get the path when the file is loaded: an attribute or a string that
begins with an address; and an attribute for addresses that begins with a condition, or with an expression, whose value
goes through a filter.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import Environment
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from markupsafe import Markup

_ADDRESS_START = re.compile(r"/(?:console|consents|session|v1)\b")
_ADDRESS = re.compile(r"""(?<=["'`])/(?=(?:console|consents|session|v1)\b)""")
_ADDRESS_ATTRIBUTE = re.compile(r'\s(?:href|src|action|formaction|data-(?:[\w-]+-)?(?:href|path|url))="$')
_FILTER = "public_address"
_FILTER_TOKENS = (("rparen", ")"), ("pipe", "|"), ("name", _FILTER))


def add_public_path(source: str, path: str) -> str:
    """Put a path before the addresses that a source text has."""
    return _ADDRESS.sub(f"{path}/", source) if path else source


def build_template_extension(path: str) -> type[Extension]:
    """Return the extension of Jinja that puts a path before the addresses in templates."""

    def to_public(value: Any) -> Any:
        """Return the value of an attribute. What is escaped stays escaped, and only that."""
        if not isinstance(value, str) or not value.startswith("/") or value.startswith("//"):
            return value
        return Markup(path) + value if isinstance(value, Markup) else path + value  # noqa: S704 - checked in settings

    class AddressExtension(Extension):
        """Rewrites the tokens of a template."""

        def __init__(self, environment: Environment) -> None:
            super().__init__(environment)
            environment.filters[_FILTER] = to_public

        def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
            rewriter = _Rewriter(path)
            return (rewritten for token in stream for rewritten in rewriter.rewrite(token))

    return AddressExtension


class _Rewriter:
    """Rewrites the tokens of one template, in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        #: Whether the value of an attribute for addresses begins here, and began at the branches around.
        self._is_start, self._branches = False, list[bool]()
        self._is_block = self._is_wrapped = False

    def rewrite(self, token: Token) -> Iterator[Token]:
        """Yield the tokens that stand for this one."""
        is_block, self._is_block = self._is_block, token.type == "block_begin"
        match token.type:
            case "data":
                is_address = self._is_start and _ADDRESS_START.match(token.value)
                text = self._path + token.value if is_address else token.value
                self._is_start = _ADDRESS_ATTRIBUTE.search(text) is not None
                yield Token(token.lineno, "data", add_public_path(text, self._path))
            case "variable_begin":
                self._is_wrapped, self._is_start = self._is_start, False
                yield token
                if self._is_wrapped:
                    yield Token(token.lineno, "lparen", "(")
            case "variable_end":
                if self._is_wrapped:
                    yield from (Token(token.lineno, kind, text) for kind, text in _FILTER_TOKENS)
                yield token
            case _:
                if is_block:
                    self._begin_block(token.value)
                yield token

    def _begin_block(self, name: str) -> None:
        if name in ("if", "for"):
            self._branches.append(self._is_start)
        elif name in ("elif", "else"):
            self._is_start = self._branches[-1]
        elif name in ("endif", "endfor"):
            self._branches.pop()
