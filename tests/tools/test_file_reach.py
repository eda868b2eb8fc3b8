"""What is said of the tools for files before they run: they are held to the workspace."""

from pathlib import Path

import pytest

from interlock import CallbackInteractionProvider, Question, ToolRuntime
from interlock.domain.tool import CallContext, SandboxScope
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.edit_file import edit_file_tool
from interlock.tools.files.list_dir import list_dir_tool
from interlock.tools.files.read_file import read_file_tool
from interlock.tools.files.write_file import write_file_tool
from tests.support import call


@pytest.mark.parametrize(
    ("make", "profile"),
    [
        (read_file_tool, "read-only"),
        (list_dir_tool, "read-only"),
        (write_file_tool, "workspace-write"),
        (edit_file_tool, "workspace-write"),
    ],
)
def test_a_tool_for_files_reaches_the_workspace(tmp_path: Path, make: type, profile: str) -> None:
    with Workspace(tmp_path) as workspace:
        reach = make(workspace).reach({}, CallContext(run_id="run_1"))

    assert reach == SandboxScope(sandbox="workspace", profile=profile)


async def test_a_question_about_a_file_says_what_holds_the_tool(tmp_path: Path) -> None:
    asked: list[Question] = []
    interaction = CallbackInteractionProvider(lambda question: bool(asked.append(question)))
    with Workspace(tmp_path) as workspace:
        runtime = ToolRuntime(tools=[write_file_tool(workspace)], workspace=tmp_path, interaction=interaction)
        await runtime.execute([call("c1", "write_file", path="a.txt", content="text")])
        await runtime.close()

    assert "sandbox: workspace/workspace-write" in asked[0].risk
