"""What the shell tool asks about a script: which commands it runs, and whether it only reads."""

from ...domain.tool import Risk, CallContext
from ..analysis.example_event import hypothetical
from ..engine.subject import extract_call_parts
from .bash import parse_script

_ONLY_READS = frozenset({Risk.READ})


def list_script_commands(script: str) -> tuple[tuple[str, ...], ...] | None:
    """The words of each simple command; None when it is not known what the script runs."""
    read = parse_script(script)
    return None if read.opaque else tuple(command.argv for command in read.commands if not command.hidden)


def is_read_only_script(script: str, cwd: str, workspace: str) -> bool:
    """Is it proved that every part of the script only reads, and only in the workspace?"""
    situation = CallContext(run_id="", workspace=workspace)
    event = hypothetical("bash", {"command": script, "cwd": cwd}, situation)
    parts = extract_call_parts(event, tuple(event.tool.resources.items()), {"command": script, "cwd": cwd})
    return all(part.risk <= _ONLY_READS and not part.opaque for part in parts)
