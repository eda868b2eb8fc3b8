"""Many strings for a person's eyes, and not one invisible character among them."""

import random
import sys
from collections.abc import Iterator
from itertools import chain
from unicodedata import category

import pytest
from hypothesis import given, settings

from interlock.rendering.escaping import escape_invisible
from interlock.rendering.question import render_question
from tests.pipeline.approval.display_reader import parse_display, unescape_invisible
from tests.pipeline.approval.person import make_question
from tests.pipeline.approval.test_display import ARGUMENTS, WIDTHS, strictly
from tests.pipeline.approval.test_display_attacks import ATTACKS

from .budget import Budget

pytestmark = pytest.mark.soak

#: In a round.
STRINGS = 10_000
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Where trouble is dense: ASCII, the blocks with marks, spaces, bidi controls and selectors, then anywhere.
_BLOCKS = ((0, 0x7F), (0, 0x7F), (0x80, 0x36F), (0x600, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0xD7B0, 0xFFFF))
_BITS = [attack.payload[:40] for attack in ATTACKS]


def strings(seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(STRINGS):
        text = ""
        for _ in range(chance.randrange(1, 6)):
            first, last = chance.choice((*_BLOCKS, (0, sys.maxunicode)))
            text += chance.choice((chr(chance.randint(first, last)), chance.choice(_BITS), " " * chance.randrange(6)))
        yield text


def test_no_string_shows_what_nobody_sees_and_every_string_reads_back(budget: Budget) -> None:
    shown_characters: set[str] = set()
    for text in chain.from_iterable(strings(seed=20_261_101 + number) for number in budget.rounds()):
        shown = escape_invisible(text)
        shown_characters.update(shown)
        if unescape_invisible(shown) != text or shown != shown.strip(" ") or "    " in shown:
            pytest.fail(repr(text))

    assert [c for c in shown_characters if category(c) in _UNSEEN or (category(c) == "Zs" and c != " ")] == []


def test_every_display_reads_back(budget: Budget) -> None:
    @settings(max_examples=100, deadline=None, database=None)
    @given(ARGUMENTS, WIDTHS)
    def reads_back(arguments: dict[str, object], width: int) -> None:
        assert strictly(parse_display(render_question(make_question(arguments), width).lines).arguments) == strictly(
            arguments
        )

    for _ in budget.rounds():
        reads_back()
