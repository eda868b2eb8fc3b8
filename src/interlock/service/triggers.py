"""What begins a run without a person: what a schedule and a webhook have in common."""

import re

MAX_TASK_CHARS = 32_768

is_trigger_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch


def trigger_problem(name: str, agent: str, task: str) -> str:
    """What is wrong with these; empty: nothing."""
    if not is_trigger_name(name):
        return "a name has up to 64 lower-case letters, digits, - and _"
    if not agent or not task.strip() or len(task) > MAX_TASK_CHARS:
        return f"it needs an agent, and a task of up to {MAX_TASK_CHARS} characters"
    return ""
