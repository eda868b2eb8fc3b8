"""Another host: a network namespace that can be cut off from the database."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.patience import HANG_SECONDS


class Host:
    """A network namespace with one cable to this one."""

    def __init__(self) -> None:
        self.name = f"interlock{os.getpid()}"
        subnet = f"10.213.{os.getpid() % 256}"
        self.server_address = f"{subnet}.1"
        ip("netns", "add", self.name)
        ip("link", "add", self._here, "type", "veth", "peer", "name", "cable", "netns", self.name)
        ip("address", "add", f"{subnet}.1/24", "dev", self._here)
        ip("link", "set", self._here, "up")
        ip("-n", self.name, "address", "add", f"{subnet}.2/24", "dev", "cable")
        self.connect()

    @property
    def _here(self) -> str:
        return f"il{os.getpid()}"

    def connect(self) -> None:
        ip("-n", self.name, "link", "set", "cable", "up")

    def cut_off(self) -> None:
        """Nothing arrives any more, and no one is told."""
        ip("-n", self.name, "link", "set", "cable", "down")

    def close(self) -> None:
        ip("link", "del", self._here)
        ip("netns", "del", self.name)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=HANG_SECONDS)


@contextmanager
def open_host() -> Generator[Host]:
    """Skip the test where it cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root makes network namespaces")
    try:
        host = Host()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there are no network namespaces here: {error.stderr}")
    try:
        yield host
    finally:
        host.close()
