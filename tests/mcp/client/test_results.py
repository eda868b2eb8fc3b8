"""Results keep their parts, order and structured content through the pipeline, and the usual one costs nothing."""

import base64
from typing import Any

import mcp_types as types
import pytest

from interlock import MemoryArtifacts, Observation, ToolRuntime
from interlock.mcp.client.results import FACTS_KEY, to_call_result, to_upstream_error
from tests.support import call

from .servers import ScriptedServer, text_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
IMAGE = types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
BLOB = types.BlobResourceContents(uri="file:///b", blob=base64.b64encode(b"abc").decode(), mime_type="x/y")
SECRET = "sk-live-51HmAcmeCorpSecret00TopSecret99"


async def observe(result: types.CallToolResult, **options: Any) -> tuple[Observation, types.CallToolResult]:
    """Return what the runtime makes of a result, and what a gateway would answer."""
    server, artifacts = ScriptedServer(), MemoryArtifacts()

    async def answer(arguments: dict[str, Any]) -> types.CallToolResult:
        return result

    server.answers["echo"] = answer
    async with ToolRuntime(tools=[server.toolbox()], mode="trusted", artifacts=artifacts, **options) as runtime:
        [seen] = (await runtime.execute([call("c1", "srv_echo", text="x")])).observations
    return seen, to_call_result(seen, artifacts.read)


def text(value: str) -> types.TextContent:
    return types.TextContent(text=value)


RESULTS = {
    "one text": types.CallToolResult(content=[text("hello")]),
    "nothing": types.CallToolResult(content=[]),
    "two texts": types.CallToolResult(content=[text("a"), text("b")]),
    "mixed, in order": types.CallToolResult(
        content=[
            text("before"),
            IMAGE,
            types.ResourceLink(name="doc", uri="file:///doc"),
            text("after"),
            types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="inside")),
            types.EmbeddedResource(resource=BLOB),
        ]
    ),
    "structured as the text": types.CallToolResult(content=[text('{"n":1}')], structured_content={"n": 1}),
    "structured as a result": types.CallToolResult(content=[text("5")], structured_content={"result": 5}),
    "structured otherwise": types.CallToolResult(content=[text("five")], structured_content={"n": 5}),
    "structured list": types.CallToolResult(content=[text("[1]")], structured_content=[1]),
    "metadata": types.CallToolResult(content=[text("a")], _meta={"x/y": {"z": 1}}),
    "annotated text": types.CallToolResult(
        content=[types.TextContent(text="a", annotations=types.Annotations(priority=0.5))]
    ),
    "error": types.CallToolResult(content=[text("disk full")], is_error=True),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_a_result_comes_back_as_it_was(result: types.CallToolResult):
    _, back = await observe(result)
    expected = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert back.model_dump(mode="json", by_alias=True, exclude_none=True) == expected


async def test_the_usual_result_stores_nothing_extra():
    seen, _ = await observe(RESULTS["one text"])
    assert (seen.facts, seen.artifacts, text_of(seen)) == ({}, (), "hello")


async def test_structured_content_that_is_the_text_is_stored_once():
    seen, _ = await observe(RESULTS["structured as the text"])
    assert seen.facts == {FACTS_KEY: {"structured": "text"}}
    assert seen.content is not None
    assert seen.content.format == "json"


async def test_structured_content_alone_is_read_by_the_model():
    seen, back = await observe(types.CallToolResult(content=[], structured_content={"n": 1}))
    assert (text_of(seen), back.structured_content) == ('{"n":1}', {"n": 1})


async def test_secrets_are_redacted_and_the_structure_stays():
    result = types.CallToolResult(content=[text("a"), text(f"key {SECRET}")], structured_content={"key": SECRET})
    seen, back = await observe(result, secrets={"KEY": SECRET})
    assert SECRET not in repr((seen, back))
    assert [block.type for block in back.content] == ["text", "text"]
    assert isinstance(back.structured_content, dict)


async def test_long_output_is_cut_in_both_directions():
    long = "x" * 50_000
    seen, back = await observe(types.CallToolResult(content=[text(long), IMAGE], structured_content={"all": long}))
    assert seen.truncated
    assert len(back.model_dump_json()) < 40_000
    assert [block.type for block in back.content] == ["text", "image"]
    assert back.structured_content is None


BROKEN = {
    "no base64": types.ImageContent(data="???", mime_type="image/png"),
    "too large": types.ImageContent(data="A" * (28 << 20), mime_type="image/png"),
}


@pytest.mark.parametrize("block", BROKEN.values(), ids=BROKEN)
async def test_data_that_cannot_be_kept_is_left_out(block: types.ImageContent):
    seen, back = await observe(types.CallToolResult(content=[text("a"), block]))
    assert seen.ok
    assert "left out" in text_of(seen)
    assert len(back.model_dump_json()) < 10_000


async def test_only_errors_of_servers_are_relayed_as_such():
    seen, _ = await observe(RESULTS["error"])
    assert to_upstream_error(seen) is None
