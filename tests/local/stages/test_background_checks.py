"""Real tests that run in the background, in the sandbox, while the run does other things."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import local_run
from .signals import Pipe

pytestmark = pytest.mark.usefixtures("confined")
#: Says that it has begun, waits until somebody opens the pipe, and passes.
_PYTEST = "#!/bin/sh\necho begun > begun\nread line < go\necho '2 passed in 0.01s'\n"


@pytest.fixture
def program(root: Path) -> Path:
    file = root / "pytest"
    file.write_text(_PYTEST)
    file.chmod(0o755)
    return file


@pytest.mark.requirement("R183")
async def test_tests_that_run_beside_an_edit_are_told_with_the_state_before_and_after_them(
    root: Path, program: Path, pipe: Callable[[str], Pipe]
) -> None:
    begun, go = pipe("begun"), pipe("go")

    async with local_run(root) as run:
        started = await run.bash("./pytest -q", background=True)
        await begun.received()
        await run.do("write_file", path="new.py", content="x = 1\n")
        go.send()
        seen = await run.do("wait_task", task_id=started.facts["task"]["id"])
        again = await run.do("read_task", task_id=started.facts["task"]["id"])

    told = seen.facts["verification"]
    assert (seen.kind, again.kind, again.side_effects) == ("verification", "tool", ())
    assert (told["program"], told["ok"], told["exit_code"], told["counts"]["passed"]) == ("pytest", True, 0, 2)
    assert (told["changed_during"], told["started_call"]) == (True, started.call_id)
    assert [str(effect) for effect in seen.side_effects if "created new.py" in str(effect)]
