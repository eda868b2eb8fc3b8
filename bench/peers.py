"""Our adapter in the benchmark of our peers, where a copy of that benchmark is at hand.

It is copied to `.bench/peers` before it is used, because it installs its environments beside itself. They are kept
there, so only the first run with a peer installs it.
"""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_DEFAULT_SOURCE = _ROOT.parent / "shared" / "peers"
_COPY = _ROOT / ".bench" / "peers"


def run_peers(source: Path | None, only: str, sections: str, rounds: int) -> int:
    source = source or _DEFAULT_SOURCE
    if not (source / "peers.py").is_file():
        print(f"error: there is no peers.py in {source}; name its folder with --from", file=sys.stderr)
        return 1
    shutil.copytree(source, _COPY, dirs_exist_ok=True, copy_function=_copy_writable)
    names = [] if only == "all" else only.split(",")
    if not _install(names):
        return 1
    return subprocess.run(_command(names, sections, rounds), cwd=_COPY, check=False).returncode


def _copy_writable(source: str, target: str) -> None:
    """The source may be read-only; the copy is used again."""
    shutil.copyfile(source, target)
    Path(target).chmod(0o755)


def _install(names: list[str]) -> bool:
    """The environments of these peers, of all without names. False when one is missing."""
    known = {name: Path(entry[0]) for name, entry in runpy.run_path(str(_COPY / "peers.py"))["PEERS"].items()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"error: no peer is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return False
    wanted = {_environment(known[name]) for name in names or known}
    missing = sorted(name for name in wanted if not _marker(name).exists())
    if missing:
        print(f"installing {', '.join(missing)}", file=sys.stderr)
        done = subprocess.run(["./setup.sh", *missing], cwd=_COPY, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="", file=sys.stderr)
        for line in done.stdout.splitlines():
            if line.startswith("ok "):
                _marker(line.removeprefix("ok ")).touch()
    return all(_marker(name).exists() for name in wanted)


def _environment(python: Path) -> str:
    """`venvs/NAME/bin/python`"""
    return python.parts[-3]


def _marker(environment: str) -> Path:
    return _COPY / "venvs" / environment / ".installed"


def _command(names: list[str], sections: str, rounds: int) -> list[str]:
    results = _COPY / "results" / "last.jsonl"
    results.unlink(missing_ok=True)
    return [
        sys.executable,
        "peers.py",
        "run",
        *(["--only", ",".join(names)] if names else []),
        *("--sections", sections, "--rounds", str(rounds), "--out", str(results)),
        *("--add", f"interlock={sys.executable}:{_ROOT / 'bench' / 'peers_adapter.py'}"),
        *("--add", f"interlock-runtime={sys.executable}:{_ROOT / 'bench' / 'peers_runtime.py'}"),
        *("--import-stmt", "interlock=import interlock"),
    ]
