"""Text as HTML: nothing is lost, nothing is hidden, nothing is markup."""

import json
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader, Environment

from interlock.rendering.escaping import escape_invisible
from interlock.server.console.markup import build_outline, escape_exact, finalize_value, render_lines, render_text
from interlock.server.console.views.question import to_editable_json
from tests.corpora import injection
from tests.each import each
from tests.pipeline.approval.display_reader import parse_outline, unescape_invisible

_TAG = re.compile(r'<span class="(unseen|spaces)">|</span>')
_HOSTILE = [attack.payload for attack in injection.load()] + list(injection.MORE)
_texts = st.one_of(st.text(), st.sampled_from(_HOSTILE), st.text("<>&\"'\\ \u202e\u200b[]|=:>\n", max_size=20))
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


def _seen(html: str) -> str:
    """What a browser shows of it, which has no other tags than our marks."""
    plain = _TAG.sub("", html)
    assert "<" not in plain
    assert ">" not in plain
    return unescape(plain)


@given(_texts)
def test_shown_text_reads_back_and_has_no_markup_but_our_marks(text: str) -> None:
    assert unescape_invisible(_seen(render_text(text))) == text


@each(
    ("line", "marked"),
    [
        ("\tx = 1    # one", []),
        ("name" + " " * 71 + "size", []),
        (" " * 40 + "deep", []),
        ("x  ", [r"\u{20}", r"\u{20}"]),
        ("x\t", [r"\t"]),
        ("x    \t", ["[4 spaces]", r"\t"]),
        ("x" + " " * 400 + "y", ["[400 spaces]"]),
        ("    ", ["[4 spaces]"]),
        ("a\u202eb\u200b\x1b", [r"\u{202e}", r"\u{200b}", r"\u{1b}"]),
    ],
)
def test_only_deceptive_whitespace_is_marked(line: str, marked: list[str]) -> None:
    (html,) = render_lines(line)
    assert re.findall(r'<span class="unseen">(.*?)</span>', html) == marked
    assert unescape_invisible(_seen(html)) == line


def test_leading_spaces_of_a_value_are_marked() -> None:
    assert render_text("     root") == '<span class="unseen">[5 spaces]</span>root'
    assert render_text("a     b") == 'a<span class="spaces">     </span>b'


@given(_texts)
def test_lines_are_all_there(text: str) -> None:
    assert "\n".join(unescape_invisible(_seen(line)) for line in render_lines(text)) == text


@given(st.dictionaries(_texts, _values, max_size=4))
def test_an_outline_reads_back_as_the_same_arguments(arguments: dict[str, object]) -> None:
    assert parse_outline((line.depth, line.text) for line in build_outline(arguments)) == arguments


@given(_texts)
def test_what_a_template_puts_out_without_a_word_is_visible_and_escaped(text: str) -> None:
    environment = Environment(loader=DictLoader({"t": "{{ text }}"}), autoescape=True, finalize=finalize_value)
    html = environment.get_template("t").render(text=text)
    assert "<" not in html
    assert unescape(html) == escape_invisible(text)


@given(_texts)
def test_an_attribute_gives_the_text_back_exactly(text: str) -> None:
    assert unescape(escape_exact(text)) == text
    assert not set('"<>') & set(escape_exact(text))


@given(st.dictionaries(_texts, _values, max_size=3))
def test_arguments_to_be_edited_are_the_arguments_and_hide_nothing(arguments: dict[str, object]) -> None:
    text = to_editable_json(arguments)
    assert json.loads(text) == arguments
    assert all(escape_invisible(character) == character for character in text if not character.isascii())


@pytest.mark.parametrize("depth", [1, 6, 7, 60])
def test_what_is_deep_reads_back(depth: int) -> None:
    arguments: dict[str, object] = {"end": "here | there"}
    for _ in range(depth):
        arguments = {"in": arguments}
    assert parse_outline((line.depth, line.text) for line in build_outline(arguments)) == arguments
