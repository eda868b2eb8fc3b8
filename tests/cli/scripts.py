"""Scripts for the model of a command, and a terminal that a command runs on."""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlock.models.scripted import ScriptedTurn, to_script, tool_call
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.person import Person, at_terminal

CTRL_C, CTRL_D = "\x03", "\x04"
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
#: Makes the terminal its own, as a shell does, so that Ctrl-C reaches it.
_ON_TERMINAL = """
import fcntl, json, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in json.loads(sys.argv.pop(1)):
    signal.signal(number, signal.SIG_IGN)
sys.argv[0] = "interlock"
from interlock.cli.main import main
main()
"""


def write_script(path: Path, *turns: ScriptedTurn | str) -> Path:
    """A turn that is a text is a final answer."""
    path.write_bytes(to_script(ScriptedTurn(text=turn) if isinstance(turn, str) else turn for turn in turns))
    return path


def calls(*named: tuple[str, dict[str, Any]], text: str = "") -> ScriptedTurn:
    return ScriptedTurn(text=text, calls=tuple(tool_call(tool, **arguments) for tool, arguments in named))


def command(script: str) -> ScriptedTurn:
    return calls(("bash", {"command": script}))


def run_name(output: str) -> str:
    """The short id of the run that a command said it begins."""
    found = re.search(r"^run ([0-9a-f]{8}): ", output, re.MULTILINE)
    assert found, output
    return found[1]


class OnTerminal:
    """A command on a terminal, and the person in front of it."""

    def __init__(self, person: Person, process: "subprocess.Popen[Any]") -> None:
        self.person = person
        self.process = process

    def sees(self, text: str) -> str:
        """Everything that came up since the last time, up to this text, without colours and moves."""
        return _MOVES.sub("", self.person.waits_for(text))

    def types(self, keys: str) -> None:
        self.person.types(keys)

    def ends(self) -> int:
        return self.process.wait(HANG_SECONDS)


@contextmanager
def on_terminal(*words: object, ignores: Sequence[int] = (), **options: Any) -> Generator[OnTerminal]:
    """Start a command that ignores these signals, as under `nohup`."""
    # A service has no TERM or a dumb one, which would be a terminal that cannot move its cursor.
    options["env"] = {**(options.get("env") or os.environ), "TERM": "xterm-256color"}
    with at_terminal() as person:
        process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, str([*map(int, ignores)]), *map(str, words)],
            stdin=person.keys,
            stdout=person.output,
            stderr=person.output,
            **options,
        )
        try:
            yield OnTerminal(person, process)
        finally:
            process.kill()
            process.wait()
