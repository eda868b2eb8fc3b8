"""What is read from the bytes of a policy file, and what is refused before anybody looks at what it means."""

import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.policy.files.problems import MAX_DEPTH, MAX_FILE_BYTES, MAX_NODES, PolicyFileError, PolicyProblem
from interlock.policy.files.source import parse_source, read_policy_file
from tests.each import each
from tests.patience import HANG_SECONDS, cpu_seconds_below


def refusal(content: bytes, path: str = "policy.yaml") -> tuple[PolicyProblem, ...]:
    with pytest.raises(PolicyFileError) as refused:
        parse_source(content, path)
    return refused.value.problems


def test_every_value_has_the_line_that_it_stands_in() -> None:
    source = parse_source(b"version: 1\ndeny:\n  - bash\n  - path: [a,\n      b]\nallow: []\n", "policy.yaml")

    assert source.value == {"version": 1, "deny": ["bash", {"path": ["a", "b"]}], "allow": []}
    places = [
        ("version",),
        ("deny",),
        ("deny", 0),
        ("deny", 1),
        ("deny", 1, "path"),
        ("deny", 1, "path", 1),
        ("allow",),
    ]
    assert [source.line_at(place) for place in places] == [1, 2, 3, 4, 4, 5, 6]
    assert source.line_at(("deny", "mapping", 1, "path", "no such key")) == 4


@each(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("10.0.0.1", "10.0.0.1"),
        ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z"),
        ("'no'", "no"),
        ('"017"', "017"),
        ("y", "y"),
        ("=", "="),
    ],
)
def test_a_plain_value_is_what_it_looks_like(text: str, value: object) -> None:
    assert parse_source(f"key: {text}\n".encode(), "policy.yaml").value == {"key": value}


@each(
    "text",
    [
        *("no", "yes", "on", "off", "True", "FALSE", "Null"),
        *("017", "0o17", "0x1f", "0b1", "1_000", "+1", "1:30", ".inf", ".nan", "1.", "1e400", "9007199254740993"),
    ],
)
def test_what_readers_of_yaml_do_not_agree_on_is_refused(text: str) -> None:
    problems = refusal(f"first: 1\nkey: {text}\n".encode())

    assert [problem.line for problem in problems] == [2]
    assert text in problems[0].reason
    assert "quotes" in problems[0].reason


