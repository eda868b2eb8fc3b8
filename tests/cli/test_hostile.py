"""Files and logs that want to harm whoever looks at them: nothing reaches the terminal, nothing is believed."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.cli.config.user_paths import find_user_paths
from interlock.policy.files.source import parse_source
from interlock.policy.files.yaml_text import to_yaml
from tests.log_rows import edit_events

from .conftest import Run, exported, recorded_log, write

EVIL = "\x1b[2J\x1b]0;x\x07\x9b31m\u202e\u200b\x7f\r\b"
IN_YAML = json.dumps(f"a {EVIL} b").replace("\x7f", "\\u007f")


def is_harmless(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def is_plain(text: str) -> bool:
    return text.isascii() and is_harmless(text)


@pytest.fixture
def evil_policy(tmp_path: Path) -> Path:
    file = tmp_path / "evil.yaml"
    file.write_text(
        "version: 1\nrules:\n"
        f"  - {{id: evil, decision: deny, command: [{{words: [make, {IN_YAML}]}}], agent: [{IN_YAML}, '*'], "
        f"reason: {IN_YAML}, message: {IN_YAML}}}\n"
        f"  - {{id: path, decision: ask, path: {IN_YAML}, prompt: {IN_YAML}}}\n"
    )
    return file


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_texts_of_a_policy_are_shown_without_any_trick(run: Run, evil_policy: Path, as_json: list[str]) -> None:
    looks = is_plain if as_json else is_harmless

    for arguments in (
        ("explain", "bash", f"make 'a {EVIL} b'", "--policy", evil_policy),
        ("explain", "write_file", json.dumps({"path": f"a {EVIL} b"}), "--policy", evil_policy),
        ("rules", "--user", evil_policy),
        ("check", evil_policy),
        ("test", evil_policy),
    ):
        result = run(*arguments, *as_json)
        assert result.exit_code in (0, 1)
        assert looks(result.stdout), arguments
        assert is_harmless(result.stderr)


def test_what_is_wrong_with_a_file_is_told_without_any_trick(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(f"version: 1\n{IN_YAML}: 1\nallow:\n  - {IN_YAML}\n")

    result = run("check", file)

    assert result.exit_code == 1
    assert is_harmless(result.stderr)
    assert is_plain(run("check", file, "--json").stdout)


def test_texts_of_a_log_are_shown_without_any_trick(run: Run, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", *[f"make 'a {EVIL} b'"] * 3, "make 'a\nb'", run_id="run_1")
    deny = tmp_path / "deny.yaml"
    deny.write_text("version: 1\ndeny: [bash]\n")

    flips = run("backtest", deny, "--log", log)
    rules = run("suggest", "--log", log)

    assert flips.stdout.count("ask -> deny") == 4
    assert is_harmless(flips.stdout)
    assert is_plain(rules.stdout)
    assert is_plain(run("backtest", deny, "--log", log, "--json").stdout)
    assert is_plain(run("suggest", "--log", log, "--json").stdout)


def not_logs(folder: Path) -> dict[str, Path]:
    found = {name: folder / name for name in ("empty", "noise", "json", "cut", "other", "folder", "pipe", "missing")}
    found["empty"].write_bytes(b"")
    found["noise"].write_bytes(bytes(range(256)) * 9)
    found["json"].write_text('{"hash":"00","event":{"seq":0,"run_id":"r","fact":{"type":"nothing"}}}\n')
    found["cut"].write_bytes(b"SQLite format 3\0" + b"\0" * 100)
    sqlite3.connect(found["other"]).executescript("CREATE TABLE t (x); PRAGMA user_version = 0").connection.close()
    found["folder"].mkdir()
    os.mkfifo(found["pipe"])
    return found


def test_what_is_no_log_is_refused_in_words_and_left_as_it_is(run: Run, policy: Path, tmp_path: Path) -> None:
    files = not_logs(tmp_path)
    before = {name: path.read_bytes() for name, path in files.items() if path.is_file()}

    results = {name: run("backtest", policy, "--log", path) for name, path in files.items()}

    refused = {name for name, result in results.items() if result.exit_code == 2}
    assert refused == {"noise", "cut", "other", "folder", "pipe", "missing"}
    assert all("interlock: " in results[name].stderr for name in refused)
    assert "skipped, because it was modified: r: " in results["json"].stderr
    assert results["empty"].stdout.startswith("0 decisions flip, 0 stay\n")
    assert {name: path.read_bytes() for name, path in files.items() if path.is_file()} == before


@given(noise=st.binary(max_size=200), at=st.integers(0, 2_000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_export_is_never_a_crash_and_never_believed(
    run: Run, policy: Path, tmp_path: Path, noise: bytes, at: int
) -> None:
    source, damaged = tmp_path / "runs.ndjson", tmp_path / "damaged.ndjson"
    if not source.exists():
        exported(recorded_log(tmp_path / "runs.db", "npm test"), source)
    content = source.read_bytes()
    damaged.write_bytes(content[:at] + noise + content[at + len(noise) :])

    result = run("backtest", policy, "--log", damaged)

    assert result.exit_code in (0, 2)
    assert is_harmless(result.stdout + result.stderr)


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        '{"hash":"%s","event":{"seq":0,"run_id":"run_1","fact":%s}}' % ("0" * 64, DEEP),  # noqa: UP031
        '{"checkpoint":{"number":1,"runs":%s},"signature":"%s"}' % (DEEP, "0" * 128),  # noqa: UP031
    ],
    ids=["event", "checkpoint"],
)
@pytest.mark.parametrize(
    "command",
    [
        ("audit", "verify", "FILE"),
        ("policy", "suggest", "--log", "FILE"),
        ("policy", "backtest", "POLICY", "--log", "FILE"),
    ],
    ids=["verify", "suggest", "backtest"],
)
def test_a_nested_export_is_refused_in_words(
    cli: Run, home: Path, policy: Path, line: str, command: tuple[str, ...]
) -> None:
    file = home / "deep.ndjson"
    file.write_text(line + "\n")

    result = cli(*({"FILE": file, "POLICY": policy}.get(word, word) for word in command))

    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert "line 1 of the export is nested deeper than 256 levels (nested_too_deep)" in result.stderr


@pytest.mark.parametrize("command", [("audit", "verify"), ("replay",), ("runs", "show"), ("runs", "export-test")])
def test_a_nested_event_in_a_log_is_refused_in_words(cli: Run, home: Path, command: tuple[str, ...]) -> None:
    file = recorded_log(home / "runs.db", "ls")
    body = (f'{{"seq":1,"deep":{DEEP}}}').encode()
    edit_events(file, "UPDATE events SET body = ? WHERE seq = 1", parameters=(body,))
    out = ("-o", home / "test_it.py") if "export-test" in command else ()

    result = cli(*command, "last", "--log", file, *out)

    assert result.exit_code in (1, 2)
    assert result.exception.__class__ is SystemExit
    assert is_harmless(result.stdout + result.stderr)


def test_nested_settings_are_refused_in_words(cli: Run, home: Path, tmp_path: Path) -> None:
    deep = "a = " + "[" * 50_000 + "]" * 50_000 + "\n"
    write(find_user_paths({"HOME": str(home)}).settings_file, deep)
    serve = write(tmp_path / "serve.toml", deep)

    for arguments in (("config", "show"), ("serve", "--config", serve)):
        result = cli(*arguments)
        assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
        assert "nested" in result.stderr


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(
        ["yes", "no", "0o7", "1_000", "1e3", "~", "null", "<<", "=", "2001-01-01", "- a", "a: b", "#", " a "]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(value=st.dictionaries(st.sampled_from(["a", "b", "0o7", "yes"]), json_values, max_size=3))
def test_what_is_written_as_yaml_is_plain_and_is_read_back_exactly(value: dict[str, Any]) -> None:
    text = to_yaml(value)

    assert is_plain(text)
    assert parse_source(text.encode(), "written.yaml").value == value
