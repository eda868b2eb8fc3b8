"""Long outputs: an excerpt around the failure, a byte-exact account, all of it in an artifact that can be read."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    FileArtifacts,
    MemoryArtifacts,
    MemoryLog,
    NormalizedOutput,
    Observation,
    ToolRegistry,
    ToolRuntime,
    tool,
)
from interlock.domain.outcome import NextTool, OutputSize, SideEffect
from interlock.registry.decorator import ToolOptions
from tests.each import each
from tests.support import call

FAILURE = "AssertionError: expected 4, received 5"
#: The same log in letters of one to four bytes.
LETTERS = {"ascii": "a", "latin": "é", "cyrillic": "ж", "han": "漢", "emoji": "😀", "mixed": "aé漢😀"}


def log_of(letters: str, lines: int = 2_000) -> str:
    before = "".join(f"line {number} {letters}\n" for number in range(lines))
    after = "".join(f"after {number} {letters}\n" for number in range(lines))
    return f"{before}{FAILURE}\n{after}the end"


def runtime_of(text: str, **options: Any) -> ToolRuntime:
    @tool(max_output_chars=2_000)
    async def run() -> str:
        return text

    return ToolRuntime(tools=[run], **options)


async def run_once(runtime: ToolRuntime) -> Observation:
    return (await runtime.execute([call("c1", "run")])).observations[0]


def slices_of(excerpt: str) -> list[tuple[str, int, int]]:
    """The shown pieces between the markers, each with the bytes that the markers around it say it is."""
    marker = re.compile(r"(?:^|\n)\[\.\.\. ([\d,]+) bytes omitted \(bytes ([\d,]+)-([\d,]+)\) \.\.\.\](?:\n|$)")
    pieces: list[tuple[str, int, int]] = []
    at = end = 0
    for match in marker.finditer(excerpt):
        start, stop = (int(match[group].replace(",", "")) for group in (2, 3))
        assert int(match[1].replace(",", "")) == stop - start
        pieces.append((excerpt[at : match.start()], end, start))
        at, end = match.end(), stop
    return [*pieces, (excerpt[at:], end, -1)]


@pytest.mark.requirement("P10", "R244", "R245", "R246", "R248")
@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
async def test_a_long_output_is_accounted_for_to_the_byte(letters: str) -> None:
    text, artifacts = log_of(letters), MemoryArtifacts()
    observation = await run_once(runtime_of(text, artifacts=artifacts))

    assert observation.content is not None
    assert observation.size is not None
    assert observation.truncated
    size, content = observation.size, text.encode()
    assert size.produced == size.kept == len(content)
    assert size.produced == size.shown + size.omitted
    assert artifacts.read(observation.artifacts[0].id) == content
    assert FAILURE in observation.content.text
    assert observation.content.text.endswith("the end")
    assert len(observation.content.text) <= 2_000
    shown = 0
    for piece, start, stop in slices_of(observation.content.text):
        raw = content[start:] if stop < 0 else content[start:stop]
        assert piece.rstrip("\n") == raw.decode().rstrip("\n")
        shown += len(raw)
    assert shown == size.shown


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=400, max_size=900), st.integers(1, 350))
@pytest.mark.requirement("P10")
async def test_any_output_over_the_limit_adds_up(text: str, limit: int) -> None:
    artifacts = MemoryArtifacts()
    work = tool(_returning(text), name="run", max_output_chars=limit)
    observation = await run_once(ToolRuntime(tools=[work], artifacts=artifacts))

    assert observation.size is not None
    assert observation.size.produced == observation.size.shown + observation.size.omitted
    assert observation.size.kept == len(artifacts.read(observation.artifacts[0].id))


def _returning(text: str) -> Any:
    async def run() -> str:
        return text

    return run


@pytest.mark.requirement("P10", "R248", "R249")
async def test_the_model_is_told_what_is_missing_and_how_to_read_it() -> None:
    runtime = runtime_of(log_of("x"))
    result = await runtime.execute([call("c1", "run")])

    told = json.loads(result.messages[0]["content"].split("\n")[0])
    [observation] = result.observations
    assert observation.size is not None
    assert (told["truncated"], told["omittedBytes"]) == (True, observation.size.omitted)
    assert told["artifact"]["id"] == observation.artifacts[0].id
    hint = told["suggestedNextTool"]
    assert hint == {
        "tool": "read_artifact",
        "inputHint": {"artifact_id": observation.artifacts[0].id, "around": FAILURE},
    }
    assert runtime.registry.find(hint["tool"]) is not None


@pytest.mark.requirement("P10", "R247", "R249")
async def test_the_suggested_call_leads_to_the_lines_around_the_failure() -> None:
    text = log_of("漢")
    runtime = runtime_of(text)
    observation = await run_once(runtime)
    assert observation.next_tool is not None

    result = await runtime.execute([call("c2", observation.next_tool.tool, **observation.next_tool.input_hint)])

    content = result.observations[0].content
    assert content is not None
    assert "line 1999 漢\n" + FAILURE + "\nafter 0 漢\n" in content.text
    at = len(text[: text.index(FAILURE)].encode())
    assert f"match 1 of 1 at byte {at}" in content.text


@pytest.mark.requirement("R246", "R247")
@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
async def test_reading_on_by_range_gives_back_every_byte(letters: str) -> None:
    text = log_of(letters, lines=600)
    runtime = runtime_of(text)
    observation = await run_once(runtime)
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        wish = call(f"r{offset}", "read_artifact", artifact_id=observation.artifacts[0].id, offset=offset, limit=7_001)
        read = (await runtime.execute([wish])).observations[0]
        assert read.content is not None
        pieces.append(read.content.text.split("\n", 1)[1])
        offset = read.facts["end"] if read.facts["end"] < read.facts["total"] else None

    assert "".join(pieces) == text


async def test_an_artifact_of_another_run_is_refused_as_if_it_were_not_there() -> None:
    artifacts, log = MemoryArtifacts(), MemoryLog()
    theirs = await run_once(runtime_of(log_of("x"), artifacts=artifacts, log=log))
    runtime = runtime_of("short", artifacts=artifacts, log=log)
    taken = call("c1", "read_artifact", artifact_id=theirs.artifacts[0].id)
    made_up = call("c2", "read_artifact", artifact_id="sha256:" + "0" * 64)
    result = await runtime.execute([taken, made_up])

    assert [observation.code for observation in result.observations] == ["runtime_precondition_failed"] * 2
    first, second = (observation.summary for observation in result.observations)
    assert first.replace(theirs.artifacts[0].id, "ID") == second.replace("sha256:" + "0" * 64, "ID")


async def test_two_runtimes_that_share_a_registry_read_their_own_artifacts() -> None:
    registry = ToolRegistry([tool(_returning(log_of("x")), name="run", max_output_chars=2_000)])
    for runtime in (ToolRuntime(tools=registry), ToolRuntime(tools=registry)):
        observation = await run_once(runtime)
        result = await runtime.execute([call("c2", "read_artifact", artifact_id=observation.artifacts[0].id)])

        assert result.observations[0].ok, result.observations[0].summary


async def test_an_artifact_is_still_readable_when_the_run_is_continued_elsewhere(tmp_path: Path) -> None:
    log, artifacts = MemoryLog(), FileArtifacts(tmp_path)
    first = runtime_of(log_of("x"), log=log, artifacts=artifacts)
    observation = await run_once(first)
    again = runtime_of("", log=log, artifacts=FileArtifacts(tmp_path), run_id=first.run_id)
    result = await again.execute([call("c2", "read_artifact", artifact_id=observation.artifacts[0].id)])

    assert result.observations[0].ok


@pytest.mark.requirement("R246", "R265")
async def test_log_and_artifact_have_what_the_model_was_not_shown() -> None:
    runtime = runtime_of(log_of("x"))
    observation = await run_once(runtime)

    [recorded] = (await runtime.replay()).observations()
    assert recorded == observation
    assert recorded.artifacts[0].size_bytes == len(log_of("x"))


@pytest.mark.parametrize("value", [log_of("a"), bytes(range(256)) * 20], ids=["long", "binary"])
async def test_large_output_is_stored_off_the_event_loop(value: str | bytes) -> None:
    stored_by: list[int] = []

    class Artifacts(MemoryArtifacts):
        def keep(self, content: bytes) -> str:
            if not content.startswith(b"["):  # the list of tools
                stored_by.append(threading.get_ident())
            return super().keep(content)

    @tool(max_output_chars=2_000)
    async def run() -> str | bytes:
        return value

    seen = await run_once(ToolRuntime(tools=[run], artifacts=Artifacts()))

    assert seen.artifacts
    assert len(stored_by) == 1
    assert threading.get_ident() not in stored_by


async def test_large_arguments_and_tools_are_stored_off_the_event_loop() -> None:
    stored: list[tuple[bytes, int]] = []

    class Artifacts(MemoryArtifacts):
        immediate = False

        def keep(self, content: bytes) -> str:
            stored.append((content[:9], threading.get_ident()))
            return super().keep(content)

    @tool(read_only=True)
    async def count(text: str) -> int:
        return len(text)

    runtime = ToolRuntime(tools=[count], artifacts=Artifacts())
    result = await runtime.execute([call("c1", "count", text="x" * 100_000)])

    assert result.observations[0].ok
    assert [content[:2] for content, _ in stored] == [b"[{", b'{"']  # the tools, the arguments
    assert threading.get_ident() not in {thread for _, thread in stored}


async def test_an_output_at_the_limit_is_whole_and_says_nothing_of_cuts() -> None:
    observation = await run_once(runtime_of("x" * 2_000))

    assert observation.content is not None
    assert observation.content.text == "x" * 2_000
    assert (observation.size, observation.artifacts, observation.next_hint) == (None, (), "")


FLOODS: dict[str, ToolOptions] = {
    "summary": {"normalize": lambda _: NormalizedOutput(summary="s" * 1_000_000)},
    "error text": {"failure_error_function": lambda _context, _error: "s" * 1_000_000},
}


@pytest.mark.parametrize("options", FLOODS.values(), ids=FLOODS)
async def test_no_summary_or_error_text_can_flood_the_model(options: ToolOptions) -> None:
    @tool(**options)
    async def run() -> str:
        if "failure_error_function" in options:
            raise OSError("gone")
        return "fine"

    result = await ToolRuntime(tools=[run]).execute([call("c1", "run")])

    assert len(result.messages[0]["content"]) < 40_000


BIG = "a line of text\n" * 200_000
OUTPUTS = {
    "text": NormalizedOutput(text=BIG),
    "text that is said to be cut": NormalizedOutput(
        text=BIG, size=OutputSize(produced=len(BIG) + 5, kept=len(BIG), shown=len(BIG), omitted=5)
    ),
    "facts": NormalizedOutput(text="ok", facts={"all": BIG}),
    "hint": NormalizedOutput(text="ok", next_hint=BIG),
    "next tool": NormalizedOutput(text="ok", next_tool=NextTool(tool="look", input_hint={"all": BIG})),
    "an effect": NormalizedOutput(text="ok", side_effects=(SideEffect(kind="sent", target=BIG),)),
    "effects": NormalizedOutput(text="ok", side_effects=(SideEffect(kind="sent", target="x" * 500),) * 5_000),
    "state": NormalizedOutput(text="ok", state={"all": BIG}),
}


@each("part", OUTPUTS)
async def test_no_part_of_an_output_floods_model_or_log(part: str) -> None:
    """The quota holds for every tool, whatever it says about its output."""

    @tool(risk="read", normalize=lambda _: OUTPUTS[part])
    async def run() -> str:
        return ""

    log = MemoryLog()
    async with ToolRuntime(tools=[run], log=log, run_id="run_1") as runtime:
        batch = await runtime.execute([call("c1", "run")])

    assert len(json.dumps(batch.messages)) < 150_000
    assert max(len(entry.body) for entry in await log.read("run_1")) < 150_000
    observation = batch.observations[0]
    assert (observation.ok, observation.code) == ((False, "normalize_failed") if part == "state" else (True, "ok"))
    if "text" in part:
        size = observation.size
        assert size is not None
        assert (size.produced, size.kept) == (size.shown + size.omitted, len(BIG))
        assert [ref.size_bytes for ref in observation.artifacts] == [len(BIG)]
