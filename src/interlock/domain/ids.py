"""Identifiers of runs, actions and what they produce."""

import re
from hashlib import sha256
from os import urandom

MAX_NAME_CHARS = 256

#: Fast path for the common name: short and visible ASCII.
is_ascii_name = re.compile(r"[!-~]{1,256}").fullmatch


def new_run_id() -> str:
    """Create a random run id."""
    return "run_" + urandom(16).hex()


def new_action_id() -> str:
    """Create a random action id."""
    return "act_" + urandom(16).hex()


def is_valid_name(value: object) -> bool:
    """Return True if the text can name a call or a tool: short, printable, and not empty."""
    return type(value) is str and 0 < len(value) <= MAX_NAME_CHARS and value.isprintable()


def child_run_id(run_id: str, call_id: str) -> str:
    """Return the id of the child run of a call. It is deterministic, so the child run can be resumed."""
    return f"{run_id}.{sha256(call_id.encode(errors='backslashreplace')).hexdigest()[:12]}"
