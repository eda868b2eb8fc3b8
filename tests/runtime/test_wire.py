"""The shapes in which model providers send calls and take answers."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import ConfigurationError, HeadlessInteractionProvider, ToolIntent, ToolRuntime, tool
from interlock.wire import PROVIDER_FORMATS, ProviderFormat, WireFormat
from tests.each import each


@tool
async def add(a: int, b: int = 1) -> int:
    return a + b


@tool(risk="write")
async def save(text: str) -> str:
    return text


def openai(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def openai_responses(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def anthropic(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def own(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"id": call_id, "tool_name": name, "arguments": arguments, "reason": "to know"}


def own_short(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": arguments}


def intent(call_id: str, name: str, **arguments: object) -> ToolIntent:
    return ToolIntent(call_id=call_id, tool_name=name, arguments=arguments)


SHAPES = {
    "openai": (openai, "openai"),
    "openai responses": (openai_responses, "openai-responses"),
    "anthropic": (anthropic, "anthropic"),
    "own": (own, "openai"),
    "own, short": (own_short, "openai"),
    "intent": (intent, "openai"),
}


def as_object(value: Any) -> Any:
    """The same as an SDK gives it: attributes all the way down, but for the arguments."""
    if not isinstance(value, dict):
        return value
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    nested = {"function": as_object(fields["function"])} if "function" in fields else {}
    return SimpleNamespace(**{**fields, **nested})


def answered(shape: str, call_id: str, name: str, ok: bool, content: str) -> dict[str, Any]:
    """The literal answer to one call."""
    match shape:
        case "openai-responses":
            return {"type": "function_call_output", "call_id": call_id, "output": content}
        case "anthropic":
            result = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": not ok}
            return {"role": "user", "content": [result]}
        case _:
            return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


THREE = (
    '{"type":"tool.observation","tool":"add","ok":true}\n'
    '<untrusted_tool_output trust="tool_output_untrusted" format="json">\n| 3\n</untrusted_tool_output>'
)


@pytest.mark.requirement("R050", "R062")
@each("sdk_object", [False, True])
@each(("write", "shape"), SHAPES.values())
async def test_a_call_is_read_in_every_shape_and_answered_in_the_same(write: Any, shape: str, sdk_object: bool) -> None:
    sent = write("c1", "add", a=1, b=2)
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([as_object(sent) if sdk_object else sent])

    assert result.tool_executions[0].output == 3
    assert result.messages == [answered(shape, "c1", "add", True, THREE)]


@pytest.mark.requirement("R021", "R062")
@pytest.mark.parametrize(("write", "shape"), SHAPES.values(), ids=SHAPES)
async def test_a_failure_is_answered_under_the_id_of_its_call(write: Any, shape: str) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([write("c1", "add", a="one")])

    [message] = result.messages
    [inner] = message["content"] if shape == "anthropic" else [message]
    content: str = inner["output"] if shape == "openai-responses" else inner["content"]
    assert message == answered(shape, "c1", "add", False, content)
    assert json.loads(content)["code"] == "schema_invalid"


@pytest.mark.requirement("R050")
async def test_the_results_of_an_anthropic_turn_are_one_user_message_in_model_order() -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute(
            [anthropic("c1", "add", a=1), anthropic("c2", "nothing"), anthropic("c3", "add", a=3)]
        )

    [message] = result.messages
    assert message["role"] == "user"
    assert [(block["tool_use_id"], block["is_error"]) for block in message["content"]] == [
        ("c1", False),
        ("c2", True),
        ("c3", False),
    ]


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
async def test_the_messages_can_be_had_in_the_shape_of_another_provider(shape: WireFormat) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([openai("c1", "add", a=2)])

    assert result.messages_for(shape) == [answered(shape, "c1", "add", True, THREE)]


@pytest.mark.parametrize(("write", "shape"), SHAPES.values(), ids=SHAPES)
async def test_an_id_that_came_twice_is_answered_once(write: Any, shape: str) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([write("c1", "add", a=2), write("c1", "add", a=2)])

    assert len(result.observations) == 2
    assert result.messages == [answered(shape, "c1", "add", True, THREE)]


@pytest.mark.parametrize(("write", "shape"), SHAPES.values(), ids=SHAPES)
async def test_a_turn_in_which_every_call_waits_has_no_message(write: Any, shape: str) -> None:
    async with ToolRuntime(tools=[save], interaction=HeadlessInteractionProvider("wait")) as runtime:
        result = await runtime.execute([write("c1", "save", text="x")])

    assert (len(result.waiting), result.messages) == (1, [])


@pytest.mark.parametrize(("write", "shape"), SHAPES.values(), ids=SHAPES)
async def test_a_resumed_call_is_answered_in_the_shape_it_came_in(write: Any, shape: str) -> None:
    async with ToolRuntime(tools=[save], interaction=HeadlessInteractionProvider("wait")) as runtime:
        [question] = (await runtime.execute([write("c1", "save", text="x")])).questions
        await runtime.decide(question.action_id, approved=True)
        result = await runtime.resume()

    [inner] = result.messages_for("openai")
    assert result.messages == [answered(shape, "c1", "save", True, inner["content"])]


@pytest.mark.parametrize("arguments", ["", "{}", {}])
async def test_a_call_without_arguments_may_say_so_in_several_ways(arguments: Any) -> None:
    @tool
    async def ping() -> str:
        return "pong"

    async with ToolRuntime(tools=[ping]) as runtime:
        result = await runtime.execute([{"id": "c1", "function": {"name": "ping", "arguments": arguments}}])

    assert result.tool_executions[0].output == "pong"


@each("arguments", ["{", "[1]", "null", "{'a': 1}", '{"a": 1, "a": 2}', '{"a": NaN}', None, [1], 5])
async def test_arguments_that_are_no_json_object_are_refused_under_the_id_of_their_call(arguments: Any) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([{"id": "c1", "function": {"name": "add", "arguments": arguments}}])

    [message] = result.messages
    assert message["tool_call_id"] == "c1"
    assert json.loads(message["content"])["code"] == "arguments_malformed"


@each(
    "sent",
    [
        None,
        "add(1, 2)",
        7,
        {},
        {"id": "c1"},
        {"function": {"name": "add", "arguments": "{}"}},
        {"id": "", "function": {"name": "add", "arguments": "{}"}},
        {"id": 7, "function": {"name": "add", "arguments": "{}"}},
        {"id": None, "name": "add"},
        {"id": "c1", "name": ["add"]},
        SimpleNamespace(id="c1"),
        object(),
    ],
)
async def test_what_has_no_shape_of_a_call_is_refused_and_the_others_run(sent: Any) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([sent, openai("c2", "add", a=2)])

    assert [observation.code for observation in result.observations] == ["call_id_invalid", "ok"]


async def test_an_openai_call_whose_arguments_are_left_out_is_answered_under_its_id() -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([{"id": "c1", "type": "function", "function": {"name": "add"}}])

    assert [message["tool_call_id"] for message in result.messages] == ["c1"]


@pytest.mark.parametrize("provider", PROVIDER_FORMATS)
def test_tools_have_the_form_of_the_provider(provider: ProviderFormat) -> None:
    with ToolRuntime(tools=[add]) as runtime:
        tools = {schema.get("name") or schema["function"]["name"]: schema for schema in runtime.tools(provider)}
    schema = tools["add"]
    places = {"openai": ("function", "parameters"), "openai-responses": ("parameters",), "anthropic": ("input_schema",)}
    for key in places[provider]:
        schema = schema[key]
    assert set(schema["properties"]) == {"a", "b"}
    assert sorted(tools) == ["add", "read_artifact"]


def test_tools_show_what_the_mode_allows() -> None:
    with ToolRuntime(tools=[hidden_tool]) as runtime:
        assert "hidden_tool" not in [schema["function"]["name"] for schema in runtime.tools()]


@tool(visible=lambda situation: "Not now.")
def hidden_tool() -> str:
    """Nobody sees it."""
    return ""


async def test_unknown_provider_format_is_refused() -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([openai("c1", "add", a=2)])
        wrong: Any = "openai_responses"
        message = "Unknown provider format `openai_responses`. Did you mean `openai-responses`?"
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            runtime.tools(wrong)
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            result.messages_for(wrong)


TEXT = {"type": "text", "text": "I add."}
CHAT_MESSAGE = {"role": "assistant", "content": "I add.", "tool_calls": [openai("c1", "add", a=1)]}
RESPONSE_OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "mcp_call", "id": "mcp_1", "name": "add", "arguments": "{}", "server_label": "theirs"},
    openai_responses("c1", "add", a=1),
]
ANTHROPIC_CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
    TEXT,
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
    anthropic("c1", "add", a=1),
]
ANTHROPIC_MESSAGE = {"type": "message", "role": "assistant", "content": ANTHROPIC_CONTENT}
WHOLE: dict[str, tuple[Any, WireFormat]] = {
    "chat completion": ({"object": "chat.completion", "choices": [{"index": 0, "message": CHAT_MESSAGE}]}, "openai"),
    "chat message": (CHAT_MESSAGE, "openai"),
    "chat calls": (CHAT_MESSAGE["tool_calls"], "openai"),
    "one call": (openai("c1", "add", a=1), "openai"),
    "response": ({"object": "response", "output": RESPONSE_OUTPUT}, "openai-responses"),
    "output": (RESPONSE_OUTPUT, "openai-responses"),
    "anthropic message": (ANTHROPIC_MESSAGE, "anthropic"),
    "anthropic content": (ANTHROPIC_CONTENT, "anthropic"),
}


def as_sdk(value: Any) -> Any:
    """The same with attributes all the way down, but for arguments."""
    if isinstance(value, list):
        return [as_sdk(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return SimpleNamespace(**{name: part if name == "input" else as_sdk(part) for name, part in fields.items()})


@each("sdk_object", [False, True])
@each(("sent", "shape"), WHOLE.values())
async def test_a_whole_response_is_executed_for_its_calls(sent: Any, shape: str, sdk_object: bool) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute(as_sdk(sent) if sdk_object else sent)

    assert [(seen.call_id, seen.code) for seen in result.observations] == [("c1", "ok")]
    assert result.messages == [answered(shape, "c1", "add", True, THREE.replace("3", "2"))]


async def test_sdk_objects_are_read() -> None:
    chat = pytest.importorskip("openai.types.chat").ChatCompletion.model_construct(
        choices=[SimpleNamespace(message=SimpleNamespace(content=None, tool_calls=[openai("c1", "add", a=1)]))]
    )
    message = pytest.importorskip("anthropic.types").Message.model_validate(
        {
            "id": "m", "model": "x", "stop_reason": "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1}, **ANTHROPIC_MESSAGE,
        }
    )  # fmt: skip
    async with ToolRuntime(tools=[add]) as runtime:
        results = [await runtime.execute(sent) for sent in (chat, message)]

    assert [[seen.code for seen in result.observations] for result in results] == [["ok"], ["ok"]]


NO_CALLS: list[Any] = [
    None,
    [],
    {"role": "assistant", "content": "Done."},
    {"role": "assistant", "content": "Done.", "tool_calls": None},
    {"choices": [{"message": {"content": None, "tool_calls": []}}]},
    {"content": [TEXT]},
]
NO_RESPONSE: list[Any] = ["add(1)", 7, b"x", {"choices": [{}, {}]}]


@pytest.mark.parametrize("sent", NO_CALLS, ids=str)
async def test_a_response_without_calls_executes_nothing(sent: Any) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute(sent)

    assert (result.observations, result.messages) == ((), [])


@pytest.mark.parametrize("kind", ["custom_tool_call", "computer_call", "shell_call", "mcp_approval_request", "new"])
async def test_an_item_of_another_type_is_refused_and_not_answered(kind: str) -> None:
    item = {"type": kind, "id": "x1", "call_id": "c1", "name": "add", "input": "1", "arguments": '{"a": 1}'}
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([item, openai_responses("c2", "add", a=1)])

    assert [(seen.call_id, seen.code) for seen in result.observations] == [("c1", "unknown_tool"), ("c2", "ok")]
    assert [message["call_id"] for message in result.messages] == ["c2"]


async def test_garbage_gets_no_message_with_an_id_that_was_made_up() -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        result = await runtime.execute([anthropic("c1", "add", a=1), {"what": "is this"}])

    assert [seen.code for seen in result.observations] == ["ok", "call_id_invalid"]
    assert [block["tool_use_id"] for block in result.messages[0]["content"]] == ["c1"]


@pytest.mark.parametrize("sent", NO_RESPONSE, ids=str)
async def test_what_is_no_response_is_refused_with_what_was_expected(sent: Any) -> None:
    async with ToolRuntime(tools=[add]) as runtime:
        with pytest.raises(ConfigurationError, match="Nothing was executed"):
            await runtime.execute(sent)
