"""Titles and key facts of questions: templates, defaults, and hostile arguments in every place that shows them."""

from typing import Any

import pytest

from interlock import ToolDeclarationError, tool
from interlock.domain.call import KeyFact
from interlock.domain.tool import JsonObject
from interlock.rendering.question_title import MAX_TITLE_CHARS, check_title, make_key_facts, make_title
from tests.each import each


@tool(risk="write", title="Refund {amount} {currency} for order {order.id}", key_facts=("amount", "order.id", "note"))
def refund(amount: float, order: dict[str, str], currency: str = "EUR", note: str = "") -> str:
    """Pay money back."""
    return f"{amount}"


@tool(risk="execute", resources={"command": "command"})
def shell(command: str, seconds: int = 5) -> str:
    """Run a command."""
    return command


def redact(text: str) -> str:
    return text.replace("hunter2", "***")


def title_of(arguments: JsonObject, *templates: str) -> str:
    return make_title((*templates, refund.title), refund, arguments, redact)


ORDER: JsonObject = {"amount": 542.5, "order": {"id": "O0-542"}, "currency": "EUR"}


@each(
    ("arguments", "rule", "title"),
    [
        (ORDER, "", "Refund 542.5 EUR for order O0-542"),
        (ORDER, "Large refund: {amount}", "Large refund: 542.5"),
        (ORDER, "Pay {nothing}", "Refund 542.5 EUR for order O0-542"),
        (ORDER, "Pay {amount:>9}", "Refund 542.5 EUR for order O0-542"),
        (ORDER, "Pay back", "Pay back: amount=542.5, currency=EUR"),
        ({**ORDER, "order": {}}, "", "refund: amount=542.5, currency=EUR"),
        ({**ORDER, "order": {"id": None}}, "", "refund: amount=542.5, currency=EUR"),
        ({**ORDER, "order": [{"id": "a"}, {"id": "b"}]}, "", "Refund 542.5 EUR for order a, b"),
        ({**ORDER, "currency": "hunter2"}, "", "Refund 542.5 *** for order O0-542"),
        ({}, "", "refund"),
    ],
)
def test_a_title_is_made_from_the_first_template_that_fits(arguments: JsonObject, rule: str, title: str) -> None:
    assert title_of(arguments, rule) == title


HOSTILE = [
    ("a\nb\r\n\tc", "a b c"),
    ("x\u202egnp.exe", "x[U+202E]gnp.exe"),
    ("pay\u200b\u2066pal", "pay[U+200B][U+2066]pal"),
    ("\x1b[31mred\x07", "[U+001B][31mred[U+0007]"),
    ("\u2028line\u0085", "line"),
    ("\ud800", "\\u{d800}"),
    ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    ("{currency}", "{currency}"),
    ("<!channel> @here <https://evil.example|click>", "<!channel> @here <https://evil.example|click>"),
    ("\u3164\U000e0041", "[U+3164][U+E0041]"),
    ("   spaces          here ", "spaces here"),
]


@each(("value", "shown"), HOSTILE)
def test_a_hostile_value_is_one_visible_line(value: str, shown: str) -> None:
    arguments = {**ORDER, "order": {"id": value}, "note": value}

    assert title_of(arguments) == f"Refund 542.5 EUR for order {shown}"
    assert make_key_facts(refund, arguments, redact)[-1] == KeyFact("note", shown)
    assert make_title(("",), shell, {"command": value}, redact) == f"shell: {shown}"


def test_a_long_value_is_cut_visibly() -> None:
    shown = title_of({**ORDER, "order": {"id": "x" * 1_000_000}})
    command = make_title(("",), shell, {"command": "y" * 1_000_000}, redact)

    assert shown.startswith("Refund 542.5 EUR for order xxx")
    assert shown.endswith("x…")
    assert command.endswith("y…")
    assert len(command) == MAX_TITLE_CHARS


def test_key_facts_are_few_and_short() -> None:
    many = {f"name{number}": "v" * 500 for number in range(20)}

    facts = make_key_facts(shell, many, redact)

    assert [fact.name for fact in facts] == ["name0", "name1", "name2", "name3"]
    assert {len(fact.value) for fact in facts} == {80}


@each(
    ("options", "message"),
    [
        ({"title": "Refund {amunt}"}, "there is no argument `amunt`. Did you mean `amount`?"),
        ({"title": "Refund {amount!r}"}, "there is no argument `amount!r`. Did you mean `amount`?"),
        ({"title": "Refund {amount:>9} {}"}, "{} does not name an argument; write {name} or {name.field}"),
        ({"title": "Refund {amount"}, "braces stand around the name of an argument"),
        ({"title": "Refund\n{amount}"}, "a title is one line of visible text"),
        ({"title": "Refund \u202e{amount}"}, "a title is one line of visible text"),
        ({"title": "x" * 301}, "a title has 1 to 300 characters"),
        ({"title": 7}, "title is 7; it must be text"),
        ({"key_facts": "amount"}, "key_facts is 'amount'; it must be names"),
        ({"key_facts": ("amunt",)}, "there is no argument `amunt`"),
        ({"key_facts": ("amount",) * 7}, "at most 6 key facts, not 7"),
    ],
)
def test_a_template_is_checked_when_the_tool_is_declared(options: dict[str, Any], message: str) -> None:
    def pay(amount: float) -> str:
        """Pay."""
        return f"{amount}"

    with pytest.raises(ToolDeclarationError) as raised:
        tool(pay, **options)
    assert message in str(raised.value)


def test_a_template_without_tools_is_checked_for_its_form() -> None:
    check_title("Refund {anything.at.all}")
    with pytest.raises(ValueError, match="does not name an argument"):
        check_title("Refund {a b}")
