"""Conversations in a form that every provider accepts.

What a model wrote stays in the log as it is. Sent back as it is, a broken name or broken arguments would make a
provider refuse every further request of the run. So what is sent is sound: plain ids and names, arguments that are a
JSON object, every call once, and directly after an answer one result for each of its calls, in their order.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from ..domain.json import InvalidJsonError, encode, escape_surrogates, parse
from ..domain.messages import AssistantMessage, LoadedPart, Message, ProposedCall, ToolMessage, UserMessage
from ..domain.rendering import neutralize

#: What stands for arguments that are no JSON object.
UNREADABLE = "unreadable_arguments"
UNNAMED = "unnamed"
NO_RESULT = "There is no result for this call."

_is_valid_id = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_replace_invalid_characters = re.compile(r"[^a-zA-Z0-9_-]").sub


def sanitize_messages(messages: Iterable[Message]) -> list[Message]:
    """Return messages that every provider accepts: calls paired with results, no lone surrogates."""
    sanitized: list[Message] = []
    said: list[Message] = []
    asked: tuple[ProposedCall, ...] = ()
    results: list[ToolMessage] = []
    for message in messages:
        match message:
            case ToolMessage():
                results.append(message)
            case UserMessage():
                said.append(UserMessage(escape_surrogates(message.text), message.parts))
            case AssistantMessage():
                sanitized += [*_pair_results(asked, results), *said]
                asked, results, said = _deduplicate(message.calls), [], []
                text, calls = escape_surrogates(message.text), tuple(map(_sanitize_call, asked))
                sanitized.append(AssistantMessage(text, calls, message.private))
    return [*sanitized, *_pair_results(asked, results), *said]


def format_text_part(part: LoadedPart) -> str:
    """Return a text file as text, with its name."""
    name = neutralize(part.name) or "without a name"
    return f"Attached file {name}:\n{neutralize(part.content.decode(errors='replace'))}"


def _deduplicate(calls: Iterable[ProposedCall]) -> tuple[ProposedCall, ...]:
    first: dict[str, ProposedCall] = {}
    for call in calls:
        first.setdefault(call.call_id, call)
    return tuple(first.values())


def _pair_results(calls: tuple[ProposedCall, ...], results: list[ToolMessage]) -> Iterator[ToolMessage]:
    """Yield one result for each call. A result with an unknown id belongs to a call whose id could not be used."""
    texts: dict[str, list[str]] = {call.call_id: [] for call in calls}
    strangers = iter([result.text for result in results if result.call_id not in texts])
    for result in results:
        if result.call_id in texts and result.text not in texts[result.call_id]:
            texts[result.call_id].append(result.text)
    for call_id, said in texts.items():
        text = "\n\n".join(said) if said else next(strangers, NO_RESULT)
        parts = tuple(part for result in results if result.call_id == call_id for part in result.parts)
        yield ToolMessage(_sanitize_id(call_id), escape_surrogates(text), tuple(dict.fromkeys(parts)))


def _sanitize_call(call: ProposedCall) -> ProposedCall:
    return ProposedCall(
        call_id=_sanitize_id(call.call_id),
        tool=_sanitize_name(call.tool),
        arguments=_sanitize_arguments(call.arguments),
    )


def _sanitize_id(call_id: str) -> str:
    if _is_valid_id(call_id):
        return call_id
    return "call_" + sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:24]


def _sanitize_name(tool: str) -> str:
    return tool if _is_valid_id(tool) else _replace_invalid_characters("_", tool)[:64] or UNNAMED


def _sanitize_arguments(text: str) -> str:
    try:
        if isinstance(parse(text or "{}"), dict):
            return text or "{}"
    except InvalidJsonError:
        pass
    return encode({UNREADABLE: escape_surrogates(text)}).decode()
