"""Which paths a tool may open: those that were evaluated, as written and as resolved."""

from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    Decision,
    PolicyEngine,
    PolicyEvent,
    ToolContext,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import PolicyEvaluated
from tests.support import call, facts

Paths = frozenset[str]


class Says(PolicyEngine):
    """A policy that names no paths."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def evaluate(self, event: PolicyEvent) -> Decision:
        return self._decision


async def evaluate(folder: Path, verdict: str, **arguments: str) -> tuple[list[Paths], tuple[str, ...]]:
    """Return the paths that the tool may open, if it ran, and those of the recorded decision."""
    seen: list[Paths] = []

    def look(context: ToolContext, path: str | None = None, cwd: str | None = None) -> None:
        assert isinstance(context.judged, frozenset)
        seen.append(context.judged)

    declared = tool(look, risk="write", resources={"path": "path", "cwd": "folder"})
    options: dict[str, Any] = {
        "policy": Says(Decision(verdict=Verdict(verdict), reason="It says so.")),
        "interaction": CallbackInteractionProvider(lambda question: True),
    }
    async with ToolRuntime(tools=[declared], workspace=folder, **options) as runtime:
        await runtime.execute([call("c1", "look", **arguments)])
        (decision,) = [fact.decision for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]
    return seen, decision.paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace that is reached by a link, with a link to a file outside."""
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "outside.txt").touch()
    (tmp_path / "real" / "link").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "workspace").symlink_to(tmp_path / "real")
    return tmp_path / "workspace"


async def test_a_path_is_relative_to_the_workspace(folder: Path) -> None:
    written = [
        await evaluate(folder, "allow", path=path) for path in ("sub/x", str(folder / "sub/x"), "./sub/../sub/x")
    ]

    assert [seen for seen, _ in written] == [[{"sub/x"}]] * 3


async def test_a_link_counts_as_written_and_as_resolved(folder: Path) -> None:
    seen, _ = await evaluate(folder, "allow", path="link")

    assert seen == [{"link", str(folder.parent / "outside.txt")}]


async def test_the_folder_of_an_allowed_call_counts(folder: Path) -> None:
    assert await evaluate(folder, "allow", cwd="sub") == ([{"sub"}], ())
    assert await evaluate(folder, "allow", path="x", cwd="sub") == ([{"x", "sub"}], ())


async def test_the_folder_of_an_asked_call_is_bound_otherwise(folder: Path) -> None:
    seen, recorded = await evaluate(folder, "ask", path="x", cwd="sub")

    assert (seen, recorded) == ([{"x"}], ("x",))
    assert await evaluate(folder, "ask", cwd="sub") == ([Paths()], ())


async def test_a_denied_call_has_no_paths(folder: Path) -> None:
    assert await evaluate(folder, "deny", path="x", cwd="sub") == ([], ())


async def test_a_name_that_no_file_can_have_is_left_out(folder: Path) -> None:
    assert await evaluate(folder, "allow", path="a\0b") == ([Paths()], ())
