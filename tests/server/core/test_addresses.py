"""The server calls what it was meant to call, and nothing on this machine or in its network by accident."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.server.core.addresses import NetworkAccess, Resolver, find_address_problem, resolve_with_system
from interlock.server.core.safe_http import (
    HttpFailure,
    HttpReply,
    HttpTimeouts,
    SafeClient,
    SafeTransport,
    create_ssl_context,
    find_url_problem,
)
from tests.each import each

from .certificates import server_tls
from .receiver import answer, receiving

PLAIN = NetworkAccess(allow_plain=True)
LOOPBACK = NetworkAccess(allow_plain=True, allow_private=True)

#: Names whose owners point them at this machine.
NAMES = {
    "loopback.example": ["127.0.0.1"],
    "loopback6.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "local-nat64.example": ["64:ff9b:1::7f00:1"],
    "6to4.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "compatible.example": ["::7f00:1"],
    "mixed.example": ["93.184.215.14", "127.0.0.1"],
    "mixed6.example": ["2606:4700::1111", "::1"],
    "metadata.example": ["169.254.169.254"],
    "private.example": ["10.0.0.7"],
    "any.example": ["0.0.0.0"],  # noqa: S104 - called, not listened on
    "garbage.example": ["not an address"],
    "nowhere.example": [],
    "xn--bcher-kva.example": ["127.0.0.1"],
}

#: Every one of these must not reach a server that listens on all ports of loopback; PORT is where it listens.
URLS = [
    "http://127.0.0.1:PORT/",
    "http://127.0.0.2:PORT/",
    "http://127.255.255.254:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://0.0.0.0:PORT/",
    "http://0:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://4294967295:PORT/",
    "http://017700000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0177.0.0.01:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.0.0.1:PORT/",
    "http://0x7f.1:PORT/",
    "http://0X7F000001:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.0.0.0x1:PORT/",
    "http://00000177.0.0.1:PORT/",
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[0000::0001]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b:1::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2002:7f00:0001::1]:PORT/",
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:PORT/",
    "http://[fe80::1]:PORT/",
    "http://[fe80::1%25lo]:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[fc00::1]:PORT/",
    "http://[ff02::1]:PORT/",
    "http://user@127.0.0.1:PORT/",
    "http://user:password@127.0.0.1:PORT/",
    "http://example.com@127.0.0.1:PORT/",
    "http://example.com:80@127.0.0.1:PORT/",
    "http://example.com%40127.0.0.1:PORT/",
    "http://127.0.0.1:PORT#@example.com/",
    "http://127.0.0.1:PORT?@example.com/",
    "http://127.0.0.1:PORT\\@example.com/",
    "http://example.com\\@127.0.0.1:PORT/",
    "http://127.0.0.1%00.example.com:PORT/",
    "http://127.0.0.1%09:PORT/",
    "http:// 127.0.0.1:PORT/",
    "http://127.0.0.1\t:PORT/",
    "http://127.0.0.1\r\nHost: evil:PORT/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:PORT/",
    "http://127\u30020\u30020\u30021:PORT/",
    "http://\u2460\u2461\u2466.0.0.1:PORT/",
    "http://[\uff1a\uff1a1]:PORT/",
    "http://b\u00fccher.example:PORT/",
    "http:127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "127.0.0.1:PORT",
    "ftp://127.0.0.1:PORT/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/",
    "unix:///run/docker.sock",
    "http+unix://%2Frun%2Fdocker.sock/",
    "javascript:alert(1)",
    "",
    "http://",
    "http://:PORT/",
    "http://" + "a" * 300 + ":PORT/",
    "http://127.0.0.1:99999999/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/metadata",
    "http://192.168.0.1/",
    "http://172.16.0.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    *[f"http://{name}:PORT/" for name in NAMES],
]


async def by_table(host: str, port: int) -> Sequence[str]:
    """The names above; numbers and `localhost` as this machine resolves them."""
    return NAMES[host] if host in NAMES else await resolve_with_system(host, port)


@each("template", URLS)
async def test_no_way_to_write_an_address_reaches_a_server_on_this_machine(template: str) -> None:
    client = SafeClient(PLAIN, resolve=by_table, timeouts=HttpTimeouts(total_seconds=5.0))
    async with receiving() as canary:
        said = await client.post(template.replace("PORT", str(canary.port)), b"x")

        assert isinstance(said, HttpFailure)
        assert said.is_refused or "cannot be resolved" in said.problem
        assert canary.connections == 0
    await client.close()


@each(
    "url",
    [
        "http://169.254.169.254/",
        "http://metadata.example/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a00:1]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://[fe80::1]/",
        "http://224.0.0.1/",
        "http://0.0.0.0/",
        "http://any.example/",
        "http://[2002:a00:1::]/",
        "http://240.0.0.1/",
    ],
)
async def test_what_no_configuration_opens_is_refused_even_where_private_networks_are_allowed(url: str) -> None:
    client = SafeClient(LOOPBACK, resolve=by_table)

    said = await client.get(url)

    assert isinstance(said, HttpFailure)
    assert said.is_refused
    assert "Nothing was sent" in said.problem
    await client.close()


@each(
    "address",
    [
        "8.8.8.8",
        "93.184.215.14",
        "172.32.0.1",
        "100.128.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2606:4700::1111",
        "2a00::1",
    ],
)
def test_public_addresses_may_be_called(address: str) -> None:
    assert find_address_problem(ip_address(address), NetworkAccess()) == ""


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_an_address_that_python_calls_private_is_never_public_here(address: IPv4Address | IPv6Address) -> None:
    """Python's own table has holes that depend on its version, but what it does list is listed here, too."""
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address in IPv6Network("64:ff9b::/96")):
        return  # judged by what it carries: the next test
    listed = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    if listed or address.is_reserved or address.is_unspecified:
        assert find_address_problem(address, NetworkAccess())


