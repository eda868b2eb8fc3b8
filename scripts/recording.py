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
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 80, 24
_CHAR, _LINE, _MARGIN = 8.4, 18, 16
#: The longest wait that is shown, and how long the end stays.
_MAX_WAIT, _REST = 0.9, 6.0
#: How the line of choices ends, and how long a person reads.
_QUESTION, _READING = b"d details: ", 2.0
_FOLDER = re.compile(r"/\S+/interlock-demo-\w+")
_SPINNER = re.compile("[\u2801-\u28ff]")
_PROCESS = re.compile(r"Process \d+")
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
    lines: list[Line] = []
    rest, at, last = b"", 0.0, time.monotonic()
    while True:
        try:
            ready, _, _ = select.select([master], [], [], 60)
            data = os.read(master, 65536) if ready else b""
        except OSError:  # the terminal of a process that ended
            data = b""
        if not data:
            break
        now = time.monotonic()
        at, last = at + min(now - last, _MAX_WAIT), now
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            printed = _FOLDER.sub("/home/ana/demo", line.decode(errors="replace").rstrip("\r"))
            if _SPINNER.search(printed):
                continue
            at += 0.06
            lines.append(Line(Text.from_ansi(_PROCESS.sub("Process 4711", printed)), at))
        if rest.endswith(_QUESTION):
            os.write(master, b"y")
            at += _READING
    os.close(master)
    if process.wait():
        raise SystemExit(f"the demo ended with {process.returncode}")
    began = lines[0].at
    return [Line(text, at - began) for text, at in lines]


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


def _draw_line(number: int, line: Line, total: float) -> str:
    spans: list[str] = []
    text = line.text.plain
    edges = sorted({0, len(text), *(edge for span in line.text.spans for edge in (span.start, span.end))})
    for start, end in pairwise(edges):
        styles = " ".join(str(span.style) for span in line.text.spans if span.start <= start and end <= span.end)
        classes = " ".join(name for word, name in (("bold", "b"), ("dim", "d")) if word in styles)
        color = next((value for name, value in _COLORS.items() if name in styles), "")
        marks = (f' class="{classes}"' if classes else "") + (f' fill="{color}"' if color else "")
        spans.append(f"<tspan{marks}>{escape(text[start:end], quote=False)}</tspan>")
    name, y = f"l{number}", _MARGIN + (number + 1) * _LINE - 5
    frames = f"@keyframes {name}{{0%{{opacity:0}}{100 * line.at / total:.2f}%,100%{{opacity:1}}}}"
    return (
        f'<style>{frames}</style><text class="l" style="animation-name:{name}" xml:space="preserve"'
        f' x="{_MARGIN}" y="{y}">{"".join(spans)}</text>'
    )


if __name__ == "__main__":
    TARGET.write_text(draw(record()), "utf-8")
    print(f"wrote {TARGET.relative_to(Path.cwd())}, {TARGET.stat().st_size} bytes")
