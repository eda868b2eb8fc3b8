"""Attacks on the eyes of whoever approves, judged on the screen of a terminal emulator."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from unicodedata import category, combining, normalize

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.call import Question
from interlock.domain.payload import ApprovalBinding, ExecutionEnvironment, FileOperand
from interlock.rendering.question import render_question
from tests.each import each
from tests.pipeline.approval.display_reader import parse_display
from tests.pipeline.approval.person import HASH, make_question
from tests.pipeline.approval.test_display import ARGUMENTS

CANARY = "touch /tmp/canary_t01"


class Attack(NamedTuple):
    payload: str
    why: str


ATTACKS = (
    Attack(f"{CANARY}\x1b[2K\rcommand: ls -la", "erase line and CR: a harmless command is shown instead"),
    Attack(f"{CANARY}\rcommand: ls -la" + " " * 35, "CR alone overwrites"),
    Attack("ls" + "\t" * 60 + f"; {CANARY}", "tabs push it off the screen"),
    Attack(f"echo ok \x1b[30;40m; {CANARY}\x1b[0m", "the colour of the background"),
    Attack("if ok\u2066 then\u2069 r\u200bm -i x", "isolates and a zero-width space"),
    Attack("\x9b2K\rcommand: ls -la", "an eight-bit control sequence"),
    Attack(
        "\x1b]8;;https://attacker.example/approve\x1b\\https://console.example/approve\x1b]8;;\x1b\\",
        "a link that lies",
    ),
    Attack("\x1b[?1049h\x1b[2J\x1b[HNo approvals pending.\n", "another screen"),
    Attack("\x1b[201~y\n", "the end of a paste, and an answer"),
    Attack("\x1b[1;3r\x1b[3;1H\x1b[Mrisk: LOW", "a scroll region, and the risk line is deleted"),
    Attack("/usr/bin/ls ", "the space belongs to the name"),
    Attack("echo " + "x" * 20_000 + f" ; {CANARY}", "too long to look at"),
    # More of the same classes.
    Attack("ls" + " " * 5_000 + f"; {CANARY}", "spaces push it off the screen"),
    Attack("ls\n" * 200 + CANARY, "lines push it off the screen"),
    Attack("ls" + "\u3000" * 100 + CANARY, "wide spaces"),
    Attack("ls" + "\u2800" * 400 + CANARY, "blank letters"),
    Attack(f"ls\x08\x08{CANARY}\x7f\x7f", "backspaces"),
    Attack(f"{CANARY}\x1b[8m hidden \x1b[28m", "concealed"),
    Attack(f"\x1bP+q544e\x1b\\{CANARY}", "a device control string"),
    Attack(f"\x1b]0;title\x07\x1b]52;c;eQo=\x07{CANARY}", "title and clipboard"),
    Attack(f"\x1b[6n\x1b[c\x1b[5n{CANARY}", "the terminal is made to type"),
    Attack(f"\x1bc\x1b#8\x1b(0{CANARY}", "reset, fill, line drawing letters"),
    Attack(f"\x0b\x0c\x85\u2028\u2029{CANARY}", "other ends of lines"),
    Attack("\u202e10t_yranac/pmt/ hcuot", "right to left"),
    Attack("rm\u034f\u115f\u3164 -rf \ufe0f\U000e0061x", "fillers, selectors and tags"),
    Attack("x" + "\u0336\u0301" * 50 + CANARY, "stacked and striking marks"),
    Attack(f"A\u1161m \u6f22\u0301 a\u0e34{CANARY}", "marks that terminals swallow, and the rest with them"),
    Attack("x\nrisk: LOW\nhash: sha256:0\nApprove? [y/N] y", "our own lines"),
    Attack(f"\r\nhash: {HASH}\r\n  - nothing", "our own lines after CRLF"),
    Attack("[400 spaces] \\u{202e} [... 3 lines NOT SHOWN]", "our own marks as text"),
    Attack("\u6f22" * 300 + CANARY, "wide letters at the border"),
    Attack("\U0001f1e9\U0001f1ea" * 60 + "\u25a0" * 90, "signs whose width terminals disagree on"),
    Attack("[bold red]x[/] :smile: [link=https://e.example]y[/link]", "markup of the library that writes"),
    Attack("%s {0} $(id) `id` ${IFS}", "formats"),
    Attack("p\u0430ypal.example", "a letter of another alphabet"),
)
both_widths = pytest.mark.parametrize("width", [80, 40])
each_attack = each("attack", ATTACKS)


def known_to_the_emulator(character: str) -> bool:
    return category(character)[0] != "M" or bool(combining(character))


@cache
def on_screen_with(command: str, width: int) -> tuple[str, ...]:
    """The rows of the question about this command."""
    return tuple(on_screen(make_question({"command": command}), width))


def on_screen(question: Question, width: int) -> list[str]:
    """The rows of a terminal after the question was written on it."""
    lines = [line.text for line in render_question(question, width).lines]
    screen = pyte.Screen(width, len(lines) + 50)
    pyte.ByteStream(screen).feed("\r\n".join(lines).encode("utf-8"))
    return [row.rstrip(" ") for row in screen.display][: len(lines)]


def facts_of(rows: Sequence[str]) -> list[str]:
    """What stands below the payload, without the warnings."""
    facts = rows[rows.index("question: Run it?") :]
    start = facts.index("WARNINGS:") if "WARNINGS:" in facts else len(facts) - 1
    end = next(at for at, row in enumerate(facts) if row.startswith("hash: "))
    return [*facts[: min(start, end)], *facts[end:]]


@both_widths
@each_attack
def test_the_screen_says_exactly_what_would_run(attack: Attack, width: int) -> None:
    rows = on_screen_with(attack.payload, width)

    assert parse_display(rows).arguments == {"command": attack.payload}
    assert not [c for row in rows for c in row if category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]


@both_widths
@each_attack
def test_the_facts_below_the_payload_are_unchanged(attack: Attack, width: int) -> None:
    harmless = on_screen_with("ls", width)

    rows = on_screen_with(attack.payload, width)

    assert facts_of(rows) == facts_of(harmless)
    assert "".join(row.removeprefix("  > ") for row in rows).endswith(f"hash: {HASH}")


@both_widths
@each_attack
def test_an_attack_by_any_other_field_stays_behind_its_label(attack: Attack, width: int) -> None:
    text = attack.payload
    question = make_question(
        {"a": {text: [text]}},
        tool_name=text,
        capability=text,
        reason=text,
        rule_ids=(text,),
        risk=(text,),
        bound=ApprovalBinding(
            tool_source=text,
            requester=text,
            surroundings=ExecutionEnvironment(
                cwd=text,
                environment={text: text},
                sandbox=text,
                files=(FileOperand(text, "ab"), FileOperand(text, "", text)),
            ),
        ),
    )
    labels = [
        *("May this call run?", "tool", "from", "capability", "on behalf of", "arguments", "question", "asked by"),
        *("rules", "reason", "risk", "files, as they are now", "NOT fixed until it runs", "sandbox"),
        *("working directory", "environment", "expires", "hash"),
    ]

    rows = on_screen(question, width)

    assert [row.split(":")[0] for row in rows if row[:1] != " " and row != "WARNINGS:"] == labels
    assert (parse_display(rows).tool_name, parse_display(rows).arguments) == (text, {"a": {text: [text]}})
    assert not [c for row in rows for c in row if category(c) in {"Cc", "Cf"}]


@both_widths
def test_a_canary_can_be_read_on_the_screen_by_whoever_looks(width: int) -> None:
    for attack in ATTACKS:
        rows = on_screen_with(attack.payload, width)
        text = "".join(row.strip(" ").removeprefix("> ").removeprefix("| ") for row in rows)

        assert (CANARY.replace(" ", "") in text.replace(" ", "")) == (CANARY in attack.payload), attack.why


def test_a_link_shows_where_it_leads() -> None:
    rows = on_screen(make_question({"u": "\x1b]8;;https://evil.example\x1b\\https://good.example\x1b]8;;\x1b\\"}), 120)

    assert r"  u | \u{1b}]8;;https://evil.example\u{1b}\\https://good.example\u{1b}]8;;\u{1b}\\" in rows


@given(
    ARGUMENTS.filter(lambda arguments: all(map(known_to_the_emulator, repr(arguments)))),
    st.sampled_from([40, 41, 60, 80, 120, 200]),
)
def test_whatever_the_arguments_the_screen_reads_back(arguments: dict[str, Any], width: int) -> None:
    rows = on_screen(make_question(arguments), width)

    read = parse_display(rows)

    # The emulator composes letters and marks as a font would, and knows only the marks that have a class.
    assert normalize("NFC", repr(read.arguments)) == normalize("NFC", repr(arguments))
    assert read.payload_hash == HASH
