"""What `docs/cli.md` shows of a session: made by real commands on a real folder, with what is another each time (ids,
times, digests, the folder) written the same.

    .venv/bin/python -m tests.docs.cli_session

writes it into the page.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.patience import HANG_SECONDS

PAGE = "docs/cli.md"
TASK = "Tea costs 3.90 now."
EDIT = {"path": "shop.py", "old_string": "3.5", "new_string": "3.9"}
SCRIPT = {
    "form": "interlock/script/v1",
    "turns": [
        {
            "text": "I look at the file first.",
            "calls": [{"call_id": "c1", "tool": "read_file", "arguments": json.dumps({"path": "shop.py"})}],
        },
        {"calls": [{"call_id": "c2", "tool": "edit_file", "arguments": json.dumps(EDIT)}]},
        {"text": "Tea costs 3.90 now."},
    ],
}
#: Stands for the id that the first command shows.
_QUESTION = "QUESTION"
COMMANDS = (
    ("run", "--script", "../script.json", "--headless", TASK),
    ("approvals", "list"),
    ("approvals", "approve", _QUESTION, "--by", "ana"),
    ("runs", "list"),
    ("runs", "resume", "last"),
    ("audit", "verify", "last"),
)
_INTERLOCK = str(Path(sys.executable).with_name("interlock"))
_BLOCK = re.compile(r"^```console\n(\$ interlock run .*?)^```$", re.MULTILINE | re.DOTALL)
_RUN_ID = re.compile(r"^run ([0-9a-f]{8}):", re.MULTILINE)
_ACTION_ID = re.compile(r"interlock approvals show ([0-9a-f]{8})")
_OTHER_EACH_TIME: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"run_5e2f9c1a[0-9a-f]{24}", "run_5e2f9c1a..."),
    (r"(checkpoint \d+:)[0-9a-f]{64}", r"\1..."),
    (r"(?m)^(  ok) +[\d.]+ m?s  ", r"\1          2 ms  "),
    (r"(edit_file|interlock)  (\d+ s +)", lambda match: f"{match[1]}  {'2 s'.ljust(len(match[2]))}"),
)


def session() -> str:
    """The commands with what they print."""
    with TemporaryDirectory() as scratch:
        folder = Path(os.path.realpath(scratch))
        project = folder / "shop"
        project.mkdir()
        (project / "shop.py").write_text("tea = 3.5\n")
        (folder / "script.json").write_text(json.dumps(SCRIPT))
        told: list[str] = []
        for command in COMMANDS:
            asked = _ACTION_ID.search("".join(told))
            words = tuple(asked[1] if asked and word == _QUESTION else word for word in command)
            told.append(f"$ {shlex.join(['interlock', *words])}\n{_said(words, project)}")
        if "tea = 3.9" not in (project / "shop.py").read_text():
            raise RuntimeError("\n".join(told))
    return _settled("\n".join(told), str(folder))


def shown_in(page: str) -> str:
    return _BLOCK.findall(page)[0]


def written(page: str, told: str) -> str:
    return _BLOCK.sub(lambda _: f"```console\n{told}```", page)


def _said(words: tuple[str, ...], project: Path) -> str:
    run = subprocess.run(
        [_INTERLOCK, *words],
        cwd=project,
        env={
            "PATH": "/usr/bin:/bin",
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "XDG_STATE_HOME": f"{project.parent}/state",
            "XDG_CONFIG_HOME": f"{project.parent}/config",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return run.stdout


def _settled(told: str, folder: str) -> str:
    # A line is broken where the real name of the folder, which may be long, does not fit.
    broken = r"(?:\n\s*)?".join(map(re.escape, f"{folder}/shop"))
    told = re.sub(rf" in\s+{broken}", " in /home/ana/shop", told).replace(folder, "/home/ana")
    for found, shown in ((_RUN_ID, "5e2f9c1a"), (_ACTION_ID, "b07d44e2")):
        match = found.search(told)
        told = told.replace(match[1], shown) if match else told
    for pattern, shown in _OTHER_EACH_TIME:
        told = re.sub(pattern, shown, told)
    return "".join(f"{line.rstrip()}\n" for line in told.splitlines())


if __name__ == "__main__":
    page = Path(PAGE)
    page.write_text(written(page.read_text("utf-8"), session()), "utf-8")
