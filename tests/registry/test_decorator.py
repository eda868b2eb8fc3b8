"""What `tool` makes of a function and its options."""

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any, cast

import pytest

from interlock.domain.errors import ToolDeclarationError
from interlock.domain.tool import CallContext, JsonObject, NormalizedOutput, Risk, ToolContext, ToolDefinition, ToolSpec
from interlock.registry.decorator import tool
from tests.each import each


def read_file(path: str, limit: int = 2000) -> str:
    """Read a text file.

    Args:
        path: Where the file is, relative to the workspace.
        limit: How many lines to read at most.
    """
    return f"{path}:{limit}"


@pytest.mark.requirement("R044", "R045")
def test_a_function_gives_its_name_docstring_and_parameters_to_the_spec() -> None:
    definition = tool(read_file)

    assert definition.spec == ToolSpec(
        name="read_file",
        description="Read a text file.",
        parameters_schema={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where the file is, relative to the workspace."},
                "limit": {
                    "type": "integer",
                    "default": 2000,
                    "description": "How many lines to read at most.",
                },
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )
    assert definition.handler is read_file
    assert definition.args_model.model_validate_json('{"path": "a"}').model_dump() == {"path": "a", "limit": 2000}


@pytest.mark.requirement("R044")
def test_the_decorator_works_bare_with_options_and_as_a_function() -> None:
    @tool
    def bare(path: str) -> None: ...

    @tool(name="with_options", description="Said here.")
    def decorated(path: str) -> None:
        """Said there."""

    called = tool(read_file, name="called")

    assert [bare.name, decorated.name, called.name] == ["bare", "with_options", "called"]
    assert decorated.spec.description == "Said here."


def test_an_async_function_stays_async_and_a_sync_one_sync() -> None:
    @tool
    async def fetch(url: str) -> str:
        return url

    assert (fetch.is_async, tool(read_file).is_async) == (True, False)


def test_a_bound_method_is_a_tool_without_its_self() -> None:
    class Shelf:
        def take(self, title: str) -> str:
            return title

    assert list(tool(Shelf().take).spec.parameters_schema["properties"]) == ["title"]


@pytest.mark.requirement("R186", "R187")
def test_everything_a_developer_declares_is_in_the_definition() -> None:
    def situation_allows(situation: CallContext) -> bool:
        return situation.interactive

    def check(arguments: JsonObject, context: ToolContext) -> None: ...
    def authorize(arguments: JsonObject, situation: CallContext) -> None: ...
    def normalize(value: Any) -> NormalizedOutput:
        return NormalizedOutput(summary=str(value))

    def reconcile(arguments: JsonObject) -> bool:
        return False

    def explain(context: ToolContext, error: BaseException) -> str:
        return str(error)

    definition = tool(
        read_file,
        version="7",
        risk=["read", "network"],
        read_only=True,
        idempotent=True,
        concurrency="exclusive",
        timeout_seconds=5,
        max_output_chars=100,
        isolation="process",
        origin="mcp",
        source="files",
        visible=situation_allows,
        check=check,
        authorize=authorize,
        normalize=normalize,
        reconcile=reconcile,
        raise_on_error=True,
        failure_error_function=explain,
        timeout_behavior="raise_exception",
        timeout_error_function=explain,
    )

    assert definition == ToolDefinition(
        spec=definition.spec,
        version="7",
        handler=read_file,
        is_async=False,
        args_model=definition.args_model,
        risk=frozenset({Risk.READ, Risk.NETWORK}),
        read_only=True,
        idempotent=True,
        concurrency="exclusive",
        timeout_seconds=5.0,
        max_output_chars=100,
        isolation="process",
        origin="mcp",
        source="files",
        visible=situation_allows,
        check=check,
        authorize=authorize,
        normalize=normalize,
        reconcile=reconcile,
        raise_on_error=True,
        failure_error_function=explain,
        timeout_behavior="raise_exception",
        timeout_error_function=explain,
    )


@pytest.mark.requirement("R187")
@pytest.mark.parametrize("word", ["read", "write", "execute", "network", "delegate"])
def test_a_risk_is_one_word_or_several(word: str) -> None:
    assert tool(read_file, risk=word).risk == {word}
    assert tool(read_file, risk={word, "read"}).risk == {word, "read"}


@each(
    ("risk", "read_only", "concurrency"),
    [
        ((), False, "safe"),
        ("read", True, "safe"),
        ("network", False, "safe"),
        (("read", "network"), False, "safe"),
        ("write", False, "exclusive"),
        ("execute", False, "exclusive"),
        ("delegate", False, "exclusive"),
        (("read", "write"), False, "exclusive"),
    ],
)
def test_the_risk_decides_what_was_not_said(risk: str | Iterable[str], read_only: bool, concurrency: str) -> None:
    definition = tool(read_file, risk=risk)

    assert (definition.read_only, definition.concurrency) == (read_only, concurrency)


@pytest.mark.requirement("R217")
def test_keys_computed_from_the_arguments_make_a_tool_keyed() -> None:
    definition = tool(
        read_file,
        risk="write",
        read_keys=lambda arguments: ["index", "index"],
        write_keys=lambda arguments: str(PurePosixPath(arguments["path"])),
    )

    assert definition.concurrency == "keyed"
    assert definition.read_keys is not None
    assert definition.read_keys({"path": "a//b"}) == frozenset({"index"})
    assert definition.write_keys is not None
    assert definition.write_keys({"path": "a//b"}) == frozenset({"a/b"})


@pytest.mark.requirement("R217")
def test_concurrency_is_kept_as_metadata() -> None:
    keyed = tool(read_file, concurrency="keyed", read_keys=lambda arguments: arguments["path"])

    assert tool(read_file, concurrency="safe").concurrency == "safe"
    assert tool(read_file, concurrency="exclusive").concurrency == "exclusive"
    assert keyed.concurrency == "keyed"


def test_default_timeout_is_another_word_for_timeout_seconds() -> None:
    assert tool(read_file, default_timeout=2).timeout_seconds == 2.0


def test_the_same_declaration_has_the_same_version() -> None:
    assert tool(read_file).version == tool(read_file).version
    assert tool(read_file).version.startswith("sha256:")
    assert len(tool(read_file).version) == len("sha256:") + 16


def _with_another_parameter(path: str, limit: int = 2000, offset: int = 0) -> str:
    return path


@each(
    "other",
    [
        lambda: tool(read_file, name="cat"),
        lambda: tool(read_file, description="Reads."),
        lambda: tool(_with_another_parameter, name="read_file", description="Read a text file."),
        lambda: tool(read_file, risk="read"),
        lambda: tool(read_file, read_only=True),
        lambda: tool(read_file, idempotent=True),
        lambda: tool(read_file, concurrency="exclusive"),
        lambda: tool(read_file, isolation="process"),
        lambda: tool(read_file, timeout_seconds=1),
        lambda: tool(read_file, timeout_behavior="raise_exception"),
        lambda: tool(read_file, max_output_chars=1),
        lambda: tool(read_file, origin="skill"),
        lambda: tool(read_file, source="somewhere"),
        lambda: tool(read_file, raise_on_error=True),
    ],
)
def test_another_declaration_has_another_version(other: Callable[[], ToolDefinition]) -> None:
    assert other().version != tool(read_file).version


def test_a_refusal_names_the_tool() -> None:
    with pytest.raises(ToolDeclarationError, match=r"^Tool 'reader': a risk|^Tool 'reader': 'rm'"):
        tool(read_file, name="reader", risk="rm")


@pytest.mark.parametrize("name", ["", "read file", "read.file", "a" * 65, "läsen", "read\n"])
def test_a_name_that_providers_do_not_take_is_refused(name: str) -> None:
    with pytest.raises(ToolDeclarationError, match="cannot be called"):
        tool(read_file, name=name)


async def _async_handler(path: str) -> str:
    return path


ANONYMOUS: Callable[[], None] = lambda: None  # noqa: E731 - the case is a lambda at the top of a module


@each(
    ("options", "message"),
    [
        ({"colour": "red"}, "no option colour"),
        ({"risk": ["read", "rm"]}, "'rm' is not a valid Risk; a risk is one of read, write"),
        ({"read_only": True, "risk": "write"}, "read_only contradicts"),
        ({"concurrency": "parallel"}, "concurrency is 'parallel'; it must be one of safe, keyed, exclusive"),
        ({"concurrency": "keyed"}, "needs read_keys or write_keys"),
        ({"concurrency": "safe", "read_keys": str}, "read_keys would be ignored"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"timeout_seconds": -1.5}, "timeout_seconds is -1.5"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds is inf"),
        ({"timeout_seconds": None}, "timeout_seconds is None"),
        ({"default_timeout": 0}, "default_timeout is 0"),
        ({"default_timeout": 1, "timeout_seconds": 1}, "are the same"),
        ({"max_output_chars": 0}, "max_output_chars must be positive"),
        ({"isolation": "container"}, "isolation is 'container'"),
        ({"origin": "web"}, "origin is 'web'"),
        ({"timeout_behavior": "shrug"}, "timeout_behavior is 'shrug'"),
        ({"check": len}, "check must be a function that takes 2 arguments"),
        ({"visible": True}, "visible must be a function that takes 1 argument"),
        ({"middleware": [len]}, "middleware must be a function that takes 3 arguments"),
        ({"pre_hooks": str}, "pre_hooks must be a list of functions"),
        ({"post_hooks": ["audit"]}, "post_hooks must be a list of functions"),
        ({"args_model": object}, "args_model must be a pydantic model"),
    ],
)
def test_an_option_that_cannot_work_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDeclarationError, match=message):
        cast(Any, tool)(read_file, **options)


def test_a_tool_for_another_process_must_be_importable_and_sync() -> None:
    def local(path: str) -> str:
        return path

    with pytest.raises(ToolDeclarationError, match="needs a sync function"):
        tool(_async_handler, isolation="process")
    with pytest.raises(ToolDeclarationError, match="top of a module"):
        tool(local, isolation="process")
    with pytest.raises(ToolDeclarationError, match="top of a module"):
        tool(ANONYMOUS, name="anonymous", isolation="process")
