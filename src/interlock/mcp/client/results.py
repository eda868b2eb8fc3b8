"""Results of MCP servers and observations of the runtime, in both directions.

A result becomes text for the model, attachments for what is no text, and facts for the rest: the order of its parts,
its structured content and its `_meta`. All of that passes the pipeline, so secrets are redacted and long output is cut
there, and nothing of a result goes around it. The usual result, one text, has no facts at all.
"""

import base64
import binascii
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from mcp_types import (
    SERVER_INFO_META_KEY,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

from ...domain import json
from ...domain.attachments import ATTACHMENT, MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS, Attachment
from ...domain.errors import ArtifactError
from ...domain.file_kind import detect_media_type
from ...domain.observation import Observation
from ...domain.outcome import ArtifactRef
from ...domain.rendering import neutralize
from ...domain.tool import JsonObject, NormalizedOutput, ToolDefinition
from ...rendering.text import shorten, shorten_line

#: The facts of a result that is more than one text.
FACTS_KEY = "mcp"
#: In the facts, the structured content is what the text says: as it is, or in an object as its `result`.
_AS_TEXT, _AS_RESULT = "text", "result"
_MAX_BLOCKS = 1_000
_MAX_LINK_CHARS = 2_000
_MAX_SUMMARY_CHARS = 300

_block_adapter: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)
_result_adapter: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_TEXT_FIELDS = 2
#: Of a result that is nothing but a text.
_PLAIN_KEYS = frozenset({"content", "isError", "resultType", "_meta"})

#: Reads an artifact by its id. Raises `ArtifactError`.
ReadArtifact = Callable[[str], bytes]


def read_result(document: JsonObject, version: str) -> CallToolResult | InputRequiredResult:
    """Return what a server answered to a call, at this version of the protocol. Raise `ValidationError` for what is no
    result. The usual one, a text, is checked here; any other by the schema of the version.
    """
    if (text := _find_only_text(document)) is not None:
        return CallToolResult(content=[TextContent(text=text)], is_error=document.get("isError", False))
    with suppress(KeyError):
        validate_server_result("tools/call", version, document)
    return _result_adapter.validate_python(document, by_name=False)


def _find_only_text(document: JsonObject) -> str | None:
    """Return the text of a result that is nothing else; None for any other."""
    content, meta = document.get("content"), document.get("_meta", {})
    if (
        type(content) is not list
        or len(cast(list[object], content)) != 1
        or document.keys() - _PLAIN_KEYS
        or type(document.get("isError", False)) is not bool
        or document.get("resultType", "complete") != "complete"
        or type(meta) is not dict
        or cast(JsonObject, meta).keys() - {SERVER_INFO_META_KEY}
    ):
        return None
    match cast(list[object], content)[0]:
        case {"type": "text", "text": str() as text} as block if len(cast(JsonObject, block)) == _TEXT_FIELDS:
            return text
        case _:
            return None


def to_output(result: CallToolResult, tool: ToolDefinition) -> NormalizedOutput:
    """Convert the result of a server. What it says of itself is untrusted."""
    if len(result.content) == 1 and isinstance(only := result.content[0], TextContent) and _is_plain(result, only):
        return _finish(only.text, (), {}, result, tool)
    texts: list[str] = []
    attachments: list[Attachment] = []
    blocks: list[JsonObject] = []
    for block in result.content[:_MAX_BLOCKS]:
        document = block.model_dump(by_alias=True, mode="json", exclude_none=True)
        text = _read_block(block, document, attachments)
        if text:
            texts.append(text)
        blocks.append(document)
    text = "\n".join(texts)
    facts: JsonObject = {}
    is_json = False
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        same = _compare_structured(result.structured_content, text)
        is_json = same == _AS_TEXT
        facts["structured"] = same or {"value": result.structured_content}
        if not text and not attachments:
            text, is_json, facts["structured"] = json.encode(result.structured_content).decode(), True, _AS_TEXT
    if meta := _read_meta(result):
        facts["_meta"] = meta
    if len(text) > tool.max_output_chars:
        blocks = [_without_text(block) for block in blocks]
    if len(blocks) != 1 or blocks[0].keys() != {"type", "text"}:
        facts["content"] = blocks
    if (left := len(result.content) - _MAX_BLOCKS) > 0:
        text += f"\n[{left:,} more parts were left out: {_MAX_BLOCKS:,} is the limit]"
    return _finish(text, tuple(attachments), facts, result, tool, is_json=is_json)


