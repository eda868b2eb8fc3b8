"""Logs that earlier code recorded are read, verified and replayed as they were."""

import asyncio
import json
import re
from collections.abc import Sequence

import pytest

from interlock import LogEntry, Replay, dry_run, read_export, replay_model, to_json, to_ndjson, verify
from tests.each import each

from .reading import LOGS, PARTS, chain_hashes, log_names, read_log, read_summary
from .scenes import AGENTS

NAMES = log_names()
each_log = each("name", NAMES)
#: Differences that a replay of a run with a refused consent shows today: the refusal is not taken from the record.
REPLAY_DIFFERENCES = {"consents": ("decision", "observation")}


def test_every_log_has_its_summary() -> None:
    assert NAMES
    assert sorted(path.stem for path in LOGS.glob("*.json")) == NAMES


@each_log
def test_a_golden_log_verifies(name: str) -> None:
    entries = read_log(name)
    audit = verify(entries, entries[0].run_id)

    assert (audit.ok, audit.flaw, audit.count) == (True, None, len(entries))
    assert [entry.hash for entry in entries] == chain_hashes(entries)


@each_log
def test_an_edited_golden_log_has_a_flaw(name: str) -> None:
    edited = (LOGS / f"{name}.ndjson").read_bytes().replace(b'"seq":3,', b'"seq":3 ,')
    entries = read_export(edited.splitlines())

    audit = verify(entries, entries[0].run_id)

    assert audit.flaw is not None
    assert "event 3" in audit.flaw.message


@each_log
def test_a_golden_log_is_exported_again_as_it_was(name: str) -> None:
    entries = read_log(name)

    assert b"".join(to_ndjson(entries)) == (LOGS / f"{name}.ndjson").read_bytes()
    assert read_export(b"".join(to_json(entries)).splitlines()) == entries


@each_log
@pytest.mark.parametrize("part", PARTS)
def test_a_golden_log_says_what_it_said(name: str, part: str) -> None:
    """Event by event, in its final state, to the model and the user, to operators, and in every export schema."""
    assert PARTS[part](read_log(name)) == read_summary(name)[part]


@each_log
def test_a_replay_steps_through_every_event(name: str) -> None:
    entries = read_log(name)
    replay = Replay(entries)

    assert [(step.event.seq, step.event.run_id) for step in replay] == [(entry.seq, entry.run_id) for entry in entries]
    assert [step.event.type for step in replay] == [json.loads(entry.body)["fact"]["type"] for entry in entries]


@pytest.mark.parametrize("name", AGENTS)
def test_recorded_answers_come_out_as_they_were(name: str) -> None:
    replayed = asyncio.run(replay_model(read_log(name), AGENTS[name]()))

    assert tuple(found.kind for found in replayed.differences) == REPLAY_DIFFERENCES.get(name, ()), replayed.words
    assert replayed.unchecked == {}


@pytest.mark.parametrize("name", AGENTS)
def test_recorded_calls_are_judged_as_they_were(name: str) -> None:
    judged = asyncio.run(dry_run(read_log(name), AGENTS[name]()))

    assert [row.call_id for row in judged.changed] == (["refused"] if name in REPLAY_DIFFERENCES else [])
    assert [row.call_id for row in judged.rows] == _proposed(read_log(name))


def _proposed(entries: Sequence[LogEntry]) -> list[str]:
    facts = [json.loads(entry.body)["fact"] for entry in entries]
    return list(dict.fromkeys(fact["call_id"] for fact in facts if fact["type"] == "tool.intent"))


def test_no_log_names_the_host_that_recorded_it() -> None:
    text = "".join(path.read_text() for path in sorted(LOGS.iterdir()))

    assert not re.findall(r"\.pyenv|/home/|/root/|/work/|/Users/|/var/folders", text)
    assert set(re.findall(r"/tmp/[\w.-]+", text)) == {"/tmp/golden-00000000"}
