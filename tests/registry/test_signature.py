"""How a handler's parameters become the arguments that a model may send."""

import re
from collections.abc import Callable, Generator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from interlock.domain.errors import ToolDeclarationError
from interlock.domain.tool import ToolContext
from interlock.registry.decorator import tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    title: str
    x: int = 0


def _errors(definition_model: type[BaseModel], text: str) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as raised:
        definition_model.model_validate_json(text)
    return [(error["loc"], error["type"]) for error in raised.value.errors()]


def paint(
    *,
    day: date,
    order: UUID,
    colour: Colour,
    weight: Annotated[float, Field(gt=0, description="In kilograms.")],
    sizes: tuple[int, ...] = (1, 2),
    kind: Literal["fast", "slow"] = "fast",
    at: Point | None = None,
) -> None: ...


PAINT_JSON = (
    '{"day": "2024-02-29", "order": "12345678-1234-5678-1234-567812345678", "colour": "blue", "weight": 2,'
    ' "sizes": [3], "at": {"title": "here"}}'
)


def test_json_is_read_into_the_declared_types() -> None:
    checked = tool(paint).args_model.model_validate_json(PAINT_JSON)

    assert dict(checked) == {
        "day": date(2024, 2, 29),
        "order": UUID("12345678-1234-5678-1234-567812345678"),
        "colour": Colour.BLUE,
        "weight": 2.0,
        "sizes": (3,),
        "kind": "fast",
        "at": Point(title="here", x=0),
    }


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ('"weight": 2', '"weight": "2"', (("weight",), "float_type")),
        ('"weight": 2', '"weight": 0', (("weight",), "greater_than")),
        ('"blue"', '"green"', (("colour",), "enum")),
        ("[3]", '["3"]', (("sizes", 0), "int_type")),
        ('"day"', '"days"', (("days",), "extra_forbidden")),
        ("2024-02-29", "2023-02-29", (("day",), "date_parsing")),
    ],
)
def test_what_does_not_fit_is_refused_and_never_repaired(
    before: str, after: str, error: tuple[tuple[int | str, ...], str]
) -> None:
    assert error in _errors(tool(paint).args_model, PAINT_JSON.replace(before, after))


@pytest.mark.requirement("R045")
def test_the_schema_is_closed_and_has_no_titles_made_from_names() -> None:
    schema = tool(paint).spec.parameters_schema

    assert schema["additionalProperties"] is False
    assert schema["properties"]["weight"] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "In kilograms.",
    }
    assert schema["$defs"]["Point"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "x": {"type": "integer", "default": 0}},
        "required": ["title"],
    }
    assert schema["$defs"]["Colour"] == {"type": "string", "enum": ["red", "blue"]}


def test_a_parameter_may_be_called_title_or_json_or_schema() -> None:
    def save(title: str, json: str, schema: str, copy: bool = False, model_name: str = "a") -> None: ...

    definition = tool(save)
    checked = definition.args_model.model_validate_json('{"title": "a", "json": "b", "schema": "c"}')

    assert set(definition.spec.parameters_schema["properties"]) == {
        "title",
        "json",
        "schema",
        "copy",
        "model_name",
    }
    assert dict(checked) == {"title": "a", "json": "b", "schema": "c", "copy": False, "model_name": "a"}


def test_a_default_may_be_said_in_the_field() -> None:
    def wait(
        seconds: Annotated[int, Field(default=3, ge=1)],
        times: int = Field(2, description="How often."),
        names: list[str] = Field(default_factory=list),  # noqa: B008 - the case is a field as a default
    ) -> None: ...

    definition = tool(wait)

    assert dict(definition.args_model.model_validate_json("{}")) == {"seconds": 3, "times": 2, "names": []}
    assert definition.spec.parameters_schema["properties"]["times"]["description"] == "How often."


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return ""

    assert tool(now).spec.parameters_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_the_description_in_the_code_wins_over_the_docstring() -> None:
    def go(x: Annotated[int, Field(description="In code.")], y: int) -> None:
        """Go.

        Args:
            x: In text.
            y: Only here.
        """

    properties = tool(go).spec.parameters_schema["properties"]
    assert [properties["x"]["description"], properties["y"]["description"]] == ["In code.", "Only here."]


def test_an_alias_is_what_the_model_sends_and_the_name_is_what_the_handler_gets() -> None:
    def go(from_: Annotated[str, Field(alias="from")]) -> None:
        """Go.

        Args:
            from_: Where to start.
        """

    definition = tool(go)

    assert definition.spec.parameters_schema["properties"] == {
        "from": {"type": "string", "description": "Where to start."}
    }
    assert dict(definition.args_model.model_validate_json('{"from": "a"}')) == {"from_": "a"}


def test_the_context_is_found_by_its_type_and_is_not_an_argument() -> None:
    def plain(path: str, anything: ToolContext) -> None: ...
    def optional(ctx: ToolContext | None = None, path: str = "") -> None: ...

    assert [tool(plain).context_parameter, tool(optional).context_parameter] == ["anything", "ctx"]
    assert list(tool(plain).spec.parameters_schema["properties"]) == ["path"]
    assert list(tool(optional).spec.parameters_schema["properties"]) == ["path"]


