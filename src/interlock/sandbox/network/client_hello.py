"""The server name in a TLS ClientHello (RFC 8446, RFC 6066), read without answering it."""

import msgspec

#: A ClientHello may be spread over several records; no client sends one as long as this.
MAX_HELLO_BYTES = 64 * 1024
_HANDSHAKE_RECORD, _CLIENT_HELLO = 22, 1
_RECORD_HEADER_BYTES, _MAX_RECORD_BYTES = 5, 16_384
_RANDOM_AND_VERSION_BYTES = 34
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


class MalformedHelloError(Exception):
    """These bytes are no ClientHello."""


class ClientHello(msgspec.Struct, frozen=True):
    """What a client says about the server that it wants."""

    #: Empty: it names none.
    server_name: str = ""
    #: It hides another name in an encrypted part.
    is_encrypted: bool = False


def is_tls(data: bytes) -> bool:
    """Return True if these first bytes begin a TLS handshake."""
    return data[:1] == bytes([_HANDSHAKE_RECORD])


def parse_client_hello(data: bytes) -> ClientHello | None:
    """Parse the first bytes of a connection; None when there must be more of them. Raise `MalformedHelloError`."""
    message = b""
    while True:
        if len(data) < _RECORD_HEADER_BYTES:
            return None
        size = int.from_bytes(data[3:5])
        if data[0] != _HANDSHAKE_RECORD or data[1] != 3 or not 0 < size <= _MAX_RECORD_BYTES:  # noqa: PLR2004
            raise MalformedHelloError
        if len(data) < _RECORD_HEADER_BYTES + size:
            return None
        message += data[_RECORD_HEADER_BYTES : _RECORD_HEADER_BYTES + size]
        data = data[_RECORD_HEADER_BYTES + size :]
        if message[0] != _CLIENT_HELLO:
            raise MalformedHelloError
        length = int.from_bytes(message[1:4])
        if length > MAX_HELLO_BYTES:
            raise MalformedHelloError
        if len(message) >= 4 and len(message) >= 4 + length:  # noqa: PLR2004
            return _parse_message(_Fields(message[4 : 4 + length]))


class _Fields:
    """Reads the fields of a message one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, size: int) -> bytes:
        if len(self._data) < size:
            raise MalformedHelloError
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def take_number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def take_rest(self) -> bytes:
        return self.take(len(self._data))

    def take_vector(self, length_bytes: int) -> "_Fields":
        return _Fields(self.take(self.take_number(length_bytes)))


def _parse_message(fields: _Fields) -> ClientHello:
    fields.take(_RANDOM_AND_VERSION_BYTES)
    for length_bytes in (1, 2, 1):  # session, ciphers, compression
        fields.take_vector(length_bytes)
    extensions = fields.take_vector(2) if fields else fields
    names: list[str] = []
    is_encrypted = False
    while extensions:
        kind, content = extensions.take_number(2), extensions.take_vector(2)
        is_encrypted |= kind == _ENCRYPTED_HELLO
        if kind == _SERVER_NAME:
            listed = content.take_vector(2)
            while listed:
                listed.take(1)
                names.append(listed.take_vector(2).take_rest().decode("ascii", "replace"))
    # Servers differ in which of several they take.
    if len(names) > 1:
        raise MalformedHelloError
    return ClientHello(names[0] if names else "", is_encrypted)
