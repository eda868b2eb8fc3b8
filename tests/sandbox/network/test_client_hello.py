"""The name in a ClientHello is read from real ones, however they are cut, and from nothing else."""

import random
import ssl

import pytest

from interlock.sandbox.network.client_hello import ClientHello, MalformedHelloError, parse_client_hello


def client_hello(server_name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def in_records(message: bytes, size: int) -> bytes:
    parts = (message[at : at + size] for at in range(0, len(message), size))
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


@pytest.mark.parametrize("name", ["example.com", None])
def test_name_is_read_in_one_or_many_records(name: str | None) -> None:
    hello = client_hello(name)

    assert parse_client_hello(hello) == ClientHello(name or "")
    for size in (1, 3, 50):
        assert parse_client_hello(in_records(hello[5:], size)) == ClientHello(name or "")


def test_incomplete_hello_waits_for_more() -> None:
    hello = client_hello("example.com")

    assert all(parse_client_hello(hello[:size]) is None for size in range(len(hello)))


def with_extensions(*extensions: bytes) -> bytes:
    listed = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + len(listed).to_bytes(2) + listed
    return in_records(b"\x01" + len(body).to_bytes(3) + body, 16_000)


def named(*names: bytes) -> bytes:
    listed = b"".join(b"\0" + len(name).to_bytes(2) + name for name in names)
    return b"\0\0" + (len(listed) + 2).to_bytes(2) + len(listed).to_bytes(2) + listed


def test_encrypted_hello_is_recognized() -> None:
    assert parse_client_hello(with_extensions(named(b"a.com"), b"\xfe\x0d\0\x01x")) == ClientHello("a.com", True)


@pytest.mark.parametrize(
    "extensions", [[named(b"a.com", b"b.com")], [named(b"a.com"), named(b"b.com")], [b"\0\0\0\x09x"]]
)
def test_ambiguous_and_broken_names_are_refused(extensions: list[bytes]) -> None:
    with pytest.raises(MalformedHelloError):
        parse_client_hello(with_extensions(*extensions))


def test_noise_is_refused_or_waits() -> None:
    hello, chance = client_hello("example.com"), random.Random(7)
    for _ in range(2_000):
        noisy = bytearray(hello)
        noisy[chance.randrange(len(noisy))] = chance.randrange(256)
        try:
            parse_client_hello(bytes(noisy))
        except MalformedHelloError:
            continue
