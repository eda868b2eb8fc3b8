"""Draw the diagrams of the docs as SVG: boxes on a grid, and arrows between them. `make docs` writes them.

They need no script in the browser and no network, and look the same on GitHub, on the site and in print.
"""

from collections.abc import Callable, Mapping
from html import escape
from itertools import pairwise
from typing import Literal, NamedTuple

from interlock.domain.outcome import Phase
from interlock.domain.state.lifecycle import RUN_TRANSITIONS, RunState

_COLUMN, _ROW, _MARGIN = 168, 92, 24
_LINE, _CHAR = 17, 7.3
Kind = Literal["step", "person", "store", "end", "bad", "note"]
_FILLS: Mapping[Kind, tuple[str, str]] = {
    "step": ("#e8eaf6", "#3f51b5"),
    "person": ("#fff8e1", "#b26a00"),
    "store": ("#e0f2f1", "#00796b"),
    "end": ("#e8f5e9", "#2e7d32"),
    "bad": ("#ffebee", "#c62828"),
    "note": ("#ffffff", "#9e9e9e"),
}


class Box(NamedTuple):
    """A box with lines of text. Column and row are its upper left corner on the grid."""

    column: float
    row: float
    text: str
    kind: Kind = "step"
    columns: float = 0.84
    rows: float = 0.56

    @property
    def left(self) -> float:
        """Left edge."""
        return _MARGIN + self.column * _COLUMN

    @property
    def top(self) -> float:
        """Upper edge."""
        return _MARGIN + self.row * _ROW

    @property
    def right(self) -> float:
        """Right edge."""
        return self.left + self.columns * _COLUMN

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + self.rows * _ROW


class Arrow(NamedTuple):
    """An arrow between two boxes, by name, with a label. `at` is where it leaves and arrives, from 0 to 1."""

    start: str
    end: str
    label: str = ""
    at: float = 0.5
    #: A column to the right of both boxes that the arrow goes around.
    lane: float = 0


class Diagram(NamedTuple):
    """A picture, and the sentence that describes it to people who cannot see it."""

    title: str
    boxes: Mapping[str, Box]
    arrows: tuple[Arrow, ...]


def render(diagram: Diagram) -> str:
    """Return the diagram as SVG."""
    lanes = (_MARGIN + (arrow.lane + 0.2) * _COLUMN for arrow in diagram.arrows)
    width = max(*(box.right for box in diagram.boxes.values()), *lanes) + _MARGIN
    height = max(box.bottom for box in diagram.boxes.values()) + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"',
        f'     role="img" aria-label="{escape(diagram.title)}" font-family="system-ui, sans-serif" font-size="13">',
        f"  <title>{escape(diagram.title)}</title>",
        '  <defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '    <path d="M0 0 8 4 0 8z" fill="#424242"/></marker></defs>',
        f'  <rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#ffffff"/>',
        *(_render_arrow(arrow, diagram.boxes) for arrow in diagram.arrows),
        *(_render_box(box) for box in diagram.boxes.values()),
        *(_render_label(arrow, diagram.boxes) for arrow in diagram.arrows if arrow.label),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _render_box(box: Box) -> str:
    fill, stroke = _FILLS[box.kind]
    middle, center = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    texts = box.text.split("\n")
    first = center - (len(texts) - 1) * _LINE / 2 + 4.5
    rows = _render_lines(texts, middle, first, _LINE, 'fill="#212121"')
    size = f'width="{box.right - box.left:.0f}" height="{box.bottom - box.top:.0f}"'
    return f'  <rect x="{box.left:.0f}" y="{box.top:.0f}" {size} rx="6" fill="{fill}" stroke="{stroke}"/>{rows}'


def _render_lines(texts: list[str], x: float, y: float, height: float, style: str) -> str:
    return "".join(
        f'<text x="{x:.0f}" y="{y + number * height:.0f}" text-anchor="middle" {style}>{escape(text)}</text>'
        for number, text in enumerate(texts)
    )


