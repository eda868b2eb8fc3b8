"""The host that a text names, or that nobody can be sure of it."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.hosts import host_matches, parse_host
from tests.corpora import spellings
from tests.each import each


@each(
    ("text", "host"),
    spellings.load("hosts and their one spelling"),
)
def test_a_host_is_named_in_one_way_however_it_is_written(text: str, host: str) -> None:
    assert parse_host(text) == host


@each(
    "text",
    [
        "",
        " ",
        "http://",
        "https:///evil.example",
        "//evil.example",
        "http:/evil.example",
        "http:evil.example",
        "file:///etc/passwd",
        "https://good.example\\@evil.example",
        "https://good.example\\.evil.example",
        "https://evil.example\t.good.example",
        "https://evil\n.example",
        "\x00evil.example",
        "evil.example\x7f",
        "https://evil.example ",
        "ev il.example",
        "https://evil\xa0.example",
        "https://{evil}.example",
        "https://<evil>",
        "http://2130706433/",
        "http://0x7f.1",
        "http://0x7f000001",
        "http://0177.0.0.1",
        "http://127.1",
        "\uff12\uff11\uff13\uff10\uff17\uff10\uff16\uff14\uff13\uff13",
        "0\uff58\uff17f.1",
        "http://%65vil.example",
        "http://evil%2eexample",
        "http://good.example%2f@evil.example%00",
        "http://[::1%25lo]/",
        "http://[evil.example]/",
        "http://[::1",
        "::1",
        "a." + "\xfc" * 70,
    ],
)
def test_what_two_readers_could_take_for_different_hosts_is_none(text: str) -> None:
    assert parse_host(text) is None


@given(st.text(max_size=40) | st.text(alphabet="ahtp:/@.[]%\\#?0x1\u3002", max_size=20))
def test_no_text_is_too_strange(text: str) -> None:
    host = parse_host(text)

    assert host is None or (host.isascii() and host == host.lower() and not host.endswith(".") and host)


@each(
    ("pattern", "host", "fits"),
    [
        ("example.com", "example.com", True),
        ("example.com", "a.example.com", False),
        ("example.com", "notexample.com", False),
        ("*.example.com", "example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "notexample.com", False),
        ("*.example.com", "example.com.evil.example", False),
        ("*", "anything", True),
        ("1.2.3.4", "1.2.3.4", True),
        ("*.3.4", "1.2.3.4", True),
    ],
)
def test_a_pattern_is_a_host_or_everything_under_it(pattern: str, host: str, fits: bool) -> None:
    assert host_matches(pattern, host) is fits
