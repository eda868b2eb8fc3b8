"""Names for runs, actions and what they produce."""

from secrets import token_hex

MAX_NAME_CHARS = 256


def new_run_id() -> str:
    return "run_" + token_hex(16)


def new_action_id() -> str:
    return "act_" + token_hex(16)


def is_name(value: object) -> bool:
    """May it name a call or a tool? Short, printable, and not empty."""
    return type(value) is str and 0 < len(value) <= MAX_NAME_CHARS and value.isprintable()
