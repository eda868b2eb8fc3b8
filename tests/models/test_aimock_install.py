"""What the installer of the tests' fake provider says when it cannot do its work."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest


class _Wrong(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def wrong_registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Wrong) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def installing(folder: Path, registry: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.models.aimock.install", folder]
    quick = {"npm_config_fetch_retries": "0", "npm_config_registry": registry}
    return subprocess.run(command, env={**os.environ, **quick}, capture_output=True, text=True, check=False)


def test_without_a_registry_it_says_that_tests_will_be_skipped(tmp_path: Path) -> None:
    done = installing(tmp_path / "aimock", "http://127.0.0.1:9/")

    assert (done.returncode, done.stderr) == (
        0,
        "aimock is not installed: no npm registry could be reached (ECONNREFUSED); "
        "the tests that need it will be skipped\n",
    )


def test_a_registry_with_something_wrong_is_an_error(tmp_path: Path, wrong_registry: str) -> None:
    done = installing(tmp_path / "aimock", wrong_registry)

    assert done.returncode == 1
    assert "error: aimock could not be installed:" in done.stderr
    assert "E404" in done.stderr
