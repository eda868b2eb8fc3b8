"""What a hook costs: `python -m bench.hooks`. A real daemon, and the client as an agent starts it, against `/bin/true`.

Wall time depends on the machine and on what else it does; CPU time much less. The first line is the floor: starting any
process. All take turns. Targets of the hook as it is installed, on a quiet machine: at most 40 ms of wall time and
35 ms of CPU. The least of the wall times is what comes nearest to a quiet machine where others work on it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from interlock.hooks import thin
from interlock.hooks.daemon_status import read_status

_WALL_MS, _CPU_MS = 40.0, 35.0
_ROUNDS = 60
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
    commands = {"/bin/true": ["/bin/true"], "hook, as installed": direct, "hook, console script": script}
    commands = {name: command for name, command in commands.items() if Path(command[0]).exists()}
    costs: dict[str, list[HookCost]] = {name: [] for name in commands}
    load = os.getloadavg()[0]
    for number in range(_ROUNDS):
        for name, command in commands.items():
            costs[name].append(_measure(command, home, environment, f"{name[-6:]}{number}"))
    missed = 0
    for name, each in costs.items():
        walls, cpu = [cost.wall_ms for cost in each], median(cost.cpu_ms for cost in each)
        verdicts = ("", "")
        if name == "hook, as installed":
            verdicts = _judge(median(walls), _WALL_MS), _judge(cpu, _CPU_MS)
            missed = sum("MISSED" in verdict for verdict in verdicts)
        print(f"{name:22} wall median {median(walls):6.1f} ms, least {min(walls):6.1f} ms  {verdicts[0]}")
        print(f"{'':22} CPU  median {cpu:6.1f} ms{'':18}{verdicts[1]}")
    print(f"{_ROUNDS} rounds, {os.cpu_count()} cores, load {load:.1f} to {os.getloadavg()[0]:.1f}")
    return 1 if missed else 0


def _judge(figure: float, target: float) -> str:
    return f"<= {target:g}: {'met' if figure <= target else 'MISSED'}"


def _measure(command: list[str], home: Path, environment: dict[str, str], call_id: str) -> HookCost:
    payload = {
        "session_id": "bench",
        "cwd": str(home),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": call_id,
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, input=json.dumps(payload).encode(), env=environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return HookCost(wall * 1e3, used * 1e3)


if __name__ == "__main__":
    sys.exit(main())
