"""Keys: one spelling for one value, no value that imitates another one, and declarations that are checked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import ToolDefinition, tool
from interlock.domain.effect import check_template, digest_key, render_template
from interlock.domain.errors import ToolDeclarationError
from interlock.domain.payload import definition_digest
from interlock.registry.decorator import derive_version
from tests.each import each

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@each("value", [1, 1.0, "1", " 1\n", "\uff11", "1\u200b", "\u20601", "1\ufe0f", "\u00b9"])
def test_spellings_of_one_value_have_one_key(value: Any) -> None:
    assert render_template("refund:{order}", {"order": value}) == "refund:1"


def test_composed_and_decomposed_text_have_one_key() -> None:
    assert render_template("{name}", {"name": "e\u0301"}) == render_template("{name}", {"name": "\u00e9"})


@pytest.mark.parametrize(("one", "other"), [("a", "A"), (1, -1), ("01", "1"), (True, 1), ([1], [1, 1]), ("a b", "ab")])
def test_other_values_have_other_keys(one: Any, other: Any) -> None:
    assert render_template("{x}", {"x": one}) != render_template("{x}", {"x": other})


@given(VALUES, VALUES, VALUES, VALUES)
def test_values_do_not_run_into_each_other(a: Any, b: Any, c: Any, d: Any) -> None:
    """Two calls have the same key only if every value alone has."""
    same = render_template("pay:{x}/{y}", {"x": a, "y": b}) == render_template("pay:{x}/{y}", {"x": c, "y": d})
    alone = [
        render_template("{x}", {"x": one}) == render_template("{x}", {"x": other}) for one, other in ((a, c), (b, d))
    ]
    assert same == all(alone)


@given(VALUES)
def test_every_value_has_a_printable_key(value: Any) -> None:
    key = render_template("{x}", {"x": value})
    assert key.isascii()
    assert key.isprintable()
    assert len(digest_key(key)) == 64


def test_dotted_names_reach_into_objects_and_lists() -> None:
    arguments = {"order": {"id": 7}, "items": [{"sku": "a"}, {"sku": "b"}]}

    assert render_template("{order.id}", arguments) == "7"
    assert render_template("{items.sku}", arguments) == render_template("{x}", {"x": ["a", "b"]})


@each(
    ("template", "problem"),
    [
        ("", "1 to 500 characters"),
        ("x" * 501, "1 to 500 characters"),
        ("refund:{ordr}", "Did you mean `order`?"),
        ("refund:{zzz}", "It has order, amount."),
        ("refund:{}", "does not name an argument"),
        ("refund:{order!r}", "no argument `order!r`"),
        ("refund:{order", "braces stand around"),
        ("{order}{amount}", "need a separator"),
        ("{order}-{amount}", "need a separator"),
    ],
)
def test_wrong_template_is_refused_at_the_declaration(template: str, problem: str) -> None:
    with pytest.raises(ToolDeclarationError) as refused:
        declare(effect=template)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"repeat": "deny"}, "repeat needs an effect"),
        ({"effect": "x", "repeat": "never"}, "one of deny, ask, allow"),
        ({"effect": lambda: "x"}, "a function that takes 1 argument"),
        ({"effect": 3}, "a function that takes 1 argument"),
        ({"effect": "x", "read_only": True}, "read_only contradicts effect"),
    ],
)
def test_wrong_effect_option_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDeclarationError) as refused:
        declare(**options)
    assert problem in str(refused.value)


def test_effect_and_repeat_are_part_of_the_definition() -> None:
    tools = [
        declare(),
        declare(effect="a"),
        declare(effect="b"),
        declare(effect="a", repeat="deny"),
        declare(effect=str),
    ]

    assert len({definition_digest(each) for each in tools}) == len(tools)
    assert len({derive_version(each) for each in tools}) == len(tools)


def test_constant_key_is_allowed() -> None:
    check_template("nightly-report", ["order"])
    assert render_template("nightly-report", {}) == "nightly-report"


def declare(**options: Any) -> ToolDefinition:
    def refund(order: int, amount: int = 1) -> None: ...

    declared: ToolDefinition = tool(refund, **options)
    return declared
