"""Where somebody goes after they signed in: only to pages of the console."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.console.session import HOME, safe_next

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


@pytest.mark.parametrize("wanted", _ELSEWHERE)
def test_what_is_no_page_of_the_console_leads_home(wanted: str) -> None:
    assert safe_next(wanted) == HOME


@given(st.one_of(st.text(), st.text().map(lambda end: f"/console/{end}")))
def test_the_way_never_leaves_the_console(wanted: str) -> None:
    way = safe_next(wanted)
    assert way.startswith("/console/")
    assert "//" not in way
    assert way.isprintable()
