"""Tool calls as a stream brings them: in pieces that say by index, by id, or not at all where they belong.

Nothing is judged here. A call without a name or with broken arguments is passed on, so that the runtime refuses it in
words and the model learns. Only two things are mended: a call needs an id that no earlier answer used, because the
runtime takes a call that it has seen before for the same one; and a call that was cut before its first argument must
not look like a call without arguments.

The same id twice in one answer is passed on, too: the runtime executes such a call once.
"""

from collections.abc import Iterable

from ..domain.errors import ModelError
from ..domain.ids import is_valid_name
from ..domain.messages import AssistantMessage, Message, ProposedCall
from .text import join_surrogates

MAX_CALLS = 256
MAX_ARGUMENTS_BYTES = 256 << 10
MAX_NAME_CHARS = 4096
#: What a call has for arguments when it was cut before the first of them: not JSON, so it is refused.
TRUNCATED_ARGUMENTS = "{"


class _PartialCall:
    __slots__ = ("arguments", "call_id", "size_bytes", "tool")

    def __init__(self) -> None:
        self.call_id = ""
        self.tool = ""
        self.arguments: list[str] = []
        self.size_bytes = 0


class CallAssembler:
    """The calls of one answer, in the order in which the model began them."""

    def __init__(self, earlier: Iterable[Message] = ()) -> None:
        self._earlier = {
            call.call_id for message in earlier if isinstance(message, AssistantMessage) for call in message.calls
        }
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_delta(self, index: int | None, call_id: str = "", tool: str = "", arguments: str = "") -> None:
        call = self._find(index, call_id)
        call.call_id = call.call_id or call_id
        # Some servers repeat the name in every piece, others spread it over several.
        if tool and tool != call.tool:
            call.tool += tool
        if arguments:
            call.arguments.append(arguments)
            call.size_bytes += len(arguments.encode(errors="surrogatepass"))
        self._check_size(call)

    def _find(self, index: int | None, call_id: str) -> _PartialCall:
        if index is not None:
            found = self._by_index.get(index)
        elif call_id:
            found = next((call for call in self._calls if call.call_id == call_id), None)
        else:
            found = self._calls[-1] if self._calls else None
        # Some servers give every call the index 0: then only the id tells a new one.
        if found is None or (call_id and found.call_id and found.call_id != call_id):
            found = self._begin(index)
        return found

    def _begin(self, index: int | None) -> _PartialCall:
        if len(self._calls) == MAX_CALLS:
            raise ModelError(f"The model wrote more than {MAX_CALLS} calls in one answer. Nothing was executed.")
        begun = _PartialCall()
        self._calls.append(begun)
        if index is not None:
            self._by_index[index] = begun
        return begun

    def _check_size(self, call: _PartialCall) -> None:
        if call.size_bytes > MAX_ARGUMENTS_BYTES:
            raise ModelError(
                f"The model wrote more than {MAX_ARGUMENTS_BYTES} bytes of arguments for one call. "
                "Nothing was executed."
            )
        if len(call.tool) > MAX_NAME_CHARS or len(call.call_id) > MAX_NAME_CHARS:
            raise ModelError(f"The model wrote a name of more than {MAX_NAME_CHARS} characters. Nothing was executed.")

    def finish(self, *, cut: bool = False) -> tuple[ProposedCall, ...]:
        """All of them, at the end of the answer. `cut`: it ended because it became too long."""
        ids = self._assign_ids()
        empty = TRUNCATED_ARGUMENTS if cut else "{}"
        return tuple(
            ProposedCall(
                call_id=call_id,
                tool=join_surrogates(call.tool),
                arguments=join_surrogates("".join(call.arguments)) or empty,
            )
            for call, call_id in zip(self._calls, ids, strict=True)
        )

    def _assign_ids(self) -> list[str]:
        """Their own where they can be used. The same new one for the same old one."""
        taken = self._earlier | {call.call_id for call in self._calls}
        renamed: dict[str, str] = {}
        ids: list[str] = []
        for call in self._calls:
            if is_valid_name(call.call_id) and call.call_id not in self._earlier:
                ids.append(call.call_id)
                continue
            fresh = renamed.get(call.call_id) or _new_call_id(taken)
            taken.add(fresh)
            if call.call_id:
                renamed[call.call_id] = fresh
            ids.append(fresh)
        return ids


def _new_call_id(taken: set[str]) -> str:
    number = 1
    while f"call_{number}" in taken:
        number += 1
    return f"call_{number}"
