"""The check of the console's scripts where there is no registry to install its programs from."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.install import PAGE_TOOLS
from tests.node.pages import main


def test_unreachable_registry_is_reported_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")

    assert main(check=True, packages=replace(PAGE_TOOLS, folder=tmp_path)) == 0
    assert "no npm registry could be reached (ECONNREFUSED); the console's scripts" in capfd.readouterr().err
