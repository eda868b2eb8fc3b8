"""Budgets: what agents, requesters and tools used in the current windows."""

from typing import Any

from ...core.budget_service import BudgetRow
from ...core.identity.permissions import Operation
from ..caller import Call
from ..responses import Merged, ResponseModel, Time
from ..routing import Routes

route = Routes("budgets")


class BudgetResponse(ResponseModel, frozen=True, kw_only=True):
    """A budget, and what one subject used of it in the current window. `subject` is empty where all share it, or where
    nothing was used.
    """

    id: str
    about: str
    agents: tuple[str, ...]
    subject: dict[str, str]
    used: float
    limit: float
    unit: str
    window: str
    then: str
    began_at: Time
    resets_at: Time

    @classmethod
    def view_row(cls, row: BudgetRow) -> Any:
        """Return the usage with its agents."""
        return Merged(row.usage, row)


class BudgetList(ResponseModel, frozen=True, kw_only=True):
    """Budgets, the most used first."""

    budgets: list[BudgetResponse]


@route("GET", "/budgets", Operation.READ_STATISTICS, BudgetList)
async def list_budgets(call: Call) -> dict[str, Any]:
    """Return the budgets of the agents that you have a role for, with what was used in the current windows."""
    return {"budgets": await call.service.budgets.list_budgets(call.principal, call.service.now())}