@each(
    ("content", "line", "words"),
    [
        (b"a: &x 1\nb: *x\n", 1, "anchors are not allowed"),
        (b"a: 1\nb: *x\n", 2, "aliases are not allowed"),
        (b"a: 1\nb: !!python/object:os.system x\n", 2, "tags are not allowed"),
        (b"a: !own x\n", 1, "tags are not allowed"),
        (b"a: 1\n<<: {b: 2}\n", 2, "merge keys are not allowed"),
        (b"a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice; first in line 1"),
        (b"a: 1\n1: 2\n", 2, "a key is a text"),
        (b"a: 1\n? [b]\n: 2\n", 2, "a key is a text"),
        (b"a: 1\nno: 2\n", 2, "as a boolean"),
        (b"a: 1\n---\nb: 2\n", 2, "one document"),
        (b"a:\n\t- b\n", 2, "not YAML"),
        (b"a: 1\nb: [\n", 3, "not YAML"),
        (b"a: 1\nb: \xe9\n", 2, "not UTF-8"),
        (b"\xef\xbb\xbfa: 1\n", 1, "byte order mark"),
        (b"\xff\xfea\x00", 1, "not UTF-8"),
        (b"a: 1\nb: \x1b[2J\n", 2, "U+001B"),
        (b"a: 1\n\nb: \x00\n", 3, "U+0000"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(content: bytes, line: int, words: str) -> None:
    problem = refusal(content)[0]

    assert (problem.path, problem.line) == ("policy.yaml", line)
    assert words in problem.reason
    assert str(problem).startswith(f"policy.yaml:{line}: ")


def test_all_problems_are_told_at_once_and_the_error_is_one_of_configuration() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)policy.yaml:1: .*\npolicy.yaml:2: .*\npolicy.yaml:3: "):
        parse_source(b"a: no\nb: &x 1\nc: 017\n", "policy.yaml")


BILLION_LAUGHS = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [*%c, *%c, *%c]\n" % (letter, letter, letter - 1, letter - 1, letter - 1) for letter in range(98, 123)
)


@each(
    ("content", "words"),
    [
        (BILLION_LAUGHS, "not allowed"),
        (b"[" * 1_000_000, f"more than {MAX_DEPTH} deep"),
        (b"{" * 1_000_000, f"more than {MAX_DEPTH} deep"),
        (b"- " * 500_000, f"more than {MAX_DEPTH} deep"),
        (b"? " * 500_000, f"more than {MAX_DEPTH} deep"),
        (b"a: [" + b"1," * 500_000, f"more than {MAX_NODES:,} values"),
        (b"- |\n" * 200_000, f"more than {MAX_NODES:,} values"),
        (b"a" * (2 << 20), "larger than"),
    ],
)
def test_a_bomb_is_refused_before_it_costs_anything(content: bytes, words: str) -> None:
    tracemalloc.start()
    try:
        with cpu_seconds_below(5):
            problems = refusal(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert words in problems[0].reason
    assert len(problems) <= 60
    assert peak < 40 << 20


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_the_limits_are_where_they_are_said_to_be() -> None:
    parse_source(nested(MAX_DEPTH + 1), "policy.yaml")
    refusal(nested(MAX_DEPTH + 2))
    parse_source(b"- 1\n" * (MAX_NODES - 1), "policy.yaml")
    refusal(b"- 1\n" * MAX_NODES)
    parse_source(b"a".ljust(MAX_FILE_BYTES), "policy.yaml")
    refusal(b"a".ljust(MAX_FILE_BYTES + 1))


def test_toml_says_the_same_with_lines_of_tables_and_keys() -> None:
    content = b'version = 1\n[[rules]]\nid = "a"\n\n[[rules]]\nid = "b"\nexpires = 2030-01-31T12:00:00Z\n'
    source = parse_source(content, "policy.toml")

    assert source.value == {
        "version": 1,
        "rules": [{"id": "a"}, {"id": "b", "expires": "2030-01-31T12:00:00+00:00"}],
    }
    assert [source.line_at(place) for place in [("version",), ("rules", 1), ("rules", 1, "id")]] == [1, 5, 6]


@each(
    ("content", "line", "words"),
    [
        (b"a = 1\na = 2\n", 2, "not TOML"),
        (b"a = 1\nb = [\n", 0, "not TOML"),
        (b"a = 1\n[b]\n[b]\n", 3, "not TOML"),
        (b"a = " + b"[" * 500_000, 0, "deep"),
        (b"a." * 100_000 + b"b = 1", 1, "dots"),
        (b"a = 1\nb = nan\n", 2, "number"),
        (b"a = 1\nb = 9007199254740993\n", 2, "number"),
        (b"a = " + b"9" * 5_000, 0, "not TOML"),
        (b"[[a]]\n" * 100_000, 19_999, "values"),
        (b"a.b.c.d = {" + b"e.f.g.h = {" * 20 + b"}" * 21, 1, "deep"),
    ],
)
def test_what_is_not_plain_toml_is_refused(content: bytes, line: int, words: str) -> None:
    with cpu_seconds_below(10):
        problem = refusal(content, "policy.toml")[0]

    assert words in problem.reason
    assert problem.line in (line, 0)


@settings(deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for path in ("policy.yaml", "policy.toml"):
        with suppress(PolicyFileError):
            parse_source(content, path)


YAML_PIECES = st.sampled_from(
    [*"abc:-?[]{},#&*!|>'\"%@`~ \n\t0179.", "\n  ", "\n- ", ": ", "<<: ", "--- ", "...\n", "no", "\\ud800", "\x85"]
)


@settings(deadline=None)
@given(st.lists(YAML_PIECES, max_size=60).map("".join))
def test_any_text_that_looks_like_yaml_is_read_or_refused(text: str) -> None:
    with suppress(PolicyFileError):
        assert parse_source(text.encode(), "policy.yaml").line_at(()) == 1


def test_only_regular_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")

    for path in (tmp_path / "fifo.yaml", tmp_path / "folder.yaml", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(PolicyFileError, match="this is not a regular file"):
            read_policy_file(str(path))
    with pytest.raises(PolicyFileError, match="there is no such file"):
        read_policy_file(str(tmp_path / "missing.yaml"))
    with pytest.raises(PolicyFileError, match="it cannot be read"):
        read_policy_file(str(tmp_path / "loop.yaml"))
    with pytest.raises(PolicyFileError, match="it cannot be read"):
        read_policy_file("nul\0.yaml")


def test_a_link_to_a_file_is_read_and_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    (tmp_path / "link.yaml").symlink_to("policy.yaml")
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(1 << 40)

    assert parse_source(read_policy_file(str(tmp_path / "link.yaml")), "link.yaml").value == {"version": 1}
    with pytest.raises(PolicyFileError, match="larger than"):
        read_policy_file(str(tmp_path / "huge.yaml"))


def test_a_file_that_becomes_a_pipe_is_refused_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    regular = os.stat(__file__)
    monkeypatch.setattr(os, "stat", lambda path: regular)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    with pytest.raises(PolicyFileError, match="this is not a regular file"):
        read_policy_file(str(tmp_path / "fifo.yaml"))


def test_without_the_native_reader_the_same_is_read_and_refused() -> None:
    script = """
import yaml
del yaml.CSafeLoader
from interlock.policy.files.problems import PolicyFileError
from interlock.policy.files.source import parse_source

assert parse_source(b"a: 1\\nb: [x, {c: 'no'}]\\n", "p").value == {"a": 1, "b": ["x", {"c": "no"}]}
for content in (b'a: "\\\\ud800"', b"a: &x 1", b"[" * 1000, b"a: *x", b"a: !t 1", b"a:\\n\\t- b", b"a: no"):
    try:
        parse_source(content, "p")
    except PolicyFileError as error:
        assert error.problems[0].line, error
    else:
        raise AssertionError(content)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_SECONDS)
