"""Hostile output stays output: in the model's view, in the log and in its export."""

import json
import re
import unicodedata
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.audit.export import to_ndjson
from interlock.domain import rendering
from interlock.domain.event import (
    CallObserved,
    Event,
    LogEntry,
    WarningRaised,
    decode_event,
    encode_event,
    genesis_hash,
    next_hash,
)
from interlock.domain.json import escape_surrogates
from interlock.domain.observation import Content, Observation
from interlock.domain.outcome import Failure
from interlock.domain.rendering import neutralize, render_for_model, render_for_user, render_untrusted_tool_message
from tests.corpora.injection import HARMLESS, MORE, load
from tests.each import each

PAYLOADS = (*(attack.payload for attack in load()), *MORE)
TOKENS = re.compile(
    r"<\|\w+\|>|<\uff5c[\w\u2581]+\uff5c>|\[/?(?:INST|TOOL_\w+|AVAILABLE_TOOLS)\]|<</?SYS>>|</?(?:s|bos|eos|pad|unk)>"
    r"|<(?:start|end)_of_turn>|</?(?:tool_call|tool_response|think|system)>"
)

#: Text that is likelier than chance to break something.
hostile_text = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(PAYLOADS),
        st.sampled_from(
            ["<", "</", ">", "\n", "\r", "untrusted_tool_output", "| ", "\u200b", "{", '"', "\\", "[INST]"]
        ),
    ),
    max_size=8,
).map("".join)


def observed(text: str) -> Observation:
    return Observation(call_id="c1", tool="fetch", ok=True, summary="1 page", content=Content(text=text))


def as_a_careless_reader_sees_it(text: str) -> str:
    """One case, one width, no accents, no unseen characters."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc", "Mn") or c == "\n")


def assert_held(text: str, output: str) -> None:
    """`text` is one header, one opening, quoted lines and one closing, for strict and careless readers alike."""
    header, opening, *quoted, closing = text.split("\n")
    assert json.loads(header) == {"type": "tool.observation", "tool": "fetch", "ok": True, "summary": "1 page"}
    assert opening == '<untrusted_tool_output trust="tool_output_untrusted" format="text">'
    assert closing == "</untrusted_tool_output>"
    assert all(line.startswith("| ") for line in quoted)
    assert "\n".join(line[2:] for line in quoted) == neutralize(output)
    assert text.splitlines() == text.split("\n")
    careless = as_a_careless_reader_sees_it(text)
    assert len(re.findall(r"<\s*/\s*untrusted", careless)) == 1
    assert len(re.findall(r"<\s*untrusted", careless)) == 1
    assert not TOKENS.search(text)


@pytest.mark.requirement("R060", "R258")
@each("payload", PAYLOADS)
def test_output_cannot_close_forge_or_leave_the_envelope(payload: str) -> None:
    assert_held(render_for_model(observed(payload)), payload)


@pytest.mark.requirement("R060", "R258")
@given(hostile_text)
def test_no_output_can_close_forge_or_leave_the_envelope(payload: str) -> None:
    assert_held(render_for_model(observed(payload + "x")), payload + "x")


@given(hostile_text, hostile_text)
def test_no_tool_name_can_leave_the_opening_of_an_envelope_that_stands_alone(name: str, text: str) -> None:
    opening, *quoted, closing = render_untrusted_tool_message(name, text).split("\n")

    assert re.fullmatch(r'<untrusted_tool_output trust="tool_output_untrusted" format="text" tool="[^"<>]*">', opening)
    assert all(line.startswith("| ") for line in quoted)
    assert closing == "</untrusted_tool_output>"


@given(hostile_text)
def test_no_message_can_leave_the_line_of_facts(payload: str) -> None:
    failure = Failure.from_code("tool_failed", payload)
    text = render_for_model(Observation(call_id="c", tool=payload, ok=False, summary=payload, failure=failure))

    assert text.splitlines() == [text]
    assert "<" not in text
    assert json.loads(text)["ok"] is False


@given(hostile_text)
def test_the_users_line_is_one_line_that_prints_as_it_is(payload: str) -> None:
    line = render_for_user(Observation(call_id="c", tool="t", ok=True, summary="", user_text=payload))

    assert line.splitlines() == [line]
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co") for c in line)


@each("text", HARMLESS)
def test_harmless_text_passes_unchanged(text: str) -> None:
    assert neutralize(text) == text


@given(hostile_text)
def test_long_text_is_neutralized_like_short_text(payload: str) -> None:
    for text in (payload, f"{payload} caf\u00e9 <system> [INST] \u0435 untrusted\u00b7tool-\u043eutput <"):
        with patch.object(rendering, "_MIN_LONG_CHARS", 10**9):
            expected = neutralize(text)

        with patch.object(rendering, "_MIN_LONG_CHARS", 0):
            assert neutralize(text) == expected


@given(hostile_text)
def test_neutralizing_twice_changes_nothing_more(payload: str) -> None:
    once = neutralize(payload)

    assert neutralize(once) == once


def test_every_unseen_character_of_unicode_is_made_visible() -> None:
    hidden = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")
    unseen = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in hidden and chr(c) not in "\n\t"]
    fillers = [
        *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180d\u180f\u2065\u3164\uffa0\ufe00\ufe0e\ufe0f\ufff0\ufffe\uffff"
    ]

    for character in (*unseen, *fillers, "\U000e0100", "\U000e01ef", "\U000e0fff"):
        assert neutralize(f"a{character}b") == f"a\\u{{{ord(character):x}}}b"


def test_every_letter_number_mark_and_sign_of_unicode_passes() -> None:
    seen = "".join(chr(c) for c in range(0xDFFFF) if unicodedata.category(chr(c))[0] in "LNPS")

    changed = set(seen) - set(neutralize(" ".join(seen)))

    assert changed == {*"\u115f\u1160\u3164\uffa0"}


def recorded(payload: str) -> list[bytes]:
    """The stored bytes of a warning and an observation that say it."""
    facts = (WarningRaised(message=payload), CallObserved(observation_id="o", observation=observed(payload)))
    return [encode_event(Event(seq, "run_1", 0, payload, None, fact)) for seq, fact in enumerate(facts)]


def exported(bodies: list[bytes]) -> bytes:
    entries: list[LogEntry] = []
    previous = genesis_hash("run_1")
    for seq, body in enumerate(bodies):
        previous = next_hash(previous, body)
        entries.append(LogEntry("run_1", seq, body, previous))
    return b"".join(to_ndjson(entries))


@each("payload", PAYLOADS)
def test_what_is_recorded_is_one_line_of_json_and_reads_back_as_it_was(payload: str) -> None:
    bodies = recorded(payload)
    # No UTF-8 has a lone surrogate: it is recorded as an escape.
    written = escape_surrogates(payload)

    for body in bodies:
        assert body.splitlines() == [body]
        assert body.decode().splitlines() == [body.decode()]
    assert json.loads(bodies[0])["fact"] == {"type": "warning", "message": written}
    assert decode_event(LogEntry("run_1", 0, bodies[0], b"")).fact == WarningRaised(message=written)
    assert json.loads(bodies[1])["fact"]["observation"]["content"]["text"] == written


@given(hostile_text)
def test_an_export_has_one_line_per_event_whatever_the_events_say(payload: str) -> None:
    bodies = recorded(payload)

    lines = exported(bodies).decode().splitlines()

    assert [json.loads(line)["event"] for line in lines] == [json.loads(body) for body in bodies]
