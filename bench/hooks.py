"""What a hook costs: `python -m bench.hooks`. A real daemon, and the client as an agent starts it, against `/bin/true`.

Wall time depends on the machine and on what else it does; CPU time much less. The first line is the floor: starting any
process. Targets: at most 40 ms of wall time and 35 ms of CPU per hook on a quiet machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from interlock.hooks import thin
from interlock.hooks.daemon_status import read_status

_TARGETS = {"wall_ms": 40.0, "cpu_ms": 35.0}
_ROUNDS = 30
_START = "from interlock.cli.main import main; main()"


class HookCost(NamedTuple):
    """What one process cost."""

    wall_ms: float
    cpu_ms: float


def main() -> int:
    """Measure, print the figures, and return 1 when a target is missed."""
    with tempfile.TemporaryDirectory(prefix="il-") as folder:
        home = Path(folder)
        state = home / ".local" / "state" / "interlock"
        environment = {"HOME": folder, "PATH": os.environ["PATH"]}
        daemon = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, "hooks", "serve"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            return _compare(home, state, environment)
        finally:
            daemon.terminate()
            daemon.wait()
            assert read_status(state).pid == daemon.pid


def _compare(home: Path, state: Path, environment: dict[str, str]) -> int:
    direct = [sys.executable, "-I", "-S", thin.__file__, "claude", str(state)]
    script = [str(Path(sys.executable).with_name("interlock-hook")), "claude", str(state)]
    floor = _measure([["/bin/true"]] * _ROUNDS, home, environment, "t")
    rows = {"/bin/true": floor}
    for name, command in (("hook, as installed", direct), ("hook, console script", script)):
        if Path(command[0]).exists():
            rows[name] = _measure([command] * _ROUNDS, home, environment, name[-6:])
    for name, cost in rows.items():
        print(f"{name:24} wall {cost.wall_ms:6.1f} ms   cpu {cost.cpu_ms:6.1f} ms")
    installed = rows["hook, as installed"]
    missed = [name for name, target in _TARGETS.items() if getattr(installed, name) > target]
    print(f"targets: {_TARGETS}; missed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _measure(commands: list[list[str]], home: Path, environment: dict[str, str], prefix: str) -> HookCost:
    walls: list[float] = []
    cpus: list[float] = []
    for number, command in enumerate(commands):
        payload = {
            "session_id": "bench",
            "cwd": str(home),
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
            "tool_use_id": f"{prefix}{number}",
        }
        before = os.times()
        began = time.perf_counter()
        subprocess.run(
            command, input=json.dumps(payload).encode(), env=environment, stdout=subprocess.DEVNULL, check=True
        )
        walls.append((time.perf_counter() - began) * 1e3)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        cpus.append(used * 1e3)
    return HookCost(median(walls), sum(cpus) / len(cpus))


if __name__ == "__main__":
    sys.exit(main())