def _is_plain(result: CallToolResult, text: TextContent) -> bool:
    return result.structured_content is None and not _read_meta(result) and text.annotations is None and not text.meta


def _read_meta(result: CallToolResult) -> JsonObject:
    """Return the metadata of a result. What the server says of itself is known from its connection."""
    return {key: value for key, value in (result.meta or {}).items() if key != SERVER_INFO_META_KEY}


def _finish(  # noqa: PLR0913 - the parts of an output
    text: str,
    attachments: tuple[Attachment, ...],
    facts: JsonObject,
    result: CallToolResult,
    tool: ToolDefinition,
    *,
    is_json: bool = False,
) -> NormalizedOutput:
    return NormalizedOutput(
        ok=not result.is_error,
        code="tool_failed" if result.is_error else "ok",
        summary=shorten_line(text, _MAX_SUMMARY_CHARS) or f"{tool.name} reported an error." if result.is_error else "",
        text=text,
        format="json" if is_json else "text",
        side_effects=() if tool.read_only else None,
        facts={FACTS_KEY: facts} if facts else {},
        attachments=attachments,
    )


def _read_block(block: ContentBlock, document: JsonObject, attachments: list[Attachment]) -> str:
    """Return the text of a block. Its data becomes an attachment, whose number stands for it in the document."""
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _attach(document, "data", block.type, attachments)
        case ResourceLink():
            link = shorten(f"{block.title or block.name}: {block.uri}", _MAX_LINK_CHARS)
            return f"[link {neutralize(link)}]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"[resource {neutralize(shorten(str(resource.uri), _MAX_LINK_CHARS))}]\n{resource.text}"
        case EmbeddedResource():
            name = neutralize(shorten(str(block.resource.uri), _MAX_LINK_CHARS))
            return _attach(cast(JsonObject, document["resource"]), "blob", name, attachments)


def _attach(document: JsonObject, key: str, name: str, attachments: list[Attachment]) -> str:
    data = document.pop(key)
    if len(attachments) >= MAX_ATTACHMENTS or len(data) > MAX_ATTACHMENT_BYTES * 4 // 3 + 4:
        return f"[{name}: left out, it is over the limit]"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{name}: left out, it is no base64]"
    document["attachment"] = len(attachments)
    attachments.append(Attachment(content, name))
    return ""


def _compare_structured(value: Any, text: str) -> str:
    """Return how the structured content is in the text already; empty when it is not."""
    try:
        read = json.parse(text)
    except json.InvalidJsonError:
        read = text
    if _same(read, value):
        return _AS_TEXT
    if (
        isinstance(value, dict)
        and len(cast(JsonObject, value)) == 1
        and _same(cast(JsonObject, value).get("result"), read)
    ):
        return _AS_RESULT if read is not text else ""
    return ""


def _same(first: Any, second: Any) -> bool:
    return json.encode_sorted(first) == json.encode_sorted(second)


def _without_text(block: JsonObject) -> JsonObject:
    return {"type": "text"} if block["type"] == "text" else block


def to_call_result(observation: Observation, read_artifact: ReadArtifact) -> CallToolResult:
    """Convert the observation of any tool to a result for an MCP client: redacted and cut as the observation is."""
    text = observation.content.text if observation.content is not None else ""
    if not observation.ok and not text:
        text = _describe_failure(observation)
    facts = _read_facts(observation.facts)
    artifacts = [ref for ref in observation.artifacts if ref.kind == ATTACHMENT]
    content = _restore_blocks(facts.get("content"), text, artifacts, read_artifact, is_cut=observation.truncated)
    fields: JsonObject = {"content": content, "isError": not observation.ok}
    structured = facts.get("structured")
    if structured is not None and not observation.truncated:
        found = _restore_structured(structured, text)
        if found is not None:
            fields["structuredContent"] = found
    if isinstance(meta := facts.get("_meta"), dict):
        fields["_meta"] = meta
    return CallToolResult.model_validate(fields)


