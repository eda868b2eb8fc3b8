"""What the pages about local tools and their sandbox say is so."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import LocalTools, ToolRuntime
from interlock.sandbox.commands.landlock import LandlockSandbox
from interlock.sandbox.commands.probe import BACKENDS, choose_sandbox
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.host.landlock import MIN_SCOPED_ABI, get_abi
from interlock.sandbox.interface import CAPABILITIES
from tests.support import call

from .local_samples import CALLS, PAGE, samples, shown_in
from .pages import ROOT, section, table_rows, text_of

TOOLS = text_of(PAGE)
SANDBOX = text_of("docs/sandbox.md")


def test_the_page_shows_what_the_tools_really_say() -> None:
    if choose_sandbox().confinement.backend != "bubblewrap":
        pytest.skip("the page shows answers of another backend")
    assert shown_in(TOOLS) == samples(), f"run {sys.executable} -m tests.docs.local_samples"


def test_the_page_shows_every_kind_of_tool() -> None:
    shown = {name for name, _ in CALLS}
    assert {"read_file", "write_file", "edit_file", "grep", "glob", "list_dir", "bash", "wait_task"} <= shown
    assert len(shown_in(TOOLS)) == len(CALLS)


def test_the_example_prints_what_the_page_says() -> None:
    command = [sys.executable, "examples/local_tools.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"```text\n{run.stdout}```" in TOOLS


def test_the_page_lists_every_option() -> None:
    options = list(inspect.signature(LocalTools).parameters)
    assert [row[0].strip("`") for row in table_rows(section(TOOLS, "Options"))] == options


async def test_the_page_names_the_timeouts(tmp_path: Path) -> None:
    async with ToolRuntime(tools=LocalTools(tmp_path)) as runtime:
        result = await runtime.execute(
            [call("usual", "bash", command="true"), call("long", "bash", command="true", timeout_seconds=99_999)]
        )
    seconds = [observation.facts["timeout_seconds"] for observation in result.observations]
    assert "The timeout is {:g} seconds by default, {:g} at most".format(*seconds) in TOOLS


def test_the_sandbox_page_lists_every_capability_of_every_backend() -> None:
    rows = table_rows(section(SANDBOX, "Backends"))
    assert {name.strip("`"): words for name, *_, words in rows} == dict(CAPABILITIES)
    said = {backend: {row[0].strip("`") for row in rows if row[1 + place]} for place, backend in enumerate(BACKENDS)}
    landlock = set(LandlockSandbox().confinement.capabilities)
    assert said["bubblewrap"] == set(CAPABILITIES)
    assert said["landlock"] == (landlock if get_abi() >= MIN_SCOPED_ABI else landlock | {"kill_tree"})
    assert said["none"] == set(UnconfinedSandbox().confinement.capabilities)


def test_every_hole_names_a_test_that_exists() -> None:
    rows = table_rows(section(SANDBOX, "Known escapes and their tests"))
    assert [row[0] for row in rows] == [f"H{number}" for number in range(1, 12)]
    for _, _, _, place in rows:
        file, _, name = place.strip("`").partition("::")
        assert re.search(rf"def {name}\b", text_of(file)), place


def test_the_doctor_says_it_in_the_words_of_the_page() -> None:
    command = [str(Path(sys.executable).with_name("interlock")), "doctor"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    page = section(SANDBOX, "`interlock doctor`")
    assert said.returncode == (1 if choose_sandbox().confinement.degraded else 0)
    starts = [line.partition(":")[0] for line in said.stdout.splitlines() if re.match(r"[a-z]+: ", line)]
    assert starts
    assert [start for start in starts if f"\n{start}: " not in page] == []
