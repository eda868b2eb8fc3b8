"""How long an import takes, in a fresh interpreter each time."""

import subprocess
import sys
import tempfile

#: Figures by name, and what is imported for each.
STATEMENTS = {
    "interlock": "import interlock",
    "pydantic": "import pydantic",
    "names": "from interlock import ToolRuntime, tool",
    "base_model": "from pydantic import BaseModel",
}

_TIMED = """
import time
began = time.perf_counter()
{}
print((time.perf_counter() - began) * 1e3)
"""


def import_ms() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as elsewhere:
        return {name: _measured(statement, elsewhere) for name, statement in STATEMENTS.items()}


def _measured(statement: str, folder: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(statement)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return float(done.stdout)
