"""Filters of the inbox, as the query string of its page: what can be shared is what can be saved."""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode

import msgspec

from ....domain.ids import MAX_NAME_CHARS
from ..index.rows import ActionOrder, ActionQuery

MAX_SEARCH_CHARS = 200
KINDS = ("approval", "input")
#: Of `assigned`: to me, and to no one. Everything else is the name of an account.
ASSIGNED_TO_ME, UNASSIGNED = "me", "none"
#: What a person may choose as the least age. Others can be written: `90m`, `3d`.
AGES: Mapping[str, str] = {"15m": "15 minutes", "1h": "an hour", "8h": "8 hours", "1d": "a day", "7d": "a week"}
_AGE = re.compile(r"([1-9]\d{0,5})([mhd])")
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}

FilterName: TypeAlias = Literal["q", "agent", "requester", "tool", "risk", "rule", "kind", "age", "assigned"]


class InboxFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of the inbox. Empty: any."""

    #: Words, and bounds of numbers such as `amount>=500`.
    q: str = ""
    agent: str = ""
    requester: str = ""
    tool: str = ""
    risk: str = ""
    rule: str = ""
    kind: str = ""
    #: Asked at least so long ago.
    age: str = ""
    assigned: str = ""
    #: Answered ones, too.
    all: str = ""
    sort: str = ""
    cursor: str = ""

    @property
    def query(self) -> str:
        """The query string for the same page."""
        chosen = {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
        return f"?{urlencode(chosen)}" if chosen else ""

    @property
    def first_page(self) -> "InboxFilters":
        """The same filters, from the first page on."""
        return msgspec.structs.replace(self, cursor="")

    @property
    def active(self) -> list[tuple[FilterName, str]]:
        """What narrows the list beside the search: name and value of each."""
        names: tuple[FilterName, ...] = ("agent", "requester", "tool", "risk", "rule", "kind", "age", "assigned")
        return [(name, value) for name in names if (value := getattr(self, name))]

    def without(self, name: str) -> "InboxFilters":
        """Return the filters without one of them, from the first page on."""
        return msgspec.structs.replace(self, **{name: "", "cursor": ""})

    def to_action_query(self, now: int, limit: int) -> ActionQuery:
        """Return the query for the index. To whom questions are assigned is not in it."""
        return ActionQuery(
            statuses=None if self.all else frozenset(("PENDING",)),
            kinds=frozenset((self.kind,) if self.kind else KINDS),
            agent=self.agent or None,
            requester=self.requester or None,
            tool=self.tool or None,
            risk=self.risk or None,
            rule=self.rule or None,
            asked_before=now - age_seconds(self.age) * 1_000_000_000 if self.age else None,
            text=self.q or None,
            order=ActionOrder(self.sort or ActionOrder.OLDEST),
            limit=limit,
            cursor=self.cursor,
        )


def parse_filters(values: Mapping[str, str]) -> InboxFilters:
    """Return filters from the values of a query string. What is none is left out."""
    kind, age, sort = values.get("kind", ""), values.get("age", ""), values.get("sort", "")
    is_all = bool(values.get("all"))
    orders = [ActionOrder.OLDEST, ActionOrder.NEWEST, *([] if is_all else [ActionOrder.DEADLINE])]
    texts = {name: _clip(values, name) for name in ("agent", "requester", "tool", "risk", "rule", "assigned", "cursor")}
    return InboxFilters(
        q=values.get("q", "").strip()[:MAX_SEARCH_CHARS],
        kind=kind if kind in KINDS else "",
        age=age if _AGE.fullmatch(age) else "",
        all="1" if is_all else "",
        sort=sort if sort in orders and sort != ActionOrder.OLDEST else "",
        **texts,
    )


def parse_query_string(text: str) -> InboxFilters:
    """Return the filters of a query string, from the first page on."""
    return parse_filters(dict(parse_qsl(text.removeprefix("?")))).first_page


def age_seconds(age: str) -> int:
    """Return the seconds of an age such as `3d`."""
    found = _AGE.fullmatch(age)
    if found is None:
        raise ValueError(f"{age!r} is no age such as 90m, 8h or 3d")
    return int(found[1]) * _UNITS[found[2]]


def _clip(values: Mapping[str, str], name: str) -> str:
    return values.get(name, "").strip()[:MAX_NAME_CHARS]
