"""Text of a model over broken connections: each piece once, and none of an answer that does not count."""

import json
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from interlock.client import ModelDelta, ModelRestarted, RetryPolicy, StreamItem
from interlock.client.events import RunStream

#: What happens: the model writes a text, begins again, or answers the next request; or the connection breaks.
Step: TypeAlias = str
RESTART, NEXT, BREAK = "<restart>", "<next>", "<break>"
steps = st.lists(st.one_of(st.text("abc ", min_size=1, max_size=5), st.sampled_from([RESTART, NEXT, BREAK])))


class Server:
    """Sends what a server sends, to a reader that may be away."""

    def __init__(self, stream: RunStream) -> None:
        self._stream = stream
        self.text, self._restarts, self._seq = "", 0, 1
        self.items: list[StreamItem] = []

    def write(self, text: str) -> None:
        self._send("model.delta", text=text, offset=len(self.text), restarts=self._restarts)
        self.text += text

    def restart(self, *, is_heard: bool) -> None:
        self.text, self._restarts = "", self._restarts + 1
        if is_heard:
            self._send("model.restarted", reason="broken")

    def begin_next(self) -> None:
        self.text, self._restarts, self._seq = "", 0, self._seq + 1

    def reconnect(self) -> None:
        """Repeat the answer so far."""
        self._stream.connect()
        if self.text:
            self._send("model.delta", text=self.text, offset=0, restarts=self._restarts)

    def _send(self, name: str, **data: object) -> None:
        body = json.dumps({"transient": True, "run_id": "r", "seq": self._seq, "type": name, "data": data})
        self.items += self._stream.feed(f"event: {name}\ndata: {body}\n\n".encode())


def read_last_answer(items: list[StreamItem]) -> str:
    """Return the text as a program puts it together."""
    text, seq = "", -1
    for item in items:
        if isinstance(item, ModelRestarted) or (isinstance(item, ModelDelta) and item.seq != seq):
            text = ""
        if isinstance(item, ModelDelta):
            assert item.offset == len(text)
            text, seq = text + item.text, item.seq
    return text


@given(steps)
def test_text_comes_once_over_broken_connections(done: list[Step]) -> None:
    server = Server(RunStream("r", -1, True, RetryPolicy()))
    for step in done:
        match step:
            case "<break>":
                server.reconnect()
            case "<restart>":
                server.restart(is_heard=True)
            case "<next>":
                server.begin_next()
            case text:
                server.write(text)
    server.reconnect()

    if server.text:
        assert read_last_answer(server.items) == server.text


@given(st.text("abc", min_size=1), st.text("abc", min_size=1))
def test_restart_while_away_is_noticed(first: str, second: str) -> None:
    server = Server(RunStream("r", -1, True, RetryPolicy()))
    server.write(first)
    server.restart(is_heard=False)
    server.text = second
    server.reconnect()

    assert read_last_answer(server.items) == second
    assert [type(item) for item in server.items] == [ModelDelta, ModelRestarted, ModelDelta]
