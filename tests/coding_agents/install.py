"""Install the coding agents that the tests run. How that is done is in `tests/node/install.py`.

`python -m tests.coding_agents.install` does it before the tests; otherwise the first test that needs one does. The lock
file names the packages that hold the programs themselves (for most agents one package per platform), so no install
script has to run. About 400 MB from the registry and 20 seconds of CPU, once per lock file; of the 1.1 GB on disk all
but 5 MB are the four programs for this platform (Codex 436, Claude Code 349, opencode 177, Gemini CLI 96).
"""

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.node.install import NODE, NoRegistryError, Packages, found, main

_SYSTEM = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
_MACHINE = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
_PLATFORM = f"{_SYSTEM}-{_MACHINE}"

AGENTS = Packages(
    name="coding agents",
    declared=Path(__file__).parent,
    folder=Path(sys.prefix) / ".cache" / "coding-agents",
    program=Path("node_modules") / "@google" / "gemini-cli" / "bundle" / "gemini.js",
    seconds=1200,
)
#: Where node keeps what it compiled of Gemini CLI.
COMPILED = AGENTS.folder / "compiled"


@dataclass(frozen=True)
class NotInstalled:
    """Why an agent cannot run here."""

    reason: str


def find_program(agent: str) -> list[str] | NotInstalled:
    """Return the command that starts this agent: `claude`, `codex`, `gemini` or `opencode`."""
    script = found(AGENTS)
    if isinstance(script, NoRegistryError):
        return NotInstalled(str(script))
    modules = AGENTS.folder / "node_modules"
    if agent == "gemini":
        return [str(NODE), str(script)]
    pattern = {
        "claude": f"@anthropic-ai/claude-code-{_PLATFORM}/claude",
        "codex": f"@openai/codex-{_PLATFORM}/vendor/*/bin/codex",
        "opencode": f"opencode-{_PLATFORM}/bin/opencode",
    }[agent]
    programs = sorted(modules.glob(pattern))
    return [str(programs[0])] if programs else NotInstalled(f"the lock file has no {agent} for {_PLATFORM}")


if __name__ == "__main__":
    main(AGENTS, *sys.argv[1:2])
