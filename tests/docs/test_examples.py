"""Every example runs as it is, and shows what it says."""

import os
import subprocess
import sys
from pathlib import Path

from tests.each import each
from tests.patience import HANG_SECONDS

from .pages import EXAMPLES, ROOT, text_of

#: What each example must have printed, in this order.
PRINTED = {
    "agent": ["asked: Run order? ", "stock 2", "order ordered 50 tea", "COMPLETED - Tea was low. I ordered 50."],
    "approval": ["PAUSED_APPROVAL - Run send_mail?", "RUNNING - sent 5 characters to ana@example.org"],
    "chat": ["1: Hello.", "2: Are you there? - RUNNING", "Goodbye."],
    "crash": ["the first process ended with -9", "outcome_unknown - pay started", "paid: ['10']"],
    "durable_run": ["start:  PAUSED_APPROVAL", "answer: Run send_mail?", "go on:  COMPLETED - Ana has her mail."],
    "handoff": ["asked: reception", "asked: billing", "COMPLETED - Invoice 3 is paid."],
    "local_tools": [
        *("1 read_file ok: 1\ttea = 3.5", "2 read_file policy_denied: ", "3 bash ok: 1", "a person is asked: bash cat"),
        *("4 bash command_failed: cat: ../key.txt: ", "a person is asked: edit_file shop.py", "6 bash ok: 3.9"),
    ],
    "loop": ["Take an umbrella.", "| Bern: rain"],
    "nested_agents": ["front wants ask_clerk", "clerk wants refund", "COMPLETED - Your money is on its way."],
    "refusal": [
        "policy_denied: read_file was refused",
        "command_failed: cat: /home/agent/.ssh/id_ed25519: No such file",
    ],
    "quickstart": ["a True 3.5", "b False Denied by policy", "c False The arguments do not fit order"],
    "typed_output": ["Review(stars=4, summary='Good soup.')"],
    "your_own_model": ["The dice have spoken. 4 42 tokens"],
}
#: The pages that show all of what an example prints.
SHOWN_ON = {
    "agent": "docs/quickstart.md",
    "chat": "docs/agents.md",
    "durable_run": "docs/runs.md",
    "handoff": "docs/agents.md",
    "local_tools": "docs/local-tools.md",
    "nested_agents": "docs/agents.md",
    "quickstart": "docs/guide.md",
    "refusal": "README.md",
    "typed_output": "docs/agents.md",
    "your_own_model": "docs/models.md",
}


def _run(path: Path) -> str:
    """What it prints to a file, with nobody to answer."""
    run = subprocess.run(
        [sys.executable, "-W", "error", path],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


@each("path", [path for path in EXAMPLES if path.stem in PRINTED])
def test_an_example_runs_offline_and_shows_what_it_says(path: Path) -> None:
    printed = _run(path)
    place = 0
    for words in PRINTED[path.stem]:
        place = printed.find(words, place)
        assert place >= 0, f"{words!r} is missing, or comes too early, in:\n{printed}"
    if path.stem in SHOWN_ON:
        page = text_of(SHOWN_ON[path.stem])
        assert f"```text\n{printed}```" in page or f"It prints `{printed.rstrip()}`." in page
