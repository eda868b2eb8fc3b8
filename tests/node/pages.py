"""Formats the console's scripts and styles, or checks their format and types: `python -m tests.node.pages [--check]`.

prettier formats, and tsc checks the types. Where they are not installed and no npm registry can be reached, one line
says that nothing was checked, and that is no error.
"""

import subprocess
import sys
from pathlib import Path

from tests.node.install import NODE, PAGE_TOOLS, NoRegistryError, Packages, installed

_HERE = Path(__file__).parent
_SCRIPTS = _HERE.parents[1] / "src" / "interlock" / "server" / "console" / "static"


def main(*, check: bool, packages: Packages = PAGE_TOOLS) -> int:
    """Return the exit status: 0 if everything is right, or cannot be checked here."""
    try:
        modules = installed(packages).parents[2]
    except NoRegistryError as error:
        print(f"{error}; the console's scripts and styles were not checked", file=sys.stderr)
        return 0
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"error: {error}")
    prettier = [NODE, modules / "prettier/bin/prettier.cjs", "--config", _HERE / "prettier.json", "--log-level", "warn"]
    commands = [[*prettier, "--check" if check else "--write", _SCRIPTS]]
    if check:
        commands.append([NODE, modules / "typescript/bin/tsc", "--project", _HERE])
    running = [subprocess.Popen(command) for command in commands]
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
