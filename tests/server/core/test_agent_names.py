"""An agent that was given no name is called what it was asked for as."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from interlock.server.core.runs import agent_loading
from interlock.server.core.runs.agent_loading import load_agents

MODULE = """
from interlock.agent.agent import Agent
from interlock.models.scripted import ScriptedModel


def support():
    return Agent(provider=ScriptedModel(["Hello."]))


class Shop:
    billing = support()
    called = Agent(name="ledger", provider=ScriptedModel(["Hello."]))
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"named_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def test_several_agents_without_names_can_be_served_by_the_command(shop: str) -> None:
    found = load_agents({}, [f"{shop}:support", f"{shop}:Shop.billing", f"{shop}:Shop.called"])

    assert [each.name for each in found] == ["support", "billing", "ledger"]


def test_an_installed_agent_has_the_name_of_its_entry_point(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoints([EntryPoint("helpdesk", f"{shop}:support", agent_loading.ENTRY_POINT_GROUP)])

    def offered_in(group: str) -> EntryPoints:
        return offered.select(group=group)

    monkeypatch.setattr(agent_loading, "entry_points", offered_in)

    assert [each.name for each in load_agents({}, [])] == ["helpdesk"]
