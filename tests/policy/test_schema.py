"""The schema that editors complete from says what the reader of policy files says."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from interlock.policy.files.document import json_schema, parse_document, schema_text
from interlock.policy.files.problems import PolicyFileError, PolicySource
from interlock.policy.files.source import parse_source
from tests.each import each

ROOT = Path(__file__).resolve().parents[2]

GOOD = """
version: 1
default: risk
resources:
  - {tools: "mcp__fs__*", arguments: {path: path, uri: host}}
deny:
  - bash(git reset --hard)
  - {path: "secrets/**", reason: "no"}
  - {id: x, tools: [a, b], command: [git push, {is: npm test}, {words: [make], exact: true}]}
allow: [read_file, "bash(npm run lint:*)"]
rules:
  - id: a
    decision: ask
    arguments: {to: {glob: "*@x"}, n: 1, o: {is: null}, l: [1, {a: b}]}
    risk: [write, network]
    mode: trusted
    answer_within: 2h
    scope: once
    expires: 2030-01-01T00:00:00Z
    matches: [bash(ls), {tool: x, arguments: {a: 1}, risk: read}]
"""
BAD = [
    "version: 2",
    "deny: []",
    "version: 1\nwhat: 1",
    "version: 1\ndeny: bash",
    "version: 1\ndeny: [5]",
    "version: 1\ndeny: [{paht: x}]",
    "version: 1\ndeny: [{path: null}]",
    "version: 1\ndeny: [{path: 5}]",
    "version: 1\ndeny: [{risk: wrote}]",
    "version: 1\nrules: [{id: a}]",
    "version: 1\nrules: [{id: a, decision: maybe}]",
    "version: 1\nrules: [{id: a, decision: ask, scope: ever}]",
    "version: 1\nresources: [{tools: x, arguments: {a: file}}]",
]

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def fits(value: Any, schema: Any, whole: dict[str, Any]) -> bool:
    """As much of JSON Schema as the schema uses."""
    if isinstance(schema, bool):
        return schema
    return all(
        [
            "$ref" not in schema or fits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole),
            "anyOf" not in schema or any(fits(value, each, whole) for each in schema["anyOf"]),
            "const" not in schema or value == schema["const"],
            "enum" not in schema or value in schema["enum"],
            "type" not in schema or type(value) in TYPES[schema["type"]],
            not isinstance(value, str) or fits_text(value, schema),
            not isinstance(value, list) or fits_list(cast(list[Any], value), schema, whole),
            not isinstance(value, dict) or fits_object(cast(dict[str, Any], value), schema, whole),
        ]
    )


def fits_text(value: str, schema: dict[str, Any]) -> bool:
    return bool(re.search(schema.get("pattern", ""), value)) and len(value) >= schema.get("minLength", 0)


def fits_list(value: list[Any], schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    return len(value) >= schema.get("minItems", 0) and all(
        fits(each, schema.get("items", True), whole) for each in value
    )


def fits_object(value: dict[str, Any], schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return set(schema.get("required", ())) <= value.keys() and all(
        fits(each, properties.get(key, others), whole) for key, each in value.items()
    )


def source(text: str) -> PolicySource:
    return parse_source(text.encode(), "policy.yaml")


def test_what_the_reader_accepts_fits_the_schema() -> None:
    parse_document(source(GOOD))

    assert fits(source(GOOD).value, json_schema(), json_schema())


@each("text", BAD)
def test_what_the_reader_refuses_does_not_fit_the_schema(text: str) -> None:
    with pytest.raises(PolicyFileError):
        parse_document(source(text))

    assert not fits(source(text).value, json_schema(), json_schema())


def test_every_key_is_described() -> None:
    shapes = [json_schema(), *json_schema()["$defs"].values()]

    assert [key for shape in shapes for key, field in shape["properties"].items() if not field.get("description")] == []


def test_the_file_in_the_docs_is_this_schema() -> None:
    assert (ROOT / "docs" / "policy.schema.json").read_text() == schema_text()


def test_the_examples_of_the_guide_fit_the_schema_and_are_accepted() -> None:
    blocks = [
        block
        for page in sorted((ROOT / "docs").glob("*.md"))
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        if block.startswith("version:") or "\nversion: 1\n" in block
    ]

    for block in blocks:
        parse_document(source(block))
        assert fits(source(block).value, json_schema(), json_schema())
