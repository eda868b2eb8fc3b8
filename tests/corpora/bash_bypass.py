"""Commands that must not pass as reading, and harmless ones: `bash_bypass_corpus.jsonl`."""

import json
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    id: str
    command: str
    category: str
    is_benign: bool


def load() -> list[Case]:
    text = Path(__file__).with_name("bash_bypass_corpus.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.split("\n") if line]
    return [
        Case(line["id"], line["command"], line["category"], line["expected"] == "benign_readonly") for line in lines
    ]
