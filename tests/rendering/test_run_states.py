"""One word for each state of a run, in the CLI, REST and the console."""

from typing import Any

from typer.main import get_command

from interlock.cli.commands.runs import app
from interlock.domain.state.lifecycle import ActionState, RunState
from interlock.rendering.run_states import ACTION_STATES, RUN_STATES, DisplayState
from interlock.server.rest.app import API_ROUTES
from interlock.server.rest.openapi import build_openapi


def test_every_state_has_one_presentation() -> None:
    assert set(RUN_STATES) == set(DisplayState)
    assert set(RunState) - set(RUN_STATES) == set()
    assert set(ACTION_STATES) == set(ActionState)
    assert len({shown.label for shown in RUN_STATES.values()}) == len(RUN_STATES)


def test_cli_and_rest_use_the_same_words() -> None:
    described = build_openapi(API_ROUTES)["components"]["schemas"]
    group: Any = get_command(app)
    (state,) = [option for option in group.commands["list"].params if option.name == "state"]
    assert set(state.type.choices) == set(described["DisplayState"]["enum"]) == set(RUN_STATES)
    assert described["RunResponse"]["properties"]["state"] == {"$ref": "#/components/schemas/DisplayState"}
