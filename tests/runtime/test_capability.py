"""The operation that a question names: declared as method and path, or the tool and what it acts on."""

from typing import Any

import pytest

from interlock import CallbackInteractionProvider, Question, Rule, RulePolicy, ToolRuntime, tool
from interlock.errors import ToolDeclarationError
from tests.support import call

ASK = RulePolicy([Rule(id="ask", verdict="ask", tools="*")])


async def asked(order: Any, **options: Any) -> Question:
    @tool(risk="network", **options)
    def refund(order: str, note: str = "") -> str:
        """Refund an order."""
        return "refunded"

    questions: list[Question] = []
    person = CallbackInteractionProvider(lambda question: bool(questions.append(question)))
    async with ToolRuntime(tools=[refund], policy=ASK, interaction=person) as runtime:
        await runtime.execute([call("c", "refund", order=order)])
    return questions[0]


@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ("A-7", "POST /refunds/A-7"),
        ("../admins?x=1#", "POST /refunds/..%2Fadmins%3Fx%3D1%23"),
        ("x" * 500, "POST /refunds/" + "x" * 186 + " [... 314 more characters]"),
    ],
)
async def test_a_capability_is_method_and_path(order: str, shown: str) -> None:
    assert (await asked(order, capability="POST /refunds/{order}")).capability == shown


async def test_the_capability_is_part_of_the_definition() -> None:
    one, other = [await asked("A", capability=f"POST /{name}/{{order}}") for name in ("refunds", "orders")]

    assert one.bound.tool_definition != other.bound.tool_definition
    assert (await asked("A", resources={"order": "host"})).capability == "refund A"


@pytest.mark.parametrize("capability", ["POST /refunds/{order_id}", 7])
async def test_a_wrong_capability_is_refused(capability: Any) -> None:
    with pytest.raises(ToolDeclarationError, match="capability"):
        await asked("A", capability=capability)
