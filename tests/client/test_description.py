"""The client agrees with the OpenAPI description of the server: what it sends, and every field that it reads."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from interlock.client import requests
from interlock.client.events import StreamEnd, stream_request
from interlock.client.requests import ApiRequest
from interlock.server.rest.app import API_ROUTES
from interlock.server.rest.openapi import build_openapi

DESCRIPTION = build_openapi(API_ROUTES)
NOW = datetime.now(UTC)
REQUESTS: list[ApiRequest[Any]] = [
    requests.start_run("a", "t", "p", True, None),
    requests.send_message("r", "t", None),
    requests.cancel_run("r", "why"),
    requests.get_run("r"),
    requests.list_runs(["RUNNING"], "a", "r", "t", 5, "c"),
    requests.list_events("r", 3, 5),
    requests.list_approvals(["PENDING"], ["input"], "a", "r", 5, "c"),
    requests.get_approval("act"),
    requests.approve("act", "sha256:1", "why", "window", NOW, "rule", {"x": 1}),
    requests.reject("act", "sha256:1", "why"),
    requests.answer("act", "sha256:1", "value"),
    requests.get_statistics("week", "a"),
    requests.list_budgets(),
    requests.assign_approval("act", "ada"),
    stream_request("r", 3, True, "3"),
]


def name_of(request: ApiRequest[Any]) -> str:
    return f"{request.method} {request.path}"


def operation_of(request: ApiRequest[Any]) -> dict[str, Any]:
    paths = [path for path in DESCRIPTION["paths"] if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.path)]
    exact = [path for path in paths if path == request.path] or paths
    return DESCRIPTION["paths"][exact[0]][request.method.lower()]


def resolve(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    return schema


@pytest.mark.parametrize("request_", REQUESTS, ids=name_of)
def test_requests_are_described(request_: ApiRequest[Any]) -> None:
    operation = operation_of(request_)
    parameters = {each["name"] for each in operation.get("parameters", ())}
    assert {name for name, _ in request_.params} <= parameters
    assert set(request_.headers) - {"Accept", "Content-Type"} <= parameters
    if request_.body is not None:
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        fields = resolve(content, DESCRIPTION["components"]["schemas"])
        assert set(msgspec.json.decode(request_.body)) <= set(fields["properties"])
        assert set(fields.get("required", ())) <= set(msgspec.json.decode(request_.body))


@pytest.mark.parametrize("request_", [each for each in REQUESTS if each.returns is not object], ids=name_of)
def test_answers_are_read_as_described(request_: ApiRequest[Any]) -> None:
    """Every field that the client reads is there, and its type takes whatever the server may answer."""
    responses = operation_of(request_)["responses"]
    described = next(responses[status] for status in ("200", "201") if "content" in responses.get(status, ()))
    (ours,), components = msgspec.json.schema_components([request_.returns])
    theirs = described["content"]["application/json"]["schema"]
    # Some operations have several answers, by their parameters.
    found = [
        list(_list_differences(ours, each, components, request_.returns.__name__))
        for each in theirs.get("anyOf", [theirs])
    ]

    assert min(found, key=len) == []


def _list_differences(
    ours: dict[str, Any], theirs: dict[str, Any], components: dict[str, Any], where: str
) -> Iterator[str]:
    """Yield where the server may answer what the client does not take."""
    ours, theirs = resolve(ours, components), resolve(theirs, DESCRIPTION["components"]["schemas"])
    if "anyOf" in theirs:
        for each in theirs["anyOf"]:
            yield from _list_differences(ours, each, components, where)
    elif "anyOf" in ours:
        found = [list(_list_differences(each, theirs, components, where)) for each in ours["anyOf"]]
        if all(found):
            yield from found[0]
    elif "enum" in ours:
        values = theirs.get("enum", [theirs.get("const", "any text")])
        yield from (f"{where}: {value!r}" for value in values if value not in ours["enum"])
    elif _types(ours) and not _types(theirs) <= _types(ours):
        yield f"{where}: {_types(theirs)} is not {_types(ours)}"
    elif "properties" in ours:
        yield from _list_object_differences(ours, theirs, components, where)
    elif isinstance(ours.get("items"), dict):
        yield from _list_differences(ours["items"], theirs["items"], components, f"{where}[]")


def _list_object_differences(
    ours: dict[str, Any], theirs: dict[str, Any], components: dict[str, Any], where: str
) -> Iterator[str]:
    for name, field in ours["properties"].items():
        if name not in theirs["properties"]:
            yield f"{where}.{name} is not there"
        else:
            yield from _list_differences(field, theirs["properties"][name], components, f"{where}.{name}")
    required = set(ours.get("required", ()))
    yield from (f"{where}.{name} may be missing" for name in required - set(theirs.get("required", ())))


def _types(schema: dict[str, Any]) -> set[str]:
    """Return the types that a schema allows; none for anything. Every whole number is a number."""
    found = schema.get("type", _type_of(schema["enum"][0]) if "enum" in schema else ())
    types = {found} if isinstance(found, str) else set(cast(list[str], found))
    return types | {"integer"} if "number" in types else types


def _type_of(value: object) -> str:
    return "string" if isinstance(value, str) else "integer" if isinstance(value, int) else "null"


def test_end_of_a_stream_is_read() -> None:
    end = msgspec.json.decode(b'{"reason":"run_over","status":"COMPLETED","message":"Done."}', type=StreamEnd)
    assert end == StreamEnd(reason="run_over", status="COMPLETED", message="Done.")