def find_plain_text(observation: Observation) -> str | None:
    """Return the text of a successful call whose result is nothing else; None for any other."""
    if not observation.ok or observation.facts or observation.artifacts or observation.content is None:
        return None
    return observation.content.text


def _describe_failure(observation: Observation) -> str:
    """Return what a model reads of a call that has no output: the code, the message, and what may have happened."""
    failure = observation.failure
    if failure is None:
        return observation.summary
    unknown = " It may have had an effect: find out before you repeat it." if failure.side_effects == "unknown" else ""
    return f"{failure.code}: {failure.message}{unknown}"


def to_upstream_error(observation: Observation) -> ErrorData | None:
    """Return the JSON-RPC error that a server answered with; None for any other outcome."""
    failure = observation.failure
    if failure is None or failure.code != "upstream_error":
        return None
    details = _unwrap(failure.details)
    code, message = details.get("rpc_code"), details.get("rpc_message")
    if not isinstance(code, int) or not isinstance(message, str):
        return None
    return ErrorData(code=code, message=message, data=details.get("rpc_data"))


def _read_facts(facts: JsonObject) -> JsonObject:
    found = _unwrap(facts).get(FACTS_KEY)
    return cast(JsonObject, found) if isinstance(found, dict) else {}


def _unwrap(facts: JsonObject) -> JsonObject:
    """Return facts that were redacted as a whole as what they are."""
    if facts.keys() == {"redacted"} and isinstance(facts["redacted"], str):
        try:
            found = json.parse(facts["redacted"])
        except json.InvalidJsonError:
            return {}
        return cast(JsonObject, found) if isinstance(found, dict) else {}
    return facts


def _restore_blocks(
    blocks: object, text: str, artifacts: list[ArtifactRef], read_artifact: ReadArtifact, *, is_cut: bool
) -> list[ContentBlock]:
    if not isinstance(blocks, list):
        attached = [_restore_attachment(ref, read_artifact) for ref in artifacts]
        return [*([TextContent(text=text)] if text or not attached else []), *attached]
    restored: list[ContentBlock] = []
    for number, block in enumerate(cast(list[object], blocks)):
        found = _restore_block(block, artifacts, read_artifact)
        if found is not None:
            restored.append(found)
        elif is_cut and not number:
            restored.append(TextContent(text=text))
    if is_cut and not any(isinstance(block, TextContent) for block in restored):
        restored.insert(0, TextContent(text=text))
    return restored


def _restore_block(block: object, artifacts: list[ArtifactRef], read_artifact: ReadArtifact) -> ContentBlock | None:
    if not isinstance(block, dict):
        return None
    document = dict(cast(JsonObject, block))
    try:
        if document.get("type") == "resource":
            document["resource"] = _restore_data(dict(document["resource"]), "blob", artifacts, read_artifact)
        else:
            document = _restore_data(document, "data", artifacts, read_artifact)
        return _block_adapter.validate_python(document)
    except (ValidationError, ArtifactError, OSError, LookupError, TypeError, ValueError):
        return None


def _restore_data(
    document: JsonObject, key: str, artifacts: list[ArtifactRef], read_artifact: ReadArtifact
) -> JsonObject:
    number = document.pop("attachment", None)
    if isinstance(number, int):
        document[key] = base64.b64encode(read_artifact(artifacts[number].id)).decode()
    return document


def _restore_attachment(ref: ArtifactRef, read_artifact: ReadArtifact) -> ContentBlock:
    """Return an attachment of another tool."""
    try:
        content = read_artifact(ref.id)
    except (ArtifactError, OSError):
        return TextContent(text=f"[attachment {ref.id} cannot be read]")
    media_type = detect_media_type(content)
    if media_type.startswith("image/"):
        return ImageContent(data=base64.b64encode(content).decode(), mime_type=media_type)
    return TextContent(text=f"[attachment: {media_type}, {len(content):,} bytes, {ref.id}]")


def _restore_structured(structured: object, text: str) -> Any:
    if isinstance(structured, dict):
        return cast(JsonObject, structured).get("value")
    try:
        value = json.parse(text)
    except json.InvalidJsonError:
        return None
    return {"result": value} if structured == _AS_RESULT else value
