"""Answer the first requests of a client before the SDK is loaded.

A client that starts the gateway asks who it is and which tools it has, and waits. Loading the SDK takes most of a
second. What the SDK answered is therefore kept, for the same request, versions, settings and accepted definitions. Next
time that answer is sent at once. The SDK gets the request as well, as if nothing had happened; its answer is compared
with what was sent. If it differs, the client is notified that the list of tools changed, and the new answer is kept.

Nothing here decides anything: every call waits for the SDK, the servers and the gate.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ...domain.json import InvalidJsonError, parse

_FILE_VERSION = 1
_MAX_FILE_BYTES = 4 << 20
_MAX_ANSWERS = 32
#: A request that was not answered by then was cancelled.
_MAX_LINES = 256
#: What a client asks first, in both eras of the protocol. The list of tools is the last.
_LIST = "tools/list"
_METHODS = frozenset({"initialize", "server/discover", _LIST})

RequestId: TypeAlias = int | str


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: msgspec.Raw = msgspec.Raw(b"")


class _Response(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: RequestId
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    key: str
    #: Digests of the files that the answer was made from; empty for a file that there was none of.
    files: dict[str, str]
    result: str


class _AnswerFile(msgspec.Struct):
    version: int = _FILE_VERSION
    answers: list[_Answer] = []


class AnswerStore:
    """Answers of earlier starts, in a file. Several processes may write it; what one loses is answered later again."""

    def __init__(self, path: Path, setup: Iterable[str]) -> None:
        """
        Args:
            path: The file. One that cannot be read counts as empty.
            setup: Everything beside files that answers depend on, such as versions and settings.
        """
        self._path = path
        self._setup = _digest("\0".join(setup).encode())
        self._content = self._read()

    def find(self, request: bytes) -> str | None:
        """Return the result of a request, if everything it was made from is unchanged."""
        key = self._make_key(request)
        for answer in self._content.answers:
            if answer.key == key and answer.files == _digest_files(answer.files):
                return answer.result
        return None

    def keep(self, request: bytes, result: str, files: Iterable[str]) -> None:
        """Keep the result of a request that was made from those files."""
        key = self._make_key(request)
        self._content = self._read()
        others = [answer for answer in self._content.answers if answer.key != key]
        self._content.answers = [_Answer(key, _digest_files(files), result), *others][:_MAX_ANSWERS]
        content = msgspec.json.encode(self._content)
        if len(content) > _MAX_FILE_BYTES:
            return
        with suppress(OSError):
            temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            os.replace(temporary, self._path)

    def _make_key(self, request: bytes) -> str:
        return _digest(self._setup.encode() + request)

    def _read(self) -> _AnswerFile:
        try:
            if self._path.stat().st_size > _MAX_FILE_BYTES:
                return _AnswerFile()
            found = msgspec.json.decode(self._path.read_bytes(), type=_AnswerFile)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return _AnswerFile()
        return found if found.version == _FILE_VERSION else _AnswerFile()


class _Asked(msgspec.Struct):
    method: str
    request: bytes
    #: The result that was sent already.
    sent: str | None


class FirstAnswers:
    """The first requests of one client, up to its first list of tools."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store
        self._asked: dict[RequestId, _Asked] = {}
        self._is_listed = False
        self._lines_left = _MAX_LINES
        #: Which files the list of tools is made from; None when it must not be kept. Set by the gateway.
        self.list_sources: Callable[[], Iterable[str] | None] = lambda: None
        #: Called when an answer differs from what was sent. Set by the gateway.
        self.on_difference: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """True when no answer is compared or kept any more."""
        return (self._is_listed and not self._asked) or self._lines_left == 0

    def find(self, line: bytes) -> bytes | None:
        """Take note of a request, and return its answer if that is known."""
        if self._is_listed or self.is_over:
            return None
        try:
            request = msgspec.json.decode(line, type=_Request)
            if request.method not in _METHODS or request.id in self._asked:
                return None
            parse(line)
        except (msgspec.MsgspecError, InvalidJsonError, RecursionError):  # answered where every message is read
            return None
        self._is_listed = request.method == _LIST
        content = request.method.encode() + bytes(request.params)
        asked = _Asked(request.method, content, self._store.find(content))
        self._asked[request.id] = asked
        return None if asked.sent is None else _make_line(request.id, asked.sent)

    def settle(self, line: bytes) -> bool:
        """Compare an answer of the SDK with what was sent, and keep it. Return True if the client has an answer."""
        self._lines_left -= 1
        try:
            answer: Mapping[str, Any] = msgspec.json.decode(line)
            asked = self._asked.pop(answer["id"], None) if "method" not in answer else None
        except (msgspec.MsgspecError, KeyError, TypeError, RecursionError):
            return False
        if asked is None:
            return False
        result = _read_result(line)
        files = self.list_sources() if asked.method == _LIST else ()
        if result is not None and result != asked.sent and files is not None:
            self._store.keep(asked.request, result, files)
        if asked.sent is not None and result != asked.sent:
            self.on_difference()
        return asked.sent is not None


def _read_result(line: bytes) -> str | None:
    """Return the result in an answer that could be made again from it; None for any other, and for an error."""
    try:
        answer = msgspec.json.decode(line, type=_Response)
    except msgspec.MsgspecError:
        return None
    result = bytes(answer.result).decode()
    return result if _make_line(answer.id, result) == line else None


def _make_line(request_id: RequestId, result: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(request_id), result.encode())


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _digest_files(paths: Iterable[str]) -> dict[str, str]:
    return {path: _digest_file(path) for path in paths}


def _digest_file(path: str) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:
        return ""
