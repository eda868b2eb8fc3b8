"""Choose the packages of each framework that an adapter is tested with: `python -m scripts.lock_adapters [NAME...]`.

Reads `requirements/adapters/NAME.in`. Packages that `requirements/dev.txt` has in a version that fits are not repeated:
the others lie over them. Needs uv.
"""

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "requirements" / "adapters"
_DEV = _ROOT / "requirements" / "dev.txt"


def lock(file: Path) -> None:
    """Write the pinned packages of one framework."""
    known = set(_split(_DEV.read_text()))
    try:
        resolved = _resolve(file, "--constraint", str(_DEV))
    except subprocess.CalledProcessError:  # it does not fit ours
        resolved = _resolve(file)
    chosen = [
        entry for entry in _split(resolved) if entry not in known and not entry.startswith(("pywin32", "colorama"))
    ]
    file.with_suffix(".txt").write_text("\n".join(chosen) + "\n")


def _resolve(file: Path, *options: str) -> str:
    words = ["uv", "pip", "compile", str(file), "--universal", "--python-version", "3.11", "--generate-hashes"]
    quiet = ["--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"]
    return subprocess.run(  # noqa: S603 - these words and files of this repository
        [*words, *quiet, *options], check=True, capture_output=True, text=True
    ).stdout


def _split(requirements: str) -> list[str]:
    """Return the packages, each with its hashes."""
    return [entry.strip() for entry in re.split(r"\n(?=\S)", requirements) if "==" in entry]


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(file.stem for file in _FOLDER.glob("*.in")):
        lock(_FOLDER / f"{name}.in")
