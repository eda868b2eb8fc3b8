"""A conversation as every provider accepts it.

What a model wrote stays in the log as it is. Sent back as it is, a broken name or broken arguments would make a
provider refuse every further request of the run. So what is sent is sound: plain ids and names, arguments that are a
JSON object, every call once, and directly after an answer one result for each of its calls, in their order.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from ..domain.json import BadJson, encode, parse, without_surrogates
from ..domain.messages import AssistantMessage, Message, ProposedCall, ToolMessage, UserMessage

#: What stands for arguments that are no JSON object.
UNREADABLE = "unreadable_arguments"
UNNAMED = "unnamed"
NO_RESULT = "There is no result for this call."

_is_sound = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_unsound_characters = re.compile(r"[^a-zA-Z0-9_-]").sub


def tidy(messages: Iterable[Message]) -> list[Message]:
    tidied: list[Message] = []
    said: list[Message] = []
    asked: tuple[ProposedCall, ...] = ()
    results: list[ToolMessage] = []
    for message in messages:
        match message:
            case ToolMessage():
                results.append(message)
            case UserMessage():
                said.append(UserMessage(without_surrogates(message.text)))
            case AssistantMessage():
                tidied += [*_answered(asked, results), *said]
                asked, results, said = _once(message.calls), [], []
                text, calls = without_surrogates(message.text), tuple(map(_sound, asked))
                tidied.append(AssistantMessage(text, calls, message.private))
    return [*tidied, *_answered(asked, results), *said]


def _once(calls: Iterable[ProposedCall]) -> tuple[ProposedCall, ...]:
    first: dict[str, ProposedCall] = {}
    for call in calls:
        first.setdefault(call.call_id, call)
    return tuple(first.values())


def _answered(calls: tuple[ProposedCall, ...], results: list[ToolMessage]) -> Iterator[ToolMessage]:
    """One result for each call. A result that names none of them belongs to a call whose id could not be used."""
    texts: dict[str, list[str]] = {call.call_id: [] for call in calls}
    strangers = iter([result.text for result in results if result.call_id not in texts])
    for result in results:
        if result.call_id in texts and result.text not in texts[result.call_id]:
            texts[result.call_id].append(result.text)
    for call_id, told in texts.items():
        text = "\n\n".join(told) if told else next(strangers, NO_RESULT)
        yield ToolMessage(_sound_id(call_id), without_surrogates(text))


def _sound(call: ProposedCall) -> ProposedCall:
    return ProposedCall(
        call_id=_sound_id(call.call_id), tool=_sound_name(call.tool), arguments=_sound_arguments(call.arguments)
    )


def _sound_id(call_id: str) -> str:
    if _is_sound(call_id):
        return call_id
    return "call_" + sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:24]


def _sound_name(tool: str) -> str:
    return tool if _is_sound(tool) else _unsound_characters("_", tool)[:64] or UNNAMED


def _sound_arguments(text: str) -> str:
    try:
        if isinstance(parse(text or "{}"), dict):
            return text or "{}"
    except BadJson:
        pass
    return encode({UNREADABLE: without_surrogates(text)}).decode()
