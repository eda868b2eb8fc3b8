"""Try the wheel in `dist/` as a user gets it: installed in clean environments, without extras and with `cli`.

`make dist` builds it first. Needs the package registry for the dependencies.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from venv import create

DIST = Path(__file__).resolve().parent.parent / "dist"
#: What must be in the wheel besides Python: what the package reads at run time.
DATA = (".sql", ".html", ".js", ".css", "py.typed")


def check_contents(wheel: Path, sdist: Path) -> None:
    """Compare the data files of the wheel with those of the sources, and the version of both."""
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if name.startswith("interlock/")}
    package = DIST.parent / "src"
    sources = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.name.endswith(DATA)}
    missing = sorted(name for name in sources - names if "__pycache__" not in name)
    if missing:
        raise SystemExit(f"error: {wheel.name} lacks {', '.join(missing[:5])}")
    with tarfile.open(sdist) as packed:
        if not any(name.endswith("/LICENSE") for name in packed.getnames()):
            raise SystemExit(f"error: {sdist.name} lacks LICENSE")


def try_installed(wheel: Path, extra: str, *commands: list[str]) -> None:
    """Install the wheel in a new environment, and run commands of that environment."""
    with TemporaryDirectory() as folder:
        create(folder, with_pip=True)
        programs = Path(folder, "bin")
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([programs / "pip", "install", "--quiet", requirement], check=True)  # noqa: S603
        for name, *arguments in commands:
            subprocess.run([programs / name, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
    print(f"ok: {requirement.rpartition('/')[2]}")


def main() -> int:
    """Check what `make dist` built."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    check_contents(wheel, sdist)
    try_installed(wheel, "", ["python", "-W", "error", "-c", "from interlock import *; help('interlock')"])
    try_installed(wheel, "cli", ["interlock", "--help"], ["interlock", "demo"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
