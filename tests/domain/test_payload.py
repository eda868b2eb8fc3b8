"""Where two readers could take one payload for different things: each such place is refused or made one thing."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
import rfc8785

from interlock.domain import json
from interlock.domain.payload import (
    ApprovalBinding,
    BindingChange,
    ExecutionEnvironment,
    FileOperand,
    Payload,
    build_binding,
    canonical_payload,
    compute_grant_key,
    definition_digest,
    diff_bindings,
    hash_answer,
    hash_payload,
    read_canonical_arguments,
)
from interlock.domain.tool import CallContext, Consent, PermissionMode, Risk, ToolDefinition, ToolSpec
from interlock.registry.decorator import tool
from tests.each import each


def edit(path: str) -> None:
    """Changes a file."""


def canonical(**arguments: Any) -> bytes:
    return canonical_payload(Payload("run", "call", "edit", arguments))


@pytest.mark.requirement("D12")
@pytest.mark.parametrize("integer", [2**53, 2**53 + 1, -(2**53), 10**30])
def test_an_integer_that_not_every_reader_can_hold_has_no_canonical_form(integer: int) -> None:
    with pytest.raises(json.InvalidJsonError):
        canonical(amount=integer)
    with pytest.raises(json.InvalidJsonError):
        json.parse(f'{{"amount": {integer}}}')


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("0", "-0.0"), ("1e2", "100"), ("2", "2.0e0")])
def test_numbers_that_are_the_same_have_the_same_bytes_and_are_read_back_as_one_thing(one: str, other: str) -> None:
    first, second = canonical(n=json.parse(one)), canonical(n=json.parse(other))

    assert first == second
    assert repr(read_canonical_arguments(first)) == repr(read_canonical_arguments(second))


def test_names_are_sorted_by_their_utf16_units() -> None:
    written = canonical(**{"\uff5e": 1, "\U0001f600": 2}).decode()

    assert written.index("\U0001f600") < written.index("\uff5e")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_a_number_that_is_none_is_neither_read_nor_hashed(text: str) -> None:
    with pytest.raises(json.InvalidJsonError):
        json.parse(f'{{"n": {text}}}')
    with pytest.raises(json.InvalidJsonError):
        canonical(n=float(text))


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 1}}', '[{"a": 1, "\\u0061": 2}]'])
def test_a_key_that_comes_twice_is_not_read(text: str) -> None:
    with pytest.raises(json.InvalidJsonError):
        json.parse(text)


@pytest.mark.parametrize("key", [1, 1.5, True, None, b"a", ("a",)])
def test_a_key_that_is_no_string_has_no_canonical_form(key: Any) -> None:
    with pytest.raises(json.InvalidJsonError):
        canonical(inner={key: 1})


@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"\udfff": "a"}, {"a": {"\ud83d": 1}}, {"a": ["\ude00\ud83d"]}])
def test_half_a_character_has_no_canonical_form_as_value_or_as_key(arguments: dict[str, Any]) -> None:
    with pytest.raises(json.InvalidJsonError):
        canonical(**arguments)


@pytest.mark.parametrize(
    ("one", "other"), [("\u00e9", "e\u0301"), ("a", "\u0430"), ("fi", "\ufb01"), ("ls", "ls "), ("a", "a\u200b")]
)
def test_text_that_only_looks_alike_has_different_hashes(one: str, other: str) -> None:
    assert hash_payload(canonical(text=one)) != hash_payload(canonical(text=other))
    assert read_canonical_arguments(canonical(text=one)) == {"text": one}


@each("text", ["\u2028", "\u2029", "\u202e", "\x7f", "</script>", "\u0085", "\ufeff", "\x00\x1f"])
def test_characters_that_do_something_to_a_screen_are_kept_as_they_are(text: str) -> None:
    assert read_canonical_arguments(canonical(text=text)) == {"text": text}


def test_nesting_is_bounded_before_anything_is_hashed() -> None:
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    assert json.parse(nested(json.MAX_DEPTH))
    for depth in (json.MAX_DEPTH + 1, 950, 1_500, 100_000):
        with pytest.raises(json.InvalidJsonError):
            json.parse(nested(depth))


@pytest.mark.parametrize("value", [Decimal("1.1"), b"bytes", datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, object(), 1j])
def test_what_is_not_json_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(json.InvalidJsonError):
        canonical(value=value)


def test_the_document_binds_everything_and_names_its_own_form() -> None:
    surroundings = ExecutionEnvironment(
        cwd="/work", environment={"A": "1"}, sandbox="none/async", files=(FileOperand("f", "ab" * 32),)
    )
    bound = ApprovalBinding(
        tool_origin="mcp",
        tool_source="server",
        tool_version="2",
        tool_definition="sha256:00",
        policy="sha256:11",
        mode="accept_edits",
        requester="ada",
        surroundings=surroundings,
    )

    document = json.parse(canonical_payload(Payload("run", "call", "edit", {"x": 1}, bound, 17)))

    assert document == {
        "schema": "interlock/invocation/v1",
        "tenant": "",
        "run": "run",
        "call": "call",
        "tool": {"origin": "mcp", "source": "server", "name": "edit", "version": "2", "definition": "sha256:00"},
        "arguments": {"x": 1},
        "cwd": "/work",
        "environment": {"A": "1"},
        "sandbox": "none/async",
        "files": [{"path": "f", "sha256": "ab" * 32, "unbound": ""}],
        "policy": "sha256:11",
        "mode": "accept_edits",
        "requester": "ada",
        "expires": "17",
    }


@each(
    "options",
    [
        {"description": "Changes a file, and more."},
        {"risk": ("write", "network")},
        {"idempotent": True},
        {"concurrency": "safe"},
        {"isolation": "process"},
        {"timeout_seconds": 5.0},
        {"max_output_chars": 10},
        {"origin": "mcp"},
        {"source": "elsewhere"},
        {"resources": {"path": "path"}},
        {"name": "change"},
    ],
)
def test_a_tool_that_declares_anything_else_under_the_same_version_has_another_digest(options: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"name": "edit", "version": "1", "risk": "write"}

    assert definition_digest(tool(edit, **plain)) != definition_digest(tool(edit, **{**plain, **options}))


#: What a definition declares as data, as `edit` does not declare it.
OTHER_DATA: dict[str, Any] = {
    "spec": ToolSpec(name="edit", description="Changes another file.", parameters_schema={"type": "object"}),
    "version": "2",
    "risk": frozenset({Risk.NETWORK}),
    "read_only": True,
    "idempotent": True,
    "concurrency": "exclusive",
    "timeout_seconds": 5.0,
    "max_output_chars": 10,
    "isolation": "process",
    "egress": True,
    "origin": "mcp",
    "source": "elsewhere",
    "source_name": "edit-file",
    "quarantine": "It changed.",
    "capability": "PUT /file",
    "title": "Edit {path}",
    "key_facts": ("path",),
    "resources": {"path": "path"},
    "contained": True,
    "consent": Consent(provider="mail"),
    "effect": None,
    "repeat": "deny",
    "raise_on_error": True,
    "propagate_errors": True,
    "timeout_behavior": "raise_exception",
    "resumes": True,
    "hands_over": True,
    "trial": object(),
}
#: What it declares as code, which has no digest, and what only repeats the schema or the description.
CODE = {
    "label",
    "handler",
    "is_async",
    "args_model",
    "args_parameter",
    "context_parameter",
    "read_keys",
    "write_keys",
    "reach",
    "toolbox",
    "visible",
    "check",
    "authorize",
    "normalize",
    "reconcile",
    "diagnose",
    "pre_hooks",
    "middleware",
    "post_hooks",
    "input_guardrails",
    "output_guardrails",
    "failure_error_function",
    "timeout_error_function",
}


def test_an_approval_is_bound_to_every_field() -> None:
    """A field that is added later belongs to one of the two: as data it must change the digest."""
    plain = tool(edit, name="edit", version="1", concurrency="safe", effect="edit:{path}")
    others = {name: msgspec.structs.replace(plain, **{name: value}) for name, value in OTHER_DATA.items()}

    assert set(ToolDefinition.__struct_fields__) == OTHER_DATA.keys() | CODE
    assert not OTHER_DATA.keys() & CODE
    digests = {definition_digest(each) for each in (plain, *others.values())}
    assert len(digests) == 1 + len(others)


def test_an_approval_names_what_it_is_bound_to() -> None:
    bound = tool(edit, name="edit", version="1", origin="mcp", source="files")
    situation = CallContext(run_id="run", mode=PermissionMode.TRUSTED, requester="ada")
    around = ExecutionEnvironment(cwd="/work")

    assert build_binding(bound, "sha256:p", situation, around) == ApprovalBinding(
        tool_origin="mcp",
        tool_source="files",
        tool_version="1",
        tool_definition=definition_digest(bound),
        policy="sha256:p",
        mode="trusted",
        requester="ada",
        surroundings=around,
    )


def test_only_files_with_known_content_exist() -> None:
    known, gone = FileOperand(path="known", sha256="1"), FileOperand(path="gone", sha256="")
    large = FileOperand(path="large", sha256="2", unbound="too large")
    around = ExecutionEnvironment(cwd="/work", files=(known, gone, large))

    assert (around.existing_files, around.unbound_files, around.can_change) == ((known,), (large,), True)
    assert not ExecutionEnvironment(cwd="/work", files=(large,)).can_change


def test_a_capability_is_not_mistaken_for_another_field() -> None:
    plain = tool(edit, name="edit", version="1")
    named = msgspec.structs.replace(plain, capability="contained")

    assert definition_digest(named) != definition_digest(msgspec.structs.replace(plain, contained=True))


def test_a_parameter_more_is_another_definition() -> None:
    def wider(path: str, force: bool = False) -> None: ...

    one, other = tool(edit, name="edit", version="1"), tool(wider, name="edit", version="1")

    assert definition_digest(one) != definition_digest(other)


def test_changes_name_what_is_different_with_both_its_states() -> None:
    was = ApprovalBinding(
        tool_version="1",
        policy="p1",
        surroundings=ExecutionEnvironment(
            cwd="/a", environment={"X": "1", "GONE": "1"}, files=(FileOperand("f", "aa"), FileOperand("new"))
        ),
    )
    now = ApprovalBinding(
        tool_version="2",
        policy="p1",
        surroundings=ExecutionEnvironment(
            cwd="/a", environment={"X": "2"}, files=(FileOperand("f", unbound="a folder"), FileOperand("new", "bb"))
        ),
    )

    assert diff_bindings(was, now) == (
        BindingChange("tool version", "1", "2"),
        BindingChange("variable X", "1", "2"),
        BindingChange("variable GONE", "1", "not there"),
        BindingChange("file f", "sha256:aa", "cannot be bound: a folder"),
        BindingChange("file new", "missing", "sha256:bb"),
    )
    assert diff_bindings(was, was) == ()


def test_a_grant_is_known_by_the_call_its_surroundings_its_requester_and_the_rules_that_asked() -> None:
    bound = ApprovalBinding(
        requester="ada", surroundings=ExecutionEnvironment(cwd="/a", files=(FileOperand("f", "aa"),))
    )
    elsewhere = ApprovalBinding(
        requester="ada", surroundings=ExecutionEnvironment(cwd="/b", files=(FileOperand("f", "aa"),))
    )
    other_file = ApprovalBinding(
        requester="ada", surroundings=ExecutionEnvironment(cwd="/a", files=(FileOperand("f", "bb"),))
    )
    keys = [
        compute_grant_key("edit", {"a": 1}, bound, ("r",)),
        compute_grant_key("edit", {"a": 2}, bound, ("r",)),
        compute_grant_key("write", {"a": 1}, bound, ("r",)),
        compute_grant_key("edit", {"a": 1}, ApprovalBinding(requester="bob", surroundings=bound.surroundings), ("r",)),
        compute_grant_key("edit", {"a": 1}, elsewhere, ("r",)),
        compute_grant_key("edit", {"a": 1}, other_file, ("r",)),
        compute_grant_key("edit", {"a": 1}, bound, ("r", "s")),
    ]

    assert len(set(keys)) == len(keys)
    assert compute_grant_key("edit", {"a": 1.0}, bound, ("r",)) == keys[0]


@each("value", [["a", "b"], [], [1, "a", None], {"a": []}, -(2**53) + 1, 0.001, 1e15, 0.0009])
def test_plain_values_have_the_canonical_bytes(value: Any) -> None:
    assert rfc8785.dumps(value) in canonical(value=value)


def test_code_that_no_approval_is_bound_to_is_in_the_bytes() -> None:
    bound = ApprovalBinding(surroundings=ExecutionEnvironment(unnamed_code=True))
    unbound = canonical_payload(Payload("run", "call", "edit", {}, bound))

    assert json.parse(unbound)["unnamed_code"] is True
    assert "unnamed_code" not in json.parse(canonical())


def test_answers_and_grants_have_hashes_of_their_own() -> None:
    """Neither can be taken for the other, or for a payload."""
    bound = ApprovalBinding(tool_definition="d", requester="ada")
    tools: list[Any] = ["local", "", "edit", "d"]
    places: list[Any] = ["", {}, "none", []]

    assert hash_answer("h", None, None) == ""
    assert hash_answer("h", {"a": 1}, None) == hash_payload(rfc8785.dumps(["answer", "h", {"a": 1}, None]))
    assert hash_answer("h", None, 2) == hash_payload(rfc8785.dumps(["answer", "h", None, 2]))
    assert compute_grant_key("edit", {"a": 1}, bound, ("r",)) == hash_payload(
        rfc8785.dumps(["grant", tools, {"a": 1}, places, "ada", ["r"]])
    )


def test_an_effect_key_that_is_code_is_named_as_code() -> None:
    def key(arguments: dict[str, Any]) -> str:
        return "x"

    def digest(effect: Any) -> str:
        return definition_digest(tool(edit, name="edit", version="1", effect=effect))

    written, other, code, as_word = map(digest, ("edit:{path}", "change:{path}", key, "function"))

    assert len({written, other, code}) == 3
    assert code == as_word


def test_a_call_can_change_with_the_files_that_are_bound() -> None:
    here, device = FileOperand("a.txt", "0" * 64), FileOperand("/dev/sda", unbound="a device")

    assert ExecutionEnvironment(files=(device, here)).can_change
    assert not ExecutionEnvironment(files=(device,)).can_change
    assert not ExecutionEnvironment().can_change
    assert [file.state for file in (here, device, FileOperand("b"))] == [
        f"sha256:{'0' * 64}",
        "cannot be bound: a device",
        "missing",
    ]
