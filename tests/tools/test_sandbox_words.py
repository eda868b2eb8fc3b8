"""Lines of a failed command that look as if the sandbox had refused something."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.shell.violations import ADVICE, MAX_LINE_CHARS, SIGNS, SandboxViolation, find_violations
from tests.each import each


@each(
    ("line", "cause"),
    [
        ("touch: cannot touch '/usr/x': Read-only file system", "read_only"),
        ("npm error code EROFS", "read_only"),
        ("curl: (6) Could not resolve host: example.com", "network"),
        ("OSError: [Errno 101] Network is unreachable", "network"),
        ("Error: getaddrinfo EAI_AGAIN registry.example.org", "network"),
        ("dd: error writing '/tmp/x': No space left on device", "temporary_space"),
        ("bash: fork: retry: Resource temporarily unavailable", "processes"),
        ("OSError: [Errno 27] File too large", "file_size"),
        ("mount: /mnt: Operation not permitted", "permission"),
    ],
)
def test_a_line_that_tells_of_a_refusal_is_found(line: str, cause: str) -> None:
    assert find_violations(f"some output\n{line}\nmore", 1, has_network=False) == (SandboxViolation(cause, line),)  # pyright: ignore[reportArgumentType] - a parameter


def test_a_command_that_succeeded_may_speak_of_anything() -> None:
    assert find_violations("docs.md: Read-only file system", 0, has_network=False) == ()


def test_a_missing_right_counts_only_when_nothing_surer_was_found() -> None:
    text = "x: Permission denied\ny: Read-only file system\n"

    assert [violation.cause for violation in find_violations(text, 1, has_network=False)] == ["read_only"]


def test_a_network_that_is_there_was_not_refused() -> None:
    assert find_violations("Could not resolve host: nowhere.invalid", 1, has_network=True) == ()


def test_every_cause_has_words_for_a_model() -> None:
    assert SIGNS.keys() == ADVICE.keys()


@given(st.text(), st.sampled_from([sign for signs in SIGNS.values() for sign in signs]), st.text())
def test_whatever_is_printed_a_violation_is_one_short_printable_line(before: str, sign: str, after: str) -> None:
    for violation in find_violations(before + sign + after, 1, has_network=False):
        assert violation.line.isprintable()
        assert len(violation.line) <= MAX_LINE_CHARS