def test_an_explicit_model_is_passed_whole_to_a_handler_that_names_it() -> None:
    def place(point: Point, ctx: ToolContext) -> None: ...

    definition = tool(place, args_model=Point)
    checked = definition.args_model.model_validate_json('{"title": "a"}')

    assert (definition.args_parameter, definition.context_parameter) == ("point", "ctx")
    assert isinstance(checked, Point)
    assert list(definition.spec.parameters_schema["properties"]) == ["title", "x"]


def test_the_fields_of_an_explicit_model_are_passed_one_by_one_otherwise() -> None:
    def place(x: int, title: str, scale: int = 1) -> None: ...

    definition = tool(place, args_model=Point)

    assert definition.args_parameter == ""
    assert list(definition.spec.parameters_schema["properties"]) == ["title", "x"]


def test_an_explicit_model_is_closed_and_strict_where_it_does_not_say() -> None:
    def place(point: Point) -> None: ...

    model = tool(place, args_model=Point).args_model

    assert _errors(model, '{"title": "a", "x": "1", "y": 2}') == [(("x",), "int_type"), (("y",), "extra_forbidden")]
    assert model.__name__ == "Point"
    assert Point.model_validate_json('{"title": "a", "x": "1", "y": 2}').x == 1


def test_an_explicit_model_that_says_both_is_taken_as_it_is() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow", strict=False)
        x: int
        inner: "Open | None" = None

    def place(x: int, inner: Any) -> None: ...

    definition = tool(place, args_model=Open)

    assert definition.args_model is Open
    assert definition.spec.parameters_schema["additionalProperties"] is True
    assert definition.spec.parameters_schema["type"] == "object"


class Whole(RootModel[list[int]]): ...


_Handler = Callable[..., Any]


def _refused(handler: _Handler, message: str, args_model: Any = None) -> None:
    options: Any = {} if args_model is None else {"args_model": args_model}
    with pytest.raises(ToolDeclarationError, match=re.escape(message)):
        tool(handler, **options)


def test_parameters_that_no_model_can_fill_are_refused() -> None:
    def many(*paths: str) -> None: ...
    def anything(**options: str) -> None: ...
    def positional(path: str, /) -> None: ...
    def untyped(path: str, limit, offset=0) -> None: ...  # type: ignore[no-untyped-def]
    def private(_path: str) -> None: ...
    def clashing(model_dump: str) -> None: ...
    def two_contexts(a: ToolContext, b: ToolContext) -> None: ...

    _refused(many, "parameter 'paths' takes any number of arguments")
    _refused(anything, "parameter 'options' takes any argument")
    _refused(positional, "parameter 'path' is positional-only")
    _refused(untyped, "no type for 'limit', 'offset'")  # pyright: ignore[reportUnknownArgumentType]
    _refused(private, "parameter '_path' starts with an underscore")
    _refused(clashing, "parameter 'model_dump' has a name that pydantic uses itself")
    _refused(two_contexts, "parameters 'a', 'b' are all ToolContext")


def test_types_that_have_no_schema_are_refused() -> None:
    class Opaque: ...

    def opaque(thing: Opaque) -> None: ...
    def function(callback: Callable[[], None]) -> None: ...
    def unknown(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    _refused(opaque, "the parameters have no schema")
    _refused(function, "the parameters have no JSON schema")
    _refused(unknown, "a type cannot be resolved: name 'Nowhere' is not defined")  # pyright: ignore[reportUnknownArgumentType]


def test_a_default_that_does_not_survive_json_is_refused() -> None:
    def opaque(thing: Any = object()) -> None: ...  # noqa: B008 - the case is a default that is not data
    def nothing(count: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
    def infinite(weight: float = float("inf")) -> None: ...

    _refused(opaque, "the default of 'thing' has no JSON form")
    _refused(nothing, "the default of 'count' does not fit: Input should be a valid integer")
    _refused(infinite, "the default of 'weight' does not fit")


def test_what_is_not_a_plain_function_is_refused() -> None:
    class Callable_:
        __name__ = "callable_"

        def __call__(self, path: str) -> None: ...

    def numbers(upto: int) -> Generator[int]:
        yield upto

    _refused(Callable_(), "a Callable_ is not a function")
    _refused(print, "a builtin_function_or_method is not a function")
    _refused(Point, "is not a function")
    _refused(numbers, "the function yields")


def test_a_handler_that_does_not_fit_its_explicit_model_is_refused() -> None:
    def too_few(title: str) -> None: ...
    def too_many(title: str, x: int, y: int) -> None: ...

    _refused(too_few, "the function does not take 'x'; name every field of Point", Point)
    _refused(too_many, "Point has no field for 'y'", Point)
    _refused(too_few, "args_model must be a pydantic model with named fields", Whole)
