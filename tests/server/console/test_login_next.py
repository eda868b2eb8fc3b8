"""Where somebody goes after they signed in: only to pages of the console."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.server.console.session import HOME_PATH, sanitize_next
from tests.each import each

_ELSEWHERE = (
    "",
    "/x",
    "//evil.example",
    "https://evil.example/console/",
    "/console//evil.example",
    "/console/\\evil.example",
    "/console/\nSet-Cookie: a=b",
    "javascript:alert(1)",
)


@each("wanted", _ELSEWHERE)
def test_what_is_no_page_of_the_console_leads_home(wanted: str) -> None:
    assert sanitize_next(wanted) == HOME_PATH


@given(st.one_of(st.text(), st.text().map(lambda end: f"/console/{end}")))
def test_the_way_never_leaves_the_console(wanted: str) -> None:
    way = sanitize_next(wanted)
    assert way.startswith("/console/")
    assert "//" not in way
    assert way.isprintable()
