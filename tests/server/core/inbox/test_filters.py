"""Filters of the inbox: a query string that can be shared, whatever is in it."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.inbox.filters import InboxFilters, parse_filters, parse_query_string
from interlock.server.core.index.rows import ActionOrder, ActionQuery
from tests.each import each

NOW = 10**18
_values = st.dictionaries(
    st.sampled_from(InboxFilters.__struct_fields__),
    st.text(max_size=300) | st.sampled_from(["1", "3d", "me", "newest"]),
)


@each(
    "query, expected",
    [
        ("", InboxFilters()),
        ("?q=+amount>%3D5+&agent=shop&x=1", InboxFilters(q="amount>=5", agent="shop")),
        ("age=3d&kind=input&assigned=me", InboxFilters(age="3d", kind="input", assigned="me")),
        ("age=0d&kind=consent&sort=risk&all=", InboxFilters()),
        ("sort=deadline", InboxFilters(sort="deadline")),
        ("sort=deadline&all=1", InboxFilters(all="1")),
        ("sort=oldest&cursor=MTI", InboxFilters()),
    ],
)
def test_query_string_has_the_filters(query: str, expected: InboxFilters) -> None:
    assert parse_query_string(query) == expected


@given(_values)
def test_filters_survive_their_own_query_string(values: dict[str, str]) -> None:
    filters = parse_filters(values).first_page

    assert parse_query_string(filters.query) == filters
    assert filters.to_action_query(NOW, 50).limit == 50


def test_filters_become_a_query() -> None:
    filters = InboxFilters(q="mia", agent="shop", risk="network", age="1h", sort="newest", all="1", kind="approval")

    assert filters.to_action_query(NOW, 20) == ActionQuery(
        kinds=frozenset(("approval",)),
        agent="shop",
        risk="network",
        asked_before=NOW - 3_600 * 10**9,
        text="mia",
        order=ActionOrder.NEWEST,
        limit=20,
    )
