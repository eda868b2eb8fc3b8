"""Three calls of one model turn: one runs, one is refused, one does not fit."""

from interlock import Rule, RulePolicy, ToolRuntime, tool


@tool(risk="read")
def price(item: str) -> float:
    """The price of an item."""
    return {"tea": 3.5, "coffee": 4.0}[item]


@tool(risk="write")
def order(item: str, count: int = 1) -> str:
    """Order an item."""
    return f"ordered {count} {item}"


few = Rule(id="few", verdict="allow", tools="order")
many = Rule(id="many", verdict="deny", tools="order", when=lambda event: event.arguments["count"] > 9)
calls = [  # as a model sends them
    {"type": "tool_use", "id": "a", "name": "price", "input": {"item": "tea"}},
    {"type": "tool_use", "id": "b", "name": "order", "input": {"item": "tea", "count": 500}},
    {"type": "tool_use", "id": "c", "name": "order", "input": {"item": "tea", "cuont": 2}},
]
with ToolRuntime(tools=[price, order], policy=RulePolicy([few, many])) as runtime:
    result = runtime.execute_sync(calls)
for record in result.tool_executions:
    print(record.tool_call_id, record.success, record.output or record.error)
