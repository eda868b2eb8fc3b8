"""The output of a command as plain lines: no escape sequences, no control characters, bounded in every direction.

Everything a reader does with an output is a few passes over these lines, so the bounds here bound the readers too.
"""

import re
from typing import NamedTuple

MAX_CHARS = 1024 * 1024
MAX_LINE_CHARS = 1_000
#: A summary stands at the end of an output, so more of the end is kept.
MAX_HEAD_LINES = 5_000
MAX_TAIL_LINES = 15_000

#: Colours and cursor moves, titles and links, character sets, and the short ones. Each is matched from its first
#: character without going back, so the work is linear whatever follows.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[ -/]++[0-~]?|[0-~])?",
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class CommandOutput(NamedTuple):
    lines: list[str]
    #: These are all lines: what is counted in them is the number there was.
    is_complete: bool


def parse_output(text: str, *, whole: bool) -> CommandOutput:
    if len(text) > MAX_CHARS:
        whole = False
        text = f"{text[: MAX_CHARS // 4]}\n{text[-(MAX_CHARS - MAX_CHARS // 4) :]}"
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).split("\n")
    if len(lines) > MAX_HEAD_LINES + MAX_TAIL_LINES:
        whole = False
        lines = lines[:MAX_HEAD_LINES] + lines[-MAX_TAIL_LINES:]
    return CommandOutput([line[:MAX_LINE_CHARS].rstrip() for line in lines], whole)
