"""The story through both adapters, against a fake of the wire formats that others wrote, with a new process after the
first answers of a person."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import ScriptedTurn
from tests.models.aimock.server import Aimock, running_aimock

from .lives import ROOT, assert_sound, left_in
from .story import CODES, FINAL, INNER, NO_EFFECT, OUTER, TASK


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with running_aimock(tmp_path_factory.mktemp("aimock")) as server:
        yield server


def taught(task: str, turns: tuple[ScriptedTurn, ...], kind: str) -> Iterator[dict[str, Any]]:
    """The answers to a task, in their order, for a model of this name."""
    for position, turn in enumerate(turns):
        calls = [{"id": call.call_id, "name": call.tool, "arguments": call.arguments} for call in turn.calls]
        response = ({"content": turn.text} if turn.text else {}) | ({"toolCalls": calls} if calls else {})
        yield {"match": {"userMessage": task, "model": kind, "sequenceIndex": position}, "response": response}


@pytest.fixture(scope="module")
def tellers() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.runs.telling"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process


def tell(process: "subprocess.Popen[str]", *about: object) -> str:
    """What a process of its own comes to."""
    assert process.stdin
    assert process.stdout
    print(*about, file=process.stdin, flush=True)
    return process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_story_ends_the_same_whoever_tells_it(
    aimock: Aimock, tellers: "subprocess.Popen[str]", tmp_path: Path, kind: str
) -> None:
    aimock.teach(*taught(TASK, OUTER, kind), *taught("Help.", INNER, kind))

    assert tell(tellers, tmp_path, kind, aimock.url, 2) == "PAUSED_APPROVAL"
    assert tell(tellers, tmp_path, kind, aimock.url, 99) == f"COMPLETED {FINAL}"

    left = left_in(tmp_path)
    assert_sound(left)
    expected = {call_id: code for run in CODES.values() for call_id, code in run.items()}
    assert {seen.call_id: seen.code for seen in left.observations} == expected
    assert left.effects == dict.fromkeys(expected.keys() - NO_EFFECT, 1)
