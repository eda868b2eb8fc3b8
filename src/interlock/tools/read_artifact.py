"""Read a part of an artifact: a range of bytes, or the lines around a text.

A long output is shown as an excerpt, and this reads the rest. `read_range` and `read_around` only look at
content; the tool adds who may read what.
"""

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Annotated

import msgspec
from pydantic import Field

from ..domain.errors import ArtifactError
from ..domain.tool import CheckProblem, JsonObject, NormalizedOutput, ToolContext
from ..registry.decorator import tool
from ..rendering.binary import describe_binary, is_binary

#: Room for one character, whichever it is, so that reading on always gets on.
MIN_LIMIT_BYTES = 4
DEFAULT_LIMIT_BYTES = 16_000
MAX_LIMIT_BYTES = 64 * 1024
_LINES_AROUND = 20
#: Bytes that continue a character; at most three of them follow its first.
_CONTINUATION = bytes(range(0x80, 0xC0))
_decoder = getincrementaldecoder("utf-8")


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes `start` to before `end` of `total`, as text."""

    text: str
    start: int
    end: int
    total: int
    #: How often the text that was looked for stands from the offset on; None when nothing was looked for.
    matches: int | None = None
    match_at: int | None = None

    @property
    def byte_range(self) -> str:
        """The range of the passage in bytes, as text."""
        return f"bytes {self.start:,}-{self.end:,} of {self.total:,}"

    @property
    def next_offset(self) -> int | None:
        """Offset of the next passage, or None at the end."""
        return self.end if self.end < self.total else None


def read_range(read: Callable[[int, int], bytes], total: int, offset: int, limit: int) -> Passage:
    """Return the range, made smaller at its ends so that it does not cut a character."""
    offset = min(offset, total)
    content = read(offset, limit)
    start = len(content[:3]) - len(content[:3].lstrip(_CONTINUATION)) if offset else 0
    end = len(content) if offset + len(content) >= total else _find_last_whole(content, start)
    end = max(start, end) or len(content)
    shown = content[start:end]
    text = describe_binary(shown) if is_binary(shown) else shown.decode("utf-8", "replace")
    return Passage(text=text, start=offset + start, end=offset + end, total=total)


def read_around(content: bytes, words: str, offset: int, limit: int) -> Passage:
    """Return some lines before and after the first match from the offset on, within the limit."""
    needle = words.encode("utf-8", "replace")
    at = content.find(needle, offset)
    if at < 0:
        return Passage(text="", start=offset, end=offset, total=len(content), matches=0)
    start = _find_lines_before(content, at, max(0, min(limit // 2, limit - len(needle))))
    end = _find_lines_after(content, at + len(needle), start + limit)
    found = read_range(lambda _, size: content[start : start + size], len(content), start, end - start)
    return msgspec.structs.replace(found, matches=content.count(needle, offset), match_at=at)


def format_passage(found: Passage) -> str:
    """Return the range as text, then the passage."""
    if found.matches == 0:
        return f"[no match from byte {found.start} on; {found.total:,} bytes in all]"
    matches = "" if found.matches is None else f"; match 1 of {found.matches:,} at byte {found.match_at}"
    rest = "; this is the end" if found.next_offset is None else f"; next offset {found.next_offset}"
    return f"[{found.byte_range}{matches}{rest}]\n{found.text}"


async def _check_known(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
    """Check that the run knows the artifact, whatever else is in the store."""
    try:
        await asyncio.to_thread(context.artifacts.size_bytes, arguments["artifact_id"])
    except ArtifactError as error:
        return CheckProblem(message=f"{error}.")
    return None


def _normalize_passage(found: Passage) -> NormalizedOutput:
    facts = {"start": found.start, "end": found.end, "total": found.total}
    if found.matches is not None:
        facts["matches"] = found.matches
    summary = "no match" if found.matches == 0 else found.byte_range
    return NormalizedOutput(summary=summary, text=format_passage(found), side_effects=(), facts=facts)


@tool(
    risk="read",
    idempotent=True,
    max_output_chars=MAX_LIMIT_BYTES + 1_000,
    check=_check_known,
    normalize=_normalize_passage,
)
def read_artifact(
    context: ToolContext,
    artifact_id: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=MIN_LIMIT_BYTES, le=MAX_LIMIT_BYTES)] = DEFAULT_LIMIT_BYTES,
    around: str = "",
) -> Passage:
    """Read a part of a full output that was shown as an excerpt.

    Args:
        artifact_id: The id that the observation gave.
        offset: The byte to start from.
        limit: How many bytes to return at most.
        around: A text to look for from the offset on; returns the lines around its first place.
    """
    artifacts = context.artifacts
    if around:
        return read_around(artifacts.read(artifact_id), around, offset, limit)
    total = artifacts.size_bytes(artifact_id)
    return read_range(lambda start, size: artifacts.read(artifact_id, start, size), total, offset, limit)


def _find_last_whole(content: bytes, start: int) -> int:
    """Return the end of the last complete character."""
    decoder = _decoder("replace")
    decoder.decode(content[start:])
    return len(content) - len(decoder.getstate()[0])


def _find_lines_before(content: bytes, at: int, room: int) -> int:
    """Return where the lines before the position begin. A line that is too long is cut."""
    earliest = max(0, at - room)
    start = content.rfind(b"\n", earliest, at) + 1 or earliest
    for _ in range(_LINES_AROUND):
        line_start = content.rfind(b"\n", earliest, max(0, start - 1)) + 1
        if line_start == 0:
            return 0 if earliest == 0 else start
        start = line_start
    return start


def _find_lines_after(content: bytes, at: int, latest: int) -> int:
    end = at
    for _ in range(_LINES_AROUND):
        line_end = content.find(b"\n", end, latest) + 1
        if line_end == 0:
            return end if latest < len(content) and end > at else min(latest, len(content))
        end = line_end
    return end
