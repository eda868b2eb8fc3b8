"""The registry: which tools exist, and how models are told."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.domain.errors import DuplicateToolError
from interlock.domain.tool import CallContext, PermissionMode, ToolDefinition
from interlock.registry.decorator import tool
from interlock.registry.interface import Registry
from interlock.registry.memory import ToolRegistry


@tool(risk="read")
def read_file(path: str) -> str:
    """Read a file."""
    return path


@tool(risk="write")
def edit_file(path: str, text: str = "") -> str:
    """Edit a file."""
    return path + text


PARAMETERS_OF_EDIT = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string", "default": ""}},
    "required": ["path"],
    "additionalProperties": False,
}
PARAMETERS_OF_READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


def test_a_tool_is_found_by_name_and_by_nothing_else() -> None:
    registry: Registry = ToolRegistry([read_file])

    assert registry.find("read_file") is read_file
    assert registry.find("Read_File") is None


def test_a_bare_function_is_declared_when_it_is_registered() -> None:
    def count(words: str) -> int:
        """Count words."""
        return len(words.split())

    registry = ToolRegistry([count])

    definition = registry.lookup("count")
    assert isinstance(definition, ToolDefinition)
    assert definition.spec.description == "Count words."


def test_a_second_tool_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = ToolRegistry([read_file])

    with pytest.raises(DuplicateToolError, match="'read_file'"):
        registry.register(tool(edit_file.handler, name="read_file"))

    assert registry.find("read_file") is read_file


def test_a_tool_comes_and_goes() -> None:
    registry = ToolRegistry([read_file])

    assert registry.register(edit_file) is edit_file
    assert registry.names() == ("edit_file", "read_file")
    assert registry.unregister("read_file") is read_file
    assert registry.unregister("read_file") is None
    assert registry.names() == ("edit_file",)


@pytest.mark.requirement("R046", "R189")
def test_tools_of_every_origin_are_in_one_registry_which_says_where_they_come_from() -> None:
    registry = ToolRegistry([read_file])
    registry.register(tool(edit_file.handler, name="search", origin="mcp", source="web"))
    registry.register(tool(edit_file.handler, name="report", origin="skill", source="writing"))
    registry.register(tool(edit_file.handler, name="deploy", origin="extension", source="ops"))

    assert {name: registry.origin(name) for name in (*registry.names(), "nothing")} == {
        "read_file": "local",
        "search": "mcp",
        "report": "skill",
        "deploy": "extension",
        "nothing": None,
    }
    assert len(registry.to_openai_function_tools()) == 4


@pytest.mark.requirement("R048")
def test_every_tool_is_exported_in_the_form_of_openai_functions() -> None:
    registry = ToolRegistry([read_file, edit_file])

    assert registry.to_openai_function_tools() == [
        {
            "type": "function",
            "function": {
                "name": "edit_file",
                "description": "Edit a file.",
                "parameters": PARAMETERS_OF_EDIT,
            },
        },
        {
            "type": "function",
            "function": {
                "name": "read_file",
                "description": "Read a file.",
                "parameters": PARAMETERS_OF_READ,
            },
        },
    ]


def test_tools_are_exported_for_the_responses_api_and_for_anthropic() -> None:
    registry = ToolRegistry([read_file])

    assert registry.to_openai_responses_tools() == [
        {
            "type": "function",
            "name": "read_file",
            "description": "Read a file.",
            "parameters": PARAMETERS_OF_READ,
            "strict": False,
        }
    ]
    assert registry.to_anthropic_tools() == [
        {"name": "read_file", "description": "Read a file.", "input_schema": PARAMETERS_OF_READ}
    ]


def test_an_export_for_a_situation_holds_only_what_is_visible_there() -> None:
    registry = ToolRegistry([read_file, edit_file])
    situation = CallContext(run_id="run_1", mode=PermissionMode.READ_ONLY)

    names = [exported["name"] for exported in registry.to_anthropic_tools(situation)]
    names += [exported["name"] for exported in registry.to_openai_responses_tools(situation)]
    names += [exported["function"]["name"] for exported in registry.to_openai_function_tools(situation)]

    assert names == ["read_file"] * 3


def test_what_a_caller_does_to_an_export_does_not_reach_the_registry() -> None:
    registry = ToolRegistry([read_file])

    registry.to_anthropic_tools()[0]["input_schema"]["properties"].clear()
    registry.to_openai_function_tools()[0]["function"]["parameters"].clear()

    assert registry.to_anthropic_tools()[0]["input_schema"] == PARAMETERS_OF_READ
    assert read_file.spec.parameters_schema == PARAMETERS_OF_READ


def test_tools_registered_from_many_threads_are_all_there() -> None:
    registry = ToolRegistry()
    tools = [tool(read_file.handler, name=f"tool_{number}") for number in range(200)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(registry.register, tools))

    assert {name: registry.find(name) for name in registry.names()} == {tool.name: tool for tool in tools}
