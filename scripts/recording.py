"""Record `interlock demo` as an animated SVG: `python -m scripts.recording` writes `docs/images/demo.svg`.

The demo runs in a pseudo-terminal, where its question is answered with a key; every line is drawn when it was printed,
and waits are shortened. The picture has no script and loads nothing.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pyte
from rich.text import Text

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS, ROWS, _MAX_LINES = 80, 24, 500
_CHAR, _LINE, _MARGIN = 8.4, 18, 16
#: The shortest and the longest wait that are shown, and how long the end stays.
_MIN_WAIT, _MAX_WAIT, _REST = 0.06, 0.9, 6.0
#: How the line of choices ends, and how long a person reads.
_QUESTION, _READING = "d details:", 2.0
_FOLDER = re.compile(r"(/\S+/interlock-demo-|…\S*demo-)\w+")
_PROCESS = re.compile(r"Process \d+")
_PYTE_COLORS = {"default": "", "brown": "yellow"}
_COLORS = {"red": "#e06c75", "green": "#98c379", "yellow": "#e5c07b", "blue": "#61afef", "cyan": "#56b6c2"}


class Line(NamedTuple):
    """A printed line, and when it appears in the picture, in seconds."""

    text: Text
    at: float


def record() -> list[Line]:
    """Run the demo in a terminal and return what it printed."""
    master, slave = pty.openpty()
    env = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    demo = [str(Path(sys.executable).with_name("interlock")), "demo"]
    process = subprocess.Popen(demo, stdin=slave, stdout=slave, stderr=slave, env=env)  # noqa: S603
    os.close(slave)
    # Taller than the window, so that nothing scrolls out of it.
    screen = pyte.Screen(COLUMNS, _MAX_LINES)
    stream = pyte.ByteStream(screen)
    shown: dict[int, Line] = {}
    is_asked = False
    while True:
        try:
            ready, _, _ = select.select([master], [], [], 60)
            data = os.read(master, 65536) if ready else b""
        except OSError:  # the terminal of a process that ended
            data = b""
        if not data:
            break
        stream.feed(data)
        for row in sorted(screen.dirty):
            text = read_row(screen, row)
            if row not in shown or shown[row].text != text:
                shown[row] = Line(text, time.monotonic())
        screen.dirty.clear()
        is_question = screen.display[screen.cursor.y].rstrip().endswith(_QUESTION)
        if is_question and not is_asked:
            os.write(master, b"y")
        is_asked = is_question
    os.close(master)
    if process.wait():
        raise SystemExit(f"the demo ended with {process.returncode}")
    printed = [shown[row] for row in range(max(row for row, line in shown.items() if line.text.plain) + 1)]
    # A line appears when it has got its last content, after the one above it. Waits are cut, and a question is read.
    lines, at = [Line(printed[0].text, 0.0)], 0.0
    for above, line in pairwise(printed):
        is_question = _QUESTION in above.text.plain
        at += _READING if is_question else min(max(line.at - above.at, _MIN_WAIT), _MAX_WAIT)
        lines.append(Line(line.text, at))
    return lines


def read_row(screen: pyte.Screen, row: int) -> Text:
    """Return a row of a terminal with its colours."""
    text = Text()
    for (is_bold, color), chars in groupby(
        (screen.buffer[row][column] for column in range(COLUMNS)), lambda char: (char.bold, char.fg)
    ):
        words = ("bold" if is_bold else "", _PYTE_COLORS.get(color, color))
        text.append("".join(char.data for char in chars), " ".join(filter(None, words)))
    text.rstrip()
    for pattern, words in ((_FOLDER, "/home/ana/demo"), (_PROCESS, "Process 4711")):
        if found := pattern.search(text.plain):
            text = Text.assemble(text[: found.start()], words, text[found.end() :])
    return text


def draw(lines: list[Line]) -> str:
    """Return the recording as an SVG document."""
    total = lines[-1].at + _REST
    height = ROWS * _LINE + 2 * _MARGIN
    width = COLUMNS * _CHAR + 2 * _MARGIN
    steps: list[str] = []
    for number, line in enumerate(lines):
        offset = max(0, number + 1 - ROWS) * _LINE
        steps.append(f"{100 * line.at / total:.2f}%{{transform:translateY(-{offset}px)}}")
    rows = "\n".join(_draw_line(number, line, total) for number, line in enumerate(lines))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">
<title>interlock demo: an agent repairs a failing project, asks a person, is killed, and continues</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#dcdfe4;white-space:pre}}
.b{{font-weight:700}} .d{{opacity:.65}}
.w{{animation:w {total:.1f}s step-end infinite}} .l{{opacity:0;animation:{total:.1f}s step-end infinite}}
@keyframes w{{0%{{transform:translateY(0)}}{"".join(steps)}}}
@media (prefers-reduced-motion:reduce){{.w,.l{{animation:none;opacity:1}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1e2127"/>
<clipPath id="c"><rect x="0" y="{_MARGIN}" width="100%" height="{ROWS * _LINE}"/></clipPath>
<g clip-path="url(#c)"><g class="w">
{rows}
</g></g>
</svg>
"""


def draw_still(rows: list[Text], title: str) -> str:
    """Return what a terminal shows as an SVG document that does not move."""
    texts = "\n".join(
        f'<text xml:space="preserve" x="{_MARGIN}" y="{_MARGIN + (number + 1) * _LINE - 5}">{_draw_spans(row)}</text>'
        for number, row in enumerate(rows)
    )
    width, height = COLUMNS * _CHAR + 2 * _MARGIN, len(rows) * _LINE + 2 * _MARGIN
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">
<title>{escape(title)}</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#dcdfe4;white-space:pre}}
.b{{font-weight:700}} .d{{opacity:.65}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1e2127"/>
{texts}
</svg>
"""


def _draw_spans(row: Text) -> str:
    spans: list[str] = []
    text = row.plain
    edges = sorted({0, len(text), *(edge for span in row.spans for edge in (span.start, span.end))})
    for start, end in pairwise(edges):
        styles = " ".join(str(span.style) for span in row.spans if span.start <= start and end <= span.end)
        classes = " ".join(name for word, name in (("bold", "b"), ("dim", "d")) if word in styles)
        color = next((value for name, value in _COLORS.items() if name in styles), "")
        marks = (f' class="{classes}"' if classes else "") + (f' fill="{color}"' if color else "")
        spans.append(f"<tspan{marks}>{escape(text[start:end], quote=False)}</tspan>")
    return "".join(spans)


def _draw_line(number: int, line: Line, total: float) -> str:
    name, y = f"l{number}", _MARGIN + (number + 1) * _LINE - 5
    frames = f"@keyframes {name}{{0%{{opacity:0}}{100 * line.at / total:.2f}%,100%{{opacity:1}}}}"
    return (
        f'<style>{frames}</style><text class="l" style="animation-name:{name}" xml:space="preserve"'
        f' x="{_MARGIN}" y="{y}">{_draw_spans(line.text)}</text>'
    )


if __name__ == "__main__":
    TARGET.write_text(draw(record()), "utf-8")
    print(f"wrote {TARGET.relative_to(Path.cwd())}, {TARGET.stat().st_size} bytes")
