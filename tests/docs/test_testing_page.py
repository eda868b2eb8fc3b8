"""The page about testing: its files are a test suite that passes, and its tables are complete."""

import os
import subprocess
import sys
from pathlib import Path

from interlock.testing import conformance, pytest_plugin
from tests.patience import HANG_SECONDS

from .pages import python_blocks, section, table_rows, text_of, toml_blocks

PAGE = text_of("docs/testing.md")


def test_files_of_the_page_pass(tmp_path: Path) -> None:
    (config,) = toml_blocks(PAGE)
    (tmp_path / "pyproject.toml").write_text(config)
    for block in python_blocks(PAGE):
        name = block.code.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block.code)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )

    assert run.returncode == 0, run.stdout
    assert len(list(tmp_path.glob("test_*.py"))) == 4


def test_tables_are_complete() -> None:
    fixtures = {name for name in vars(pytest_plugin) if name.startswith("interlock_")}
    assert {row[0].strip("`") for row in table_rows(section(PAGE, "Setup"))} == fixtures
    suites = [row[0].strip("`") for row in table_rows(section(PAGE, "Conformance suites"))]
    assert sorted(suites) == sorted(conformance.__all__)
