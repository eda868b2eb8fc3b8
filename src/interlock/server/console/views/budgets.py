"""Budgets on the dashboard: bars of what was used, and a table with the same numbers."""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from ....storage.budgets import BudgetUsage
from ...core.budget_service import BudgetRow
from .charts import ListRow

#: From these shares on, a budget is used up, and nearly so.
_FULL_PERCENT, _NEARLY_PERCENT = 100.0, 80.0
_OVER = {"deny": "refused", "ask": "asked about"}


class BudgetCells(NamedTuple):
    """A budget in the table."""

    name: str
    whose: str
    agents: str
    used: str
    limit: str
    resets_at: int
    over: str


class BudgetPanel(NamedTuple):
    """The panel: bars, the table, and why there are none."""

    bars: list[ListRow]
    rows: list[BudgetCells]
    problem: str = ""

    @property
    def version(self) -> int:
        """Changes when something is shown that was not."""
        return crc32(msgspec.json.encode((self.rows, self.problem)))


def make_panel(rows: Sequence[BudgetRow]) -> BudgetPanel:
    """Return what is shown of budgets."""
    return BudgetPanel([_make_bar(row.usage) for row in rows], [_make_cells(row) for row in rows])


def _make_bar(usage: BudgetUsage) -> ListRow:
    percent = min(_FULL_PERCENT, usage.percent)
    style = "failed" if percent >= _FULL_PERCENT else "degraded" if percent >= _NEARLY_PERCENT else "series-1"
    words = f"{usage.used:,.15g} of {usage.limit:,.15g} {usage.unit} a {usage.window}"
    return ListRow(f"{usage.id}: {_name_subject(usage)}", words, round(percent, 1), style)


def _make_cells(row: BudgetRow) -> BudgetCells:
    usage = row.usage
    return BudgetCells(
        name=usage.id,
        whose=_name_subject(usage),
        agents=", ".join(row.agents),
        used=f"{usage.used:,.15g}",
        limit=f"{usage.limit:,.15g} {usage.unit} a {usage.window}",
        resets_at=usage.resets_at,
        over=_OVER[usage.then],
    )


def _name_subject(usage: BudgetUsage) -> str:
    return ", ".join(f"{name} {value or '(none)'}" for name, value in usage.subject.items()) or "all"
