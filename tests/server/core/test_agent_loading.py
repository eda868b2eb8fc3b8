"""Agents by their names."""

import ast
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.server.core.runs import agent_loading
from interlock.server.core.runs.agent_loading import load_agents
from interlock.server.core.settings import AgentTable

MODULE = """
from interlock.agent.agent import Agent
from interlock.models.scripted import ScriptedModel
from interlock.server.core.runs.served_agent import ServedAgent

support = Agent(name="support", provider=ScriptedModel(["Hello."]))
served = ServedAgent(agent=support, description="Helps.", on_rejection="degrade")


def make():
    return served


def fails():
    raise RuntimeError("no key")


class Shop:
    support = support
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the folder of whoever starts the server."""
    name = f"shop_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def test_a_hostile_folder_replaces_no_module(tmp_path: Path) -> None:
    """Neither of the standard library nor of an installed package, also where they are not loaded yet."""
    for name in ("json", "colorsys", "yaml", "sqlite3", "asyncio", "starlette", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "shop.py").write_text("import colorsys, json, sqlite3, sys, yaml\nprint(sys.path)")
    program = Path(sys.executable).with_name("interlock")

    ended = subprocess.run(
        [program, "serve", "--agent", "shop:support"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    path: list[str] = ast.literal_eval(ended.stdout)
    assert (path[-1], path.count(str(tmp_path)), str(program.parent) in path) == (str(tmp_path), 1, False)
    assert (ended.returncode, "module 'shop' has no attribute 'support'" in ended.stderr) == (2, True)


def test_an_installed_module_of_the_same_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "colorsys.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    with pytest.raises(ConfigurationError, match=r"colorsys' is .*, which comes before .*give yours another name"):
        load_agents({}, ["colorsys:support"])


@pytest.mark.parametrize("name", ["support", "served", "make", "Shop.support"])
def test_an_agent_is_found_as_an_object_or_made_by_a_function(shop: str, name: str) -> None:
    (found,) = load_agents({}, [f"{shop}:{name}"])

    assert found.name == "support"


def test_the_configuration_names_it_and_says_how_its_runs_are_treated(shop: str) -> None:
    table = AgentTable(object=f"{shop}:make", description="Ours.", mode=PermissionMode.READ_ONLY)

    (found,) = load_agents({"helpdesk": table}, [])

    assert (found.name, found.agent.name, found.description) == ("helpdesk", "helpdesk", "Ours.")
    assert (found.mode, found.on_rejection) == (PermissionMode.READ_ONLY, "degrade")
    assert found.agent.context.window_tokens is None


def test_the_configuration_may_set_the_window_of_the_model(shop: str) -> None:
    (found,) = load_agents({"helpdesk": AgentTable(object=f"{shop}:make", window_tokens=16_000)}, [])

    assert found.agent.context.window_tokens == 16_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}:nothing", "has no attribute 'nothing'"),
        ("{}:fails", "RuntimeError: no key"),
        ("{}:Agent", "cannot be loaded"),
        ("{}:MODULE.x", "cannot be loaded"),
        ("{}", "names no agent"),
        (":x", "names no agent"),
        ("..:x", "cannot be loaded"),
    ],
)
def test_what_is_no_agent_is_refused_in_words(shop: str, name: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_agents({}, [name.format(shop)])

    assert words in str(refused.value)


def test_where_nobody_names_one_installed_packages_offer_theirs(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoints([EntryPoint("support", f"{shop}:support", agent_loading.ENTRY_POINT_GROUP)])

    def offered_in(group: str) -> EntryPoints:
        return offered.select(group=group)

    monkeypatch.setattr(agent_loading, "entry_points", offered_in)

    assert [each.name for each in load_agents({}, [])] == ["support"]
    assert [each.description for each in load_agents({}, [f"{shop}:served"])] == ["Helps."]
