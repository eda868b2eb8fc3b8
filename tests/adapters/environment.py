"""An environment for each framework: its packages lie over ours, since those of all frameworks do not fit together.

`python -m tests.adapters.environment langchain` runs the tests of one adapter.
"""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements" / "adapters"
_CACHE = Path(sys.prefix) / ".cache" / "adapters"

#: What `make test` runs: the whole way of a call, with two that need few packages. `make test-adapters` runs all.
SELECTED: dict[str, str] = dict.fromkeys(
    ("pydantic_ai", "openai_agents"),
    "allowed_call or approval_elsewhere or three_times or altered or killed_effect",
)


def frameworks() -> list[str]:
    """Return the frameworks that there is an adapter for."""
    return sorted(file.stem for file in REQUIREMENTS.glob("*.txt"))


def prepare(name: str) -> Path:
    """Install the packages of a framework, once for each version of its requirements. Return their folder."""
    file = REQUIREMENTS / f"{name}.txt"
    folder, stamp = _CACHE / name, _CACHE / f"{name}.digest"
    digest = sha256(file.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--quiet", "--no-deps", "--require-hashes", "--no-compile", "--target", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--requirement", str(file)], check=True)
    stamp.write_text(digest)
    return folder


def run(name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests of an adapter in its environment."""
    # Bytecode halves the time of each process, the killed ones included; it does not belong among the sources.
    environment = os.environ | {"PYTHONPATH": str(prepare(name)), "PYTHONPYCACHEPREFIX": str(_CACHE / "bytecode")}
    # What the outer pytest was told is not for this one.
    for variable in (
        "PYTHONDONTWRITEBYTECODE",
        "PYTEST_ADDOPTS",
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_WORKER_COUNT",
        "PYTEST_CURRENT_TEST",
    ):
        environment.pop(variable, None)
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
    file = ROOT / "tests" / "adapters" / f"suite_{name}.py"
    return subprocess.run(
        [*words, "--inline-snapshot=disable", *options, str(file)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    ended = run(sys.argv[1], *sys.argv[2:])
    print(ended.stdout)
    sys.exit(ended.returncode)