def _route(arrow: Arrow, boxes: Mapping[str, Box]) -> list[tuple[float, float]]:
    """Return the corners: straight where the boxes face each other, else with one corner."""
    start, end = boxes[arrow.start], boxes[arrow.end]
    if arrow.lane:
        x, first, last = _MARGIN + arrow.lane * _COLUMN, (start.top + start.bottom) / 2, (end.top + end.bottom) / 2
        return [(start.right, first), (x, first), (x, last), (end.right, last)]
    top, bottom = max(start.top, end.top), min(start.bottom, end.bottom)
    if top < bottom:
        y = top + (bottom - top) * arrow.at
        return [(start.right, y), (end.left, y)] if start.right < end.left else [(start.left, y), (end.right, y)]
    left, right = max(start.left, end.left), min(start.right, end.right)
    if left < right:
        x = left + (right - left) * arrow.at
        return [(x, start.bottom), (x, end.top)] if start.bottom < end.top else [(x, start.top), (x, end.bottom)]
    x = end.left + (end.right - end.left) * arrow.at
    y = (start.top + start.bottom) / 2
    return [
        (start.right if start.right < x else start.left, y),
        (x, y),
        (x, end.top if end.top > y else end.bottom),
    ]


def _render_arrow(arrow: Arrow, boxes: Mapping[str, Box]) -> str:
    points = " ".join(f"{x:.0f},{y:.0f}" for x, y in _route(arrow, boxes))
    return f'  <polyline points="{points}" fill="none" stroke="#424242" stroke-width="1.3" marker-end="url(#end)"/>'


def _render_label(arrow: Arrow, boxes: Mapping[str, Box]) -> str:
    """Render the label in the middle of the first part of the way, on white."""
    (x1, y1), (x2, y2) = _route(arrow, boxes)[:2]
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    texts = arrow.label.split("\n")
    wide, high = max(map(len, texts)) * _CHAR * 0.9, len(texts) * 15
    first = y - high / 2 + 11.5
    rows = _render_lines(texts, x, first, 15, 'font-size="12" fill="#424242"')
    size = f'width="{wide:.0f}" height="{high:.0f}"'
    return f'  <rect x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" {size} fill="#ffffff"/>{rows}'


def draw_call() -> Diagram:
    """Draw the stages of a call, in two rows."""
    first = [Phase.ACCEPT, Phase.LOOKUP, Phase.VALIDATE, Phase.PERMIT]
    second = [phase for phase in Phase if phase not in (*first, Phase.RECORD)]
    boxes = {
        "model": Box(0, 1.1, "model", "person"),
        **{phase.value: Box(number + 1.4, 1.1, phase.value) for number, phase in enumerate(first)},
        **{phase.value: Box(4.4 - number, 3.3, phase.value) for number, phase in enumerate(second)},
        "person": Box(4.4, 0, "person", "person"),
        "answer": Box(0, 3.3, "result or refusal,\nwith a code", "end"),
        "record": Box(1.4, 2.2, "record: after every stage, in a durable hash-chained log", "store", 3.84),
    }
    way = [phase.value for phase in (*first, *second)]
    pairs = [(a, b) for a, b in pairwise(way) if a != Phase.PERMIT.value]
    arrows = (
        Arrow("model", way[0], "proposes"),
        *(Arrow(a, b) for a, b in pairs),
        Arrow("permit", "schedule", "allowed", lane=5.7),
        Arrow("permit", "person", "asks", 0.2),
        Arrow("person", "permit", "answers", 0.8),
        *(Arrow(name, "record") for name in way),
        Arrow(way[-1], "answer"),
        Arrow("answer", "model"),
    )
    return Diagram("The way of a call: its stages in order, each of which is recorded", boxes, arrows)


def draw_run_states() -> Diagram:
    """Draw the states of a run from the transition table; the three ways to pause are one box."""
    paused = [state for state, row in RUN_TRANSITIONS.items() if RunState.RUNNING in row.values()]
    over = [state for state, row in RUN_TRANSITIONS.items() if not row]
    kinds: dict[RunState, Kind] = {RunState.FAILED: "bad", RunState.CANCELLED: "bad"}
    boxes = {
        "start": Box(0, 1.9, "start", "note", 0.5),
        "running": Box(1, 0, "running", "step", 0.84, 4.4),
        "paused": Box(4.9, 1.8, "\n".join(state.value for state in paused), "person", 1.0, 2.6),
        **{
            state.value: Box(3, number * 0.9, state.value, kinds.get(state, "end")) for number, state in enumerate(over)
        },
    }
    arrows = (
        Arrow("start", "running"),
        *(
            Arrow("running", after.value, word)
            for word, after in RUN_TRANSITIONS[RunState.RUNNING].items()
            if after in over
        ),
        *(Arrow("paused", after.value, word) for word, after in RUN_TRANSITIONS[paused[0]].items() if after in over),
        Arrow("running", "paused", "run.paused", 0.78),
        Arrow("paused", "running", "run.resumed", 0.93),
    )
    return Diagram("The states of a run: running, paused until a person answers, and four ways to end", boxes, arrows)


