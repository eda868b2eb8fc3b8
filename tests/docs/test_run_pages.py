"""What the pages about agents, their runs and their models say is so."""

import inspect
import re
from types import FunctionType

import pytest

from interlock import Agent, AgentResult, Budgets, Inbox, Runner
from interlock.domain.state.lifecycle import RUN_STATUS
from interlock.domain.state.verification import VerificationStatus
from interlock.models.connection import DEFAULT_TIMEOUTS, MAX_ANSWER_BYTES, MAX_LINE_BYTES
from interlock.models.response_assembly import MAX_ARGUMENTS_BYTES, MAX_CALLS, MAX_TEXT_BYTES
from interlock.verification.claims import find_claim
from interlock.verification.sentences import split_sentences

from .pages import section, table_rows, text_of

AGENTS, RUNS, MODELS = (text_of(f"docs/{name}.md") for name in ("agents", "runs", "models"))
VERIFICATION, REPLAY = text_of("docs/verification.md"), text_of("docs/replay.md")


def test_the_first_agent_fits_on_a_screen() -> None:
    code = text_of("examples/agent.py").partition("\n\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 26


def test_the_page_lists_every_field_of_an_agent() -> None:
    assert _names(section(AGENTS, "Fields of an agent")) == sorted(Agent.__struct_fields__)


def test_the_page_lists_every_option_and_method_of_a_runner_and_every_field_of_a_result() -> None:
    tables = section(AGENTS, "Run an agent").split("\n\n|")[1:]
    options, methods, fields = ([row[0] for row in table_rows("\n|" + table)] for table in tables)
    assert _listed(options) == sorted(name for name in inspect.signature(Runner).parameters if name != "agent")
    assert set(_listed(methods)) <= set(dir(Runner))
    assert {"start", "run", "run_sync", "open", "recover", "close"} == set(_listed(methods))
    properties = [name for name, value in vars(AgentResult).items() if isinstance(value, property)]
    assert _listed(fields) == sorted([*AgentResult.__struct_fields__, *properties])


def test_the_page_has_every_status() -> None:
    assert {word for word in RUN_STATUS.values() if f"`{word}`" in section(AGENTS, "Run an agent")} == set(
        RUN_STATUS.values()
    )


def test_the_page_lists_every_budget_with_its_default() -> None:
    rows = table_rows(section(AGENTS, "Budgets"))
    shown = {row[0].strip("`"): None if row[1] == "none" else float(row[1]) for row in rows}
    assert shown == {name: getattr(Budgets(), name) for name in Budgets.__struct_fields__}


def test_the_page_lists_every_method_of_a_desk_for_people() -> None:
    public = {name for name, value in vars(Inbox).items() if isinstance(value, FunctionType) and name[0] != "_"}
    listed = [
        re.findall(r"`(\w+)\(([\w, ]*)\)`", row[0])[0]
        for row in table_rows(section(RUNS, "Answering from another process"))
    ]
    assert public - {"close", "cancel_children", "apply_queued", "fail"} == {name for name, _ in listed}
    for name, arguments in listed:
        assert list(inspect.signature(getattr(Inbox, name)).parameters)[1:] == arguments.split(", ")


def test_the_page_names_the_limits_of_an_answer() -> None:
    shown = {row[0]: row[1] for row in table_rows(section(MODELS, "Timeouts and limits"))}
    assert shown == {
        "to connect": f"{DEFAULT_TIMEOUTS.connect_seconds:g} s",
        "until the first byte": f"{DEFAULT_TIMEOUTS.first_byte_seconds:g} s",
        "between two bytes": f"{DEFAULT_TIMEOUTS.idle_seconds:g} s",
        "one line of an answer": f"{MAX_LINE_BYTES >> 20} MiB",
        "one whole answer": f"{MAX_ANSWER_BYTES >> 20} MiB",
        "the text of an answer": f"{MAX_TEXT_BYTES >> 20} MiB",
        "calls in an answer": f"{MAX_CALLS}",
        "the arguments of a call": f"{MAX_ARGUMENTS_BYTES >> 10} KiB",
    }


def test_the_page_has_every_status_of_a_verification() -> None:
    rows = table_rows(section(VERIFICATION, "What a result says"))
    assert {row[0].strip("`") for row in rows} == set(VerificationStatus.__args__)


@pytest.mark.parametrize(("claim", "no_claim"), table_rows(section(VERIFICATION, "What counts as a claim")))
def test_the_sentences_of_the_page_are_claims_or_none(claim: str, no_claim: str) -> None:
    assert find_claim(claim)
    assert not find_claim(no_claim)
    assert list(split_sentences(claim))


def test_the_page_has_every_way_to_replay_under_its_own_heading() -> None:
    ways = [re.findall(r"\[(.+)\]\(#(.+)\)", row[0])[0] for row in table_rows(REPLAY.partition("\n## ")[0])]
    assert [way for way, _ in ways] == ["trace", "model", "dry run", "fork", "test"]


def _names(text: str) -> list[str]:
    return _listed([row[0] for row in table_rows(text)])


def _listed(cells: list[str]) -> list[str]:
    return sorted(name for cell in cells for name in re.findall(r"`(\w+)", cell))
