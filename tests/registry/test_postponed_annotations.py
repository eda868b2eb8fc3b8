"""Tools in a module whose annotations are all strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from interlock.domain.tool import ToolContext
from interlock.registry.decorator import tool

if TYPE_CHECKING:
    from decimal import Decimal


class Place(BaseModel):
    city: str


def test_postponed_annotations_are_resolved() -> None:
    def travel(to: Place, days: Annotated[int, Field(ge=1)], ctx: ToolContext) -> None: ...

    definition = tool(travel)

    assert definition.context_parameter == "ctx"
    assert definition.spec.parameters_schema["properties"] == {
        "to": {"$ref": "#/$defs/Place"},
        "days": {"type": "integer", "minimum": 1},
    }


def test_a_postponed_explicit_model_is_recognised() -> None:
    def travel(place: Place) -> None: ...

    assert tool(travel, args_model=Place).args_parameter == "place"


def test_a_return_type_that_does_not_exist_at_run_time_is_left_alone() -> None:
    def price(city: str) -> Decimal: ...

    assert list(tool(price).spec.parameters_schema["properties"]) == ["city"]
