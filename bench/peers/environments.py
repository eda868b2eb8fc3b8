"""The environments of the measured runtimes: packages as `packages/NAME.txt` pins them, each in its own folder.

They are in the user's cache folder, or in `BENCH_CACHE`, and made once for each version of that file.
"""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

_PACKAGES = Path(__file__).with_name("packages")
_TIMEOUT_SECONDS = 900


def cache_folder() -> Path:
    """Return where environments are kept."""
    if chosen := os.environ.get("BENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interlock-bench"


def prepare(name: str) -> Path | str:
    """Install the packages of an environment if they are not there yet.

    Returns:
        Its Python, or one line that says why there is none.
    """
    pinned = _PACKAGES / f"{name}.txt"
    digest = sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()
    folder = cache_folder() / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.is_file() and stamp.read_text() == digest:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    for command in (
        (sys.executable, "-m", "venv", str(folder)),
        (*pip, "--only-binary", ":all:", "--requirement", str(pinned)),
        (str(python), "-m", "compileall", "-q", str(folder / "lib")),
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{name} could not be installed: {error}"
        if done.returncode and "compileall" not in command:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            return f"{name} could not be installed: {last[:200]}"
    stamp.write_text(digest)
    return python
