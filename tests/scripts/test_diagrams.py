"""The diagrams of the docs: valid SVG without references, and the states of a run are those of the table."""

from xml.etree import ElementTree

import pytest

from interlock.domain.outcome import Phase
from interlock.domain.state.lifecycle import RUN_TRANSITIONS, RunState
from scripts.diagrams import DIAGRAMS, Diagram, draw_call, draw_run_states, render


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_self_contained(name: str) -> None:
    diagram = DIAGRAMS[name]()
    drawn = render(diagram)

    ElementTree.fromstring(drawn)  # noqa: S314 - it is our own picture
    assert drawn.count("http") == 1, "only the namespace"
    assert {name for arrow in diagram.arrows for name in (arrow.start, arrow.end)} <= set(diagram.boxes)


def test_a_call_has_every_stage() -> None:
    assert {phase.value for phase in Phase} <= set(draw_call().boxes)


def test_run_states_have_every_transition() -> None:
    """The three ways to pause are one box."""
    expected = {
        ("paused" if state.value.startswith("paused") else state.value, word, after.value)
        for state, row in RUN_TRANSITIONS.items()
        for word, after in row.items()
        if not after.value.startswith("paused")
    }

    assert expected | {(RunState.RUNNING.value, "run.paused", "paused")} == _transitions(draw_run_states())


def _transitions(diagram: Diagram) -> set[tuple[str, str, str]]:
    return {(arrow.start, arrow.label, arrow.end) for arrow in diagram.arrows if arrow.label}
