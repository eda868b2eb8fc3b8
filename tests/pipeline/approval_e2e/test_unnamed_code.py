"""What a command runs without naming it is bound to the approval, or shown as not bound."""

from pathlib import Path
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    Decision,
    HeadlessInteractionProvider,
    LocalTools,
    PolicyEvent,
    Question,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.history.call_view import QuestionView
from interlock.rendering.question import UNNAMED_CODE_WARNING, render_question
from interlock.server.console.views.question import build_approval_panel
from interlock.server.rest.responses import build_response
from interlock.server.rest.schemas.runs import ApprovalDetailResponse
from tests.support import call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path.resolve()
    (folder / "Makefile").write_text("test:\n\t@echo safe > ran\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "x.sh").write_text("echo safe > ran\n")
    return folder


async def asked_about(tools: Any, tool_name: str, arguments: dict[str, Any], **options: Any) -> Question:
    async with ToolRuntime(tools=tools, interaction=HeadlessInteractionProvider("wait"), **options) as runtime:
        [question] = (await runtime.execute([call("c1", tool_name, **arguments)])).questions
    return question


@pytest.mark.requirement("R160")
@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({"command": "make test"}, "Makefile"),
        ({"command": "make test"}, "GNUmakefile"),
        ({"command": "make -C sub -f x.mk"}, "sub/x.mk"),
        ({"command": "npm test"}, "package.json"),
        ({"command": "python3 -m pytest sub/test_a.py"}, "sub/conftest.py"),
        ({"command": "go test ./..."}, "go.mod"),
        ({"command": "bash x.sh", "cwd": "sub"}, "sub/x.sh"),
        ({"command": "make -f ../Makefile test", "cwd": "sub"}, "Makefile"),
    ],
)
async def test_a_changed_decisive_file_is_asked_about_again(
    project: Path, arguments: dict[str, Any], changes: str
) -> None:
    asked: list[Question] = []

    def think(question: Question) -> bool:
        asked.append(question)
        (project / changes).write_text("test:\n\t@echo other > ran\n")
        return len(asked) == 1

    async with ToolRuntime(tools=LocalTools(project), interaction=CallbackInteractionProvider(think)) as runtime:
        result = await runtime.execute([call("c1", "bash", **arguments)])

    assert [observation.code for observation in result.observations] == ["user_denied"]
    [change] = asked[1].changes
    assert change.what.endswith(changes)
    assert not (project / "ran").exists()


@pytest.mark.parametrize("command", ["make test", "python3 -c 'import helper'", ". ./env.sh", "git commit -m x", "$X"])
async def test_unnamed_code_is_shown_everywhere(project: Path, command: str) -> None:
    question = await asked_about(LocalTools(project), "bash", {"command": command})

    assert question.bound.surroundings.unnamed_code
    assert f"NOT bound: {UNNAMED_CODE_WARNING}" in [line.text for line in render_question(question, 200).lines]
    assert (UNNAMED_CODE_WARNING,) in [
        fact.values for fact in build_approval_panel(question).facts if fact.label == "NOT bound"
    ]
    view = QuestionView(question=question, status="PENDING", asked_seq=0, asked_at=0)
    assert build_response(ApprovalDetailResponse, view).bound.surroundings.unnamed_code


async def test_a_command_that_names_all_says_nothing(project: Path) -> None:
    question = await asked_about(LocalTools(project), "bash", {"command": "mkdir a && rm -r sub"})

    assert not question.bound.surroundings.unnamed_code
    assert "NOT bound" not in [line.text.partition(":")[0] for line in render_question(question, 100).lines]


class Asks:
    """A policy of somebody else, which knows nothing of commands."""

    def evaluate(self, event: PolicyEvent) -> Decision:
        return Decision(verdict=Verdict.ASK, reason="Always.")


@pytest.mark.parametrize(("risk", "expected"), [("execute", True), ("write", False)])
@pytest.mark.parametrize("options", [{}, {"policy": Asks()}], ids=["rules", "other policy"])
async def test_every_execute_call_is_bound_or_says_not(risk: Any, expected: bool, options: dict[str, Any]) -> None:
    @tool(risk=risk)
    async def deploy(target: str) -> str:
        """Do it."""
        return target

    question = await asked_about([deploy], "deploy", {"target": "x"}, **options)

    assert question.bound.surroundings.unnamed_code is expected
