"""What the shell tool asks about a script: which commands it runs, and whether it only reads."""

from ...domain.tool import Risk, Situation
from ..analysis.example_event import hypothetical
from ..engine.subject import subjects
from .bash import read_script

_READ = frozenset({Risk.READ})


def commands_in(script: str) -> tuple[tuple[str, ...], ...] | None:
    """The words of each simple command; None when it is not known what the script runs."""
    read = read_script(script)
    return None if read.opaque else tuple(command.argv for command in read.commands if not command.hidden)


def only_reads(script: str, cwd: str, workspace: str) -> bool:
    """Is it proved that every part of the script only reads, and only in the workspace?"""
    situation = Situation(run_id="", workspace=workspace)
    event = hypothetical("bash", {"command": script, "cwd": cwd}, situation)
    parts = subjects(event, tuple(event.tool.resources.items()), {"command": script, "cwd": cwd})
    return all(part.risk <= _READ and not part.opaque for part in parts)