@given(st.ip_addresses(v=4))
def test_an_address_that_carries_another_is_never_better_than_it(address: IPv4Address) -> None:
    bare = find_address_problem(address, NetworkAccess())
    for carrier in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert bool(find_address_problem(ip_address(carrier), NetworkAccess())) == bool(bare)


async def test_a_name_is_resolved_once_and_called_at_the_address_that_was_checked() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with receiving() as meant, receiving(host="127.0.0.2", port=meant.port) as other:
        client = SafeClient(LOOPBACK, resolve=rebinding)
        said = await client.post(f"http://siem.example:{meant.port}/in", b"x")
        await client.close()

        assert isinstance(said, HttpReply)
        assert (meant.connections, other.connections) == (1, 0)
        assert meant.requests[0].headers["host"] == f"siem.example:{meant.port}"
    assert answers == [["127.0.0.2"]]


async def test_a_name_with_several_addresses_is_called_at_the_first_that_answers() -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.3", "127.0.0.1"]

    async with receiving() as receiver:
        client = SafeClient(LOOPBACK, resolve=two)
        assert isinstance(await client.post(f"http://siem.example:{receiver.port}/", b"x"), HttpReply)
        assert len(receiver.requests) == 1
        await client.close()


async def test_redirects_and_proxies_of_the_environment_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as canary:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        async with receiving(answer(307, location=f"http://127.0.0.1:{canary.port}/")) as receiver:
            client = SafeClient(LOOPBACK)
            said = await client.post(f"http://127.0.0.1:{receiver.port}/", b"x")
            await client.close()

        assert isinstance(said, HttpReply)
        assert said.status == 307
        assert canary.connections == 0


async def test_a_certificate_must_be_for_the_name_and_of_an_authority_that_is_trusted(tmp_path: Path) -> None:
    tls, ca_file = server_tls(tmp_path, "siem.example")

    async def here(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def post(name: str, ca: str, resolve: Resolver = here) -> HttpReply | HttpFailure:
        client = SafeClient(NetworkAccess(allow_private=True), ca_file=ca, resolve=resolve)
        said = await client.post(f"https://{name}:{receiver.port}/", b"x")
        await client.close()
        return said

    async with receiving(tls=tls) as receiver:
        assert isinstance(await post("siem.example", ca_file), HttpReply)
        assert isinstance(await post("other.example", ca_file), HttpFailure)
        assert isinstance(await post("siem.example", ""), HttpFailure)
        assert len(receiver.requests) == 1


async def test_an_answer_that_is_too_long_too_slow_or_nonsense_is_no_answer() -> None:
    async def never(_: object) -> bytes:
        await receiver.wait_for(lambda: len(receiver.requests) > 2)
        return b""

    async with receiving(answer(200, b"x" * 5000), b"no HTTP at all\r\n\r\n", never) as receiver:
        client = SafeClient(LOOPBACK, max_reply_bytes=4096, timeouts=HttpTimeouts(total_seconds=0.2))
        url = f"http://127.0.0.1:{receiver.port}/"
        too_long, nonsense, too_slow = [await client.post(url, b"x") for _ in range(3)]
        patient = SafeClient(LOOPBACK)
        assert isinstance(await patient.get(url), HttpReply)
        await client.close()
        await patient.close()

    assert isinstance(too_long, HttpFailure)
    assert "longer than 4096 bytes" in too_long.problem
    assert isinstance(nonsense, HttpFailure)
    assert isinstance(too_slow, HttpFailure)


async def test_a_library_with_a_client_of_its_own_is_held_to_the_same_checks() -> None:
    async with receiving() as canary, httpx2.AsyncClient(transport=SafeTransport(PLAIN), trust_env=False) as client:
        with pytest.raises(httpx2.RequestError, match="loopback"):
            await client.get(f"http://127.0.0.1:{canary.port}/")
        assert canary.connections == 0


@each(
    ("url", "words"),
    [
        ("http://siem.example/", "allow_plain"),
        ("https://user:secret@siem.example/", "user or a password"),
        ("https://2130706433/", "number"),
        ("https:///x", "no host"),
        ("https://siem.example:65536/", "port"),
        ("https://siem.example:0/", "port"),
        ("https://siem.example/" + "x" * 9000, "too long"),
        ("ssh://siem.example/", "https://"),
    ],
)
def test_a_url_that_cannot_work_is_named_before_it_is_called(url: str, words: str) -> None:
    assert words in find_url_problem(url, NetworkAccess())


def test_a_file_without_certificates_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        create_ssl_context(str(tmp_path / "ca.pem"))
