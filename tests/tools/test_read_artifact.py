"""Reading a part of an artifact: by range, around a text, and only in the run that it belongs to."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.state.ledger import Ledger
from interlock.domain.tool import CallContext, CheckProblem, ToolContext
from interlock.pipeline.artifacts import LedgerArtifacts
from interlock.redaction.redactor import SecretRedactor
from interlock.rendering.excerpt import apply_tool_output_limits
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.tools.read_artifact import (
    MAX_LIMIT_BYTES,
    MIN_LIMIT_BYTES,
    Passage,
    format_passage,
    read_around,
    read_artifact,
    read_range,
)

LOG = "".join(f"line {number}\n" for number in range(1_000))


def range_of(content: bytes, offset: int, limit: int) -> Passage:
    return read_range(lambda start, size: content[start : start + size], len(content), offset, limit)


class _Everything:
    """The artifacts that a run knows: all of them."""

    def __contains__(self, artifact_id: object) -> bool:
        return True


def context(artifacts: MemoryArtifacts) -> ToolContext:
    ledger = Ledger(run_id="run_1", artifact_ids=cast(set[str], _Everything()))
    known = LedgerArtifacts(artifacts, SecretRedactor(), ledger)
    return ToolContext(CallContext(run_id="run_1"), "c1", "read_artifact", lambda _call_id, _message: None, known)


def called(artifacts: MemoryArtifacts, **arguments: object) -> Passage:
    """As the pipeline would: checked, then passed one by one."""
    checked = read_artifact.args_model.model_validate(arguments).model_dump()
    return read_artifact.handler(context=context(artifacts), **checked)


def test_a_range_says_which_bytes_it_is_and_where_the_next_begins() -> None:
    found = range_of(b"0123456789", 2, 4)

    assert found == Passage(text="2345", start=2, end=6, total=10)
    assert format_passage(found) == "[bytes 2-6 of 10; next offset 6]\n2345"
    assert format_passage(range_of(b"0123456789", 6, 100)) == "[bytes 6-10 of 10; this is the end]\n6789"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.integers(MIN_LIMIT_BYTES, 12))
def test_reading_on_from_each_next_offset_reads_everything_once(text: str, limit: int) -> None:
    content = text.encode()
    pieces: list[bytes] = []
    offset: int | None = 0
    while offset is not None:
        found = range_of(content, offset, limit)
        pieces.append(content[found.start : found.end])
        assert found.start == offset
        assert found.end <= offset + limit
        offset = found.next_offset

    assert b"".join(pieces) == content


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.integers(0, 70), st.integers(8, 40))
def test_a_range_cuts_no_character(text: str, offset: int, limit: int) -> None:
    found = range_of(text.encode(), offset, limit)

    assert found.text in text
    assert len(found.text.encode()) == found.end - found.start


def test_a_range_beyond_the_end_is_empty() -> None:
    assert range_of(b"abc", 10, 5) == Passage(text="", start=3, end=3, total=3)


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert range_of(b"\xff\xfe\x00a", 0, 10).text == "\ufffd\ufffd\x00a"


def test_around_returns_lines_before_and_after_the_first_match_and_counts_all() -> None:
    found = read_around(LOG.encode(), "line 50", 0, 16_000)

    lines = found.text.splitlines()
    assert (lines[0], lines[-1]) == ("line 30", "line 69")
    assert (found.matches, found.match_at) == (11, LOG.index("line 50"))
    assert format_passage(found).startswith(f"[bytes {found.start}-{found.end} of 8,890; match 1 of 11 at byte 390;")


def test_around_looks_from_the_offset_on() -> None:
    first = read_around(LOG.encode(), "line 50", 0, 16_000)
    assert first.match_at is not None

    second = read_around(LOG.encode(), "line 50", first.match_at + 1, 16_000)

    assert "line 500\n" in second.text
    assert second.matches == 10


def test_no_match_is_said() -> None:
    found = read_around(LOG.encode(), "nowhere", 7, 16_000)

    assert (found.text, found.matches) == ("", 0)
    assert format_passage(found) == "[no match from byte 7 on; 8,890 bytes in all]"


@pytest.mark.parametrize("limit", [40, 400])
def test_around_stays_within_the_limit_on_one_endless_line(limit: int) -> None:
    content = b"x" * 100_000 + b"needle" + b"y" * 100_000

    found = read_around(content, "needle", 0, limit)

    assert "needle" in found.text
    assert found.end - found.start <= limit


@given(st.text(max_size=200), st.text(min_size=1, max_size=3), st.integers(0, 50), st.integers(12, 60))
def test_around_shows_the_match_whenever_there_is_one(text: str, words: str, offset: int, limit: int) -> None:
    content = text.encode("utf-8", "replace")
    found = read_around(content, words, offset, limit)

    assert found.end - found.start <= limit
    assert found.matches == content.count(words.encode("utf-8", "replace"), offset)
    if found.matches:
        assert words.encode("utf-8", "replace").decode() in found.text


@pytest.mark.requirement("R247", "R249")
def test_the_hint_of_an_excerpt_leads_to_the_failing_line() -> None:
    output = LOG + "E   AssertionError: assert 5 == 4\n" + LOG
    artifacts = MemoryArtifacts()
    artifact_id = artifacts.keep(output.encode())

    hint = apply_tool_output_limits(output, 500).around
    found = called(artifacts, artifact_id=artifact_id, around=hint)

    assert "E   AssertionError: assert 5 == 4" in found.text
    assert found.matches == 1


@pytest.mark.requirement("R249")
def test_the_tool_is_read_only_and_described_for_a_model() -> None:
    tool = read_artifact

    assert (tool.name, tool.read_only, tool.concurrency, tool.is_async) == ("read_artifact", True, "safe", False)
    assert tool.max_output_chars > MAX_LIMIT_BYTES
    properties = tool.spec.parameters_schema["properties"]
    assert list(properties) == ["artifact_id", "offset", "limit", "around"]
    assert properties["limit"]["default"] == 16_000
    assert properties["limit"]["maximum"] == 65_536
    assert all(shown["description"] for shown in properties.values())


def test_the_tool_reads_a_range_by_default_from_the_start() -> None:
    artifacts = MemoryArtifacts()
    artifact_id = artifacts.keep(b"x" * 20_000)

    found = called(artifacts, artifact_id=artifact_id)

    assert (found.start, found.end, found.next_offset) == (0, 16_000, 16_000)


def test_what_the_model_reads_begins_with_the_range() -> None:
    artifacts = MemoryArtifacts()
    found = called(artifacts, artifact_id=artifacts.keep(b"needle"), around="needle")

    assert read_artifact.normalize is not None
    normalized = read_artifact.normalize(found)

    assert normalized.ok
    assert normalized.summary == "bytes 0-6 of 6"
    assert normalized.text == "[bytes 0-6 of 6; match 1 of 1 at byte 0; this is the end]\nneedle"
    assert normalized.facts == {"start": 0, "end": 6, "total": 6, "matches": 1}


def test_a_range_has_no_matches_to_tell_of_and_no_match_has_no_range() -> None:
    artifacts = MemoryArtifacts()
    artifact_id = artifacts.keep(b"text")
    assert read_artifact.normalize is not None

    assert read_artifact.normalize(called(artifacts, artifact_id=artifact_id)).facts == {
        "start": 0,
        "end": 4,
        "total": 4,
    }
    assert read_artifact.normalize(called(artifacts, artifact_id=artifact_id, around="nowhere")).summary == "no match"


async def test_an_artifact_that_the_run_does_not_know_is_refused_by_the_check() -> None:
    artifacts = MemoryArtifacts()
    arguments = {"artifact_id": artifacts.keep(b"private")}
    check: Any = read_artifact.check

    assert await check(arguments, context(artifacts)) is None
    assert isinstance(await check(arguments, context(MemoryArtifacts())), CheckProblem)
