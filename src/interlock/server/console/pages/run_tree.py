"""The runs around a run: those that it is inside of, those inside it, and its forks, as a tree."""

from typing import Literal

import msgspec

from ....domain import event as facts
from ...core.errors import NotFoundError
from ...core.index.rows import RunQuery, RunRow
from ..session import Visit

#: Limits of a tree. What is beyond them is on the pages of its runs.
MAX_ANCESTORS = 5
MAX_CHILDREN = 50
MAX_EXPANDED = 20


class TreeNode(msgspec.Struct, kw_only=True):
    """A run in the tree."""

    row: RunRow
    relation: Literal["", "parent", "source", "child", "fork"] = ""
    is_current: bool = False
    #: There are more children than shown.
    has_more: bool = False
    children: list["TreeNode"] = []


async def load_tree(visit: Visit, run: RunRow, started: facts.RunStarted) -> TreeNode | None:
    """Load the tree of a run, as far as the visitor may see it; None where there is no other run in it."""
    here = TreeNode(row=run, is_current=True)
    await _expand(visit, here)
    here.children += await _list_forks(visit, run)
    top = await _load_ancestors(visit, here, started)
    return top if top.children else None


async def _expand(visit: Visit, root: TreeNode) -> None:
    """Add children, and theirs, level by level, until enough runs were looked at."""
    waiting = [root]
    for _ in range(MAX_EXPANDED):
        if not waiting:
            return
        node = waiting.pop(0)
        query = RunQuery(parent_run_id=node.row.run_id, include_child_runs=True, limit=MAX_CHILDREN)
        page = await visit.service.run_queries.list_runs(visit.principal, query)
        node.children = [TreeNode(row=row, relation="child") for row in reversed(page.rows)]
        node.has_more = bool(page.next_cursor)
        waiting += node.children


async def _list_forks(visit: Visit, run: RunRow) -> list[TreeNode]:
    query = RunQuery(forked_from=run.run_id, include_child_runs=True, limit=MAX_CHILDREN)
    page = await visit.service.run_queries.list_runs(visit.principal, query)
    return [TreeNode(row=row, relation="fork") for row in reversed(page.rows)]


async def _load_ancestors(visit: Visit, here: TreeNode, started: facts.RunStarted) -> TreeNode:
    top = here
    for depth in range(MAX_ANCESTORS):
        is_fork = depth == 0 and not here.row.parent_run_id
        run_id = (started.forked_from if is_fork else "") or top.row.parent_run_id
        if not run_id or run_id == top.row.run_id:
            break
        try:
            row = await visit.service.run_queries.get_run(visit.principal, run_id)
        except NotFoundError:
            break
        if top is here:
            top.relation = "fork" if is_fork else "child"
        top = TreeNode(row=row, relation="source" if is_fork else "parent", children=[top])
    return top