def draw_approval() -> Diagram:
    """Draw what an approval is bound to, and the comparison before the call starts."""
    parts = (
        "arguments",
        "tool definition",
        "run, agent, requester",
        "policy decision",
        "sandbox, workspace",
        "named files (digest)",
    )
    boxes = {
        **{part: Box(0, number * 0.62, part, "note", 1.1, 0.46) for number, part in enumerate(parts)},
        "payload": Box(1.75, 1.24, "payload\nSHA-256", "step", 0.8, 0.9),
        "question": Box(3.2, 1.24, "question\nwith the hash", "person", 0.9, 0.9),
        "answer": Box(4.75, 1.24, "approval\nof this hash", "person", 0.9, 0.9),
        "check": Box(6.3, 1.24, "just before start:\nsame hash?", "step", 1.0, 0.9),
        "execute": Box(6.3, 0, "execute", "end", 1.0),
        "void": Box(6.3, 3.0, "void", "bad", 1.0),
    }
    arrows = (
        *(Arrow(part, "payload") for part in parts),
        Arrow("payload", "question"),
        Arrow("question", "answer", "person"),
        Arrow("answer", "check"),
        Arrow("check", "execute", "yes"),
        Arrow("check", "void", "no: changed"),
        Arrow("void", "question", "evaluated and asked again"),
    )
    return Diagram(
        "An approval is bound to the hash of the payload, which is compared again before the call starts", boxes, arrows
    )


def draw_deployment() -> Diagram:
    """Draw a server with what it talks to."""
    boxes = {
        "people": Box(0, 0.3, "people\n(browser)", "person"),
        "programs": Box(0, 1.6, "programs\n(API key)", "person"),
        "proxy": Box(1.5, 0.95, "reverse proxy\nTLS", "note"),
        "server": Box(
            3, 0, "interlock serve\n\nREST API, console\nworker: runs, triggers\none process", "step", 1.25, 2.46
        ),
        "runs": Box(5.1, 0, "runs.db: event log\nartifacts", "store", 1.15),
        "state": Box(5.1, 0.95, "server.db: accounts,\nkeys, journal", "store", 1.15),
        "sandbox": Box(5.1, 1.9, "sandboxed commands\nin the workspace", "note", 1.15),
        "model": Box(2.6, 3.3, "model provider", "note", 0.9),
        "audit": Box(3.75, 3.3, "SIEM, syslog, webhook", "note", 1.15),
    }
    arrows = (
        Arrow("people", "proxy"),
        Arrow("programs", "proxy"),
        Arrow("proxy", "server"),
        Arrow("server", "runs"),
        Arrow("server", "state"),
        Arrow("server", "sandbox"),
        Arrow("server", "model"),
        Arrow("server", "audit", "events"),
    )
    return Diagram(
        "Deployment: people and programs reach one server process, which keeps its state in local files", boxes, arrows
    )


def draw_loop() -> Diagram:
    """Draw the agent loop."""
    boxes = {
        "task": Box(0, 1.2, "task or\nmessage", "person", 0.6),
        "next": Box(1.1, 1.2, "next step,\nfrom the log", "step", 0.9),
        "model": Box(2.9, 1.2, "ask the model", "step", 0.9),
        "calls": Box(2.9, 0, "validate, decide,\nexecute, observe", "step", 0.9),
        "check": Box(4.7, 1.2, "valid type? claims\nmatch the facts?", "step", 0.95),
        "done": Box(6.3, 1.2, "completed", "end", 0.7),
        "wait": Box(0.9, 2.6, "paused", "person", 0.6),
        "end": Box(1.75, 2.6, "failed or cancelled", "bad", 0.9),
        "retry": Box(4.7, 2.6, "reason for the model", "note", 0.95),
    }
    arrows = (
        Arrow("task", "next"),
        Arrow("next", "model", "request"),
        Arrow("model", "calls", "tool calls"),
        Arrow("calls", "next"),
        Arrow("model", "check", "final answer"),
        Arrow("check", "done", "yes"),
        Arrow("check", "retry", "no"),
        Arrow("retry", "model"),
        Arrow("next", "wait", "question", 0.3),
        Arrow("next", "end", "budget,\ncancel", 0.6),
    )
    return Diagram(
        "The agent loop: the next step is decided from the log until the run is completed, paused or failed",
        boxes,
        arrows,
    )


#: By the file in `docs/images`.
DIAGRAMS: Mapping[str, Callable[[], Diagram]] = {
    "agent-loop.svg": draw_loop,
    "approval-binding.svg": draw_approval,
    "call.svg": draw_call,
    "deployment.svg": draw_deployment,
    "run-states.svg": draw_run_states,
}
