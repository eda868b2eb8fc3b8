"""What a person is shown is what would run: all of it, in an order that no payload can change."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcwidth

from interlock.domain import json
from interlock.domain.call import Question
from interlock.domain.payload import ApprovalBinding, BindingChange, ExecutionEnvironment, FileOperand
from interlock.rendering.argument_outline import cell_width
from interlock.rendering.escaping import escape_invisible
from interlock.rendering.prompt import render_prompt
from interlock.rendering.question import QuestionDisplay, describe_sandbox, render_question
from tests.each import each
from tests.pipeline.approval.display_reader import DisplayedCall, parse_display
from tests.pipeline.approval.person import HASH, make_question
from tests.pipeline.approval.test_visible import TRICKY

WIDTHS = st.integers(40, 200)
TEXT = TRICKY.filter(lambda text: text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))
KEYS = st.one_of(
    TEXT, st.sampled_from(["a", "tool", "hash", "arguments", '"', "x | y", "[0]", "@9 x", "> a", "k" * 90])
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


def shown(display: QuestionDisplay) -> list[str]:
    return [line.text for line in display.lines]


def strictly(value: Any) -> bytes:
    """Tells 1 from 1.0 and True."""
    return json.encode(value)


def nested(depth: int) -> dict[str, Any]:
    value: Any = "deep\ndown"
    for level in range(depth):
        value = {"key": value} if level % 2 else [0, value]
    return {"top": value, "next": 1}


@given(ARGUMENTS, WIDTHS, TEXT)
def test_the_display_reads_back_as_what_would_run(arguments: dict[str, Any], width: int, tool: str) -> None:
    question = make_question(arguments, tool_name=tool)

    read = parse_display(render_question(question, width).lines)

    assert (read.tool_name, read.payload_hash) == (tool, HASH)
    assert strictly(read.arguments) == strictly(arguments)


@given(ARGUMENTS, WIDTHS, TEXT)
def test_no_line_is_wider_than_the_terminal_and_only_ours_begin_at_the_first_column(
    arguments: dict[str, Any], width: int, text: str
) -> None:
    hostile = make_question(arguments, tool_name=text, prompt=text, reason=text, layer=text, rule_ids=(text,))
    ours = {line.split(":")[0] for line in shown(render_question(make_question(), width)) if line[:1] != " "}

    lines = shown(render_question(hostile, width))

    assert all(cell_len(line) < width and not line.endswith(" ") for line in lines)
    assert {line.split(":")[0] for line in lines if line[:1] != " "} <= ours | {"WARNINGS"}
    assert all(wcwidth(character) <= cell_width(character) for line in lines for character in line)


@given(WIDTHS)
@settings(max_examples=20, deadline=None)
def test_deep_arguments_read_back(width: int) -> None:
    for depth in (1, 6, 7, 8, 30, 62):
        assert parse_display(render_question(make_question(nested(depth)), width).lines).arguments == nested(depth)


def test_a_call_is_shown_in_this_order() -> None:
    question = make_question(
        {"command": "rm x\nls", "retries": 3},
        capability="bash rm",
        changes=(BindingChange("policy", "sha256:1", ""),),
        risk=("execute", "deletes files"),
        bound=ApprovalBinding(
            tool_origin="mcp",
            tool_source="github",
            requester="ada",
            surroundings=ExecutionEnvironment(
                cwd="/work",
                environment={"CI": "1"},
                files=(FileOperand("x", "ab"), FileOperand("y"), FileOperand("z", "", "a folder")),
            ),
        ),
        expires_at=1_800_000_000_000_000_000,
    )

    assert shown(render_question(question, 80)) == [
        "May this call run?",
        "tool: bash",
        "from: mcp github",
        "capability: bash rm",
        "on behalf of: ada",
        "arguments:",
        "  command: text of 2 lines",
        "    | rm x",
        "    | ls",
        "  retries = 3",
        "question: Run it?",
        "asked by: user rule",
        "rules:",
        "  - ask-shell",
        "reason: Commands are asked about.",
        "risk:",
        "  - execute",
        "  - deletes files",
        "changed since it was asked before:",
        "  - policy: was sha256:1, now empty",
        "files, as they are now:",
        "  - x (sha256 ab)",
        "NOT fixed until it runs:",
        "  - z: a folder",
        "sandbox: none: it runs with everything that this process may do",
        "working directory: /work",
        "environment:",
        "  - CI=1",
        "expires: 2027-01-15 08:00:00 UTC",
        f"hash: {HASH}",
    ]


def test_every_element_of_a_wrapped_command_is_shown() -> None:
    argv = ["/bin/sh", "-c", "echo ok", "/x/ls ", "", "--flag=a b"]

    lines = shown(render_question(make_question({"argv": argv}), 80))

    assert lines[lines.index("arguments:") + 1 :][:7] == [
        "  argv: list of 6",
        "    [0] | /bin/sh",
        "    [1] | -c",
        "    [2] | echo ok",
        r"    [3] | /x/ls\u{20}",
        '    [4] = ""',
        "    [5] | --flag=a b",
    ]
    assert parse_display(lines).arguments == {"argv": argv}


def test_text_and_json_that_look_alike_are_told_apart() -> None:
    arguments: dict[str, Any] = {
        "a": "3",
        "b": 3,
        "c": "true",
        "d": True,
        "e": "",
        "f": None,
        "g": "null",
        "h": [],
        "i": {},
        "j": 1.0,
    }

    lines = shown(render_question(make_question(arguments), 80))

    assert lines[lines.index("arguments:") + 1 :][:10] == [
        *("  a | 3", "  b = 3", "  c | true", "  d = true", '  e = ""'),
        *("  f = null", "  g | null", "  h = []", "  i = {}", "  j = 1.0"),
    ]


def test_a_line_that_was_wrapped_is_not_a_new_line() -> None:
    text = "hash: sha256:0 " * 6 + "\nrisk: none"

    lines = shown(render_question(make_question({"c": text}), 40))

    payload = lines[lines.index("arguments:") + 1 : lines.index("question: Run it?")]
    assert payload == [
        "  c: text of 2 lines",
        "    | hash: sha256:0 hash: sha256:0",
        "    >  hash: sha256:0 hash: sha256:0",
        "    >  hash: sha256:0 hash:",
        r"    >  sha256:0\u{20}",
        "    | risk: none",
    ]


def test_a_call_without_arguments_says_so() -> None:
    display = render_question(make_question({}), 80)

    assert "arguments: none" in shown(display)
    assert parse_display(display.lines) == DisplayedCall("bash", {}, HASH)


@pytest.mark.parametrize(
    ("unit", "size"),
    [*((unit, 20_000) for unit in ("x", "x ", "y\n", "\u202e", "\u6f22")), ("x", 1_000_000), ("\x1b[2K", 200_000)],
)
def test_what_does_not_fit_is_counted_and_reads_back_in_full(unit: str, size: int) -> None:
    command = unit * (size // len(unit)) + " ; touch /tmp/canary"
    question = make_question({"command": command})

    cut, full = render_prompt(question, 80, 24), render_question(question, 80)

    assert [line.text for line in cut.lines if line.style == "loud"] == [
        f"... {cut.hidden_lines:,} more lines, press d"
    ]
    assert len(cut.lines) <= 21
    assert parse_display(full.lines).arguments == {"command": command}


def test_warnings_stand_after_the_payload_and_name_the_argument() -> None:
    question = make_question({"path": "/b\u0456n", "inner": [{"k\u200b": 1}]}, tool_name="b\u0430sh")

    lines = shown(render_question(question, 80))

    assert lines[lines.index("WARNINGS:") :] == [
        "WARNINGS:",
        "  - the tool's name mixes alphabets inside a word: b\u0430sh",
        "  - path mixes alphabets inside a word: b\u0456n",
        "  - inner holds 1 invisible character: U+200B",
        f"hash: {HASH}",
    ]


def test_many_warnings_are_counted() -> None:
    lines = shown(render_question(make_question({f"k{number}": "\x1b" for number in range(50)}), 80))

    assert lines[-2:] == ["  - 40 more like these", f"hash: {HASH}"]


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    lines = shown(render_question(make_question(expires_at=2**100), 80))

    assert f"expires: {2**100} nanoseconds after 1970" in lines


@each(
    ("lines", "problem"),
    [
        ([], "it shows no tool"),
        (["  > not below a label"], "it shows no tool"),
        (["tool: a", "arguments: none"], "it shows no hash"),
        (["tool: a", "arguments:", "  ?", "hash: x"], "not an entry"),
        (["tool: a", "arguments:", "      b = 1", "hash: x"], "an entry is not where it could be"),
        (["tool: a", "arguments:", "  [0] = 1", "hash: x"], "an entry is not where it could be"),
        (["tool: a", "arguments:", "  b = 1", "    | c", "hash: x"], "not an entry"),
        (["tool: a", "arguments:", "  b = {", "hash: x"], "Expecting property name"),
    ],
)
def test_lines_that_are_no_display_are_refused(lines: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_display(lines)


def test_a_number_is_the_same_number_at_any_width() -> None:
    arguments = {"a": -0.0, "b": 1e22, "c": 0.1, "d": 2**53 - 1, "e": 5e-324}

    assert strictly(parse_display(render_question(make_question(arguments), 40).lines).arguments) == strictly(arguments)


def test_a_question_for_a_value_says_for_which_argument() -> None:
    question: Question = msgspec.structs.replace(make_question(), kind="input", target_arg="command\n")

    lines = shown(render_question(question, 80))

    assert lines[0] == "This call needs a value."
    assert f"value for: {escape_invisible('command') + chr(92)}n" in lines


def test_our_own_labels_are_all_different() -> None:
    labels = [line.split(":")[0] for line in shown(render_question(make_question(), 200)) if line[:1] != " "]

    assert all(one != other for one, other in pairwise(sorted(labels)))


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        ("bubblewrap/workspace-write", "it can change the workspace only, and reach no host"),
        ("bubblewrap/workspace-write+network", "it can change the workspace only; it can reach hosts"),
        ("landlock/read-only", "it can change nothing that stays, and reach no host"),
        ("none/thread", "it runs with everything that this process may do"),
    ],
)
def test_a_person_is_told_what_the_sandbox_leaves_to_the_call(sandbox: str, said: str) -> None:
    assert describe_sandbox(sandbox) == f"{sandbox}: {said}"


def test_a_profile_that_nobody_knows_is_shown_as_it_is() -> None:
    assert describe_sandbox("mine/special") == "mine/special"
