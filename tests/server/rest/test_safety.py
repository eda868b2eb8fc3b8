"""What a request passes before any route sees it: Host, Origin, credentials, sizes, depth, time, pace."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from interlock.server.rest import body
from interlock.server.rest.errors import ApiError
from interlock.server.rest.limits import MAX_BUCKETS, RateLimiter
from interlock.server.rest.security import SECURITY_HEADERS, AllowedHosts
from tests.patience import HANG_SECONDS
from tests.server.server_process import LOOKUP, NOTE, Running, running_server

MIB = 1 << 20


async def raw(server: Running, request: bytes) -> bytes:
    """What the server answers to exactly these bytes."""
    reader, writer = await asyncio.open_connection(*_address(server))
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(65_536), HANG_SECONDS)
    finally:
        writer.close()
        await writer.wait_closed()


def _address(server: Running) -> tuple[str, int]:
    host, port = server.base.removeprefix("http://").split(":")
    return host, int(port)


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "details"}
    return answer.status_code, error["code"]


def sized(length: int) -> bytes:
    """A body for `POST /v1/runs` of exactly so many bytes."""
    around = len(json.dumps({"agent": "shop", "task": ""}))
    return json.dumps({"agent": "shop", "task": "x" * (length - around)}).encode()


JSON = {"Content-Type": "application/json"}


async def test_a_request_for_another_host_is_not_answered(server: Running) -> None:
    foreign = [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::1].evil",
        "",
        "0",
    ]
    foreign += [
        "127.0.0.1@evil.example",
        "localhost:80:80",
        "127.0.0.2",
        "%6cocalhost",
        "localhost/",
        "http://localhost",
    ]
    client = await server.client("operator")
    for host in foreign:
        answer = await client.get("/v1/runs", headers={"Host": host})
        assert answer.status_code in (400, 421), host
    assert (await client.get("/v1/runs", headers={"Host": "localhost"})).status_code == 200
    none = await raw(server, b"GET /health/live HTTP/1.0\r\n\r\n")
    two = await raw(server, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert none.split(b"\r\n")[0].split(b" ")[1] == two.split(b"\r\n")[0].split(b" ")[1] == b"400"


async def test_a_page_of_another_site_changes_nothing_even_with_a_sign_in(server: Running) -> None:
    olga = await server.person("olga")
    wish = {"agent": "shop", "task": LOOKUP}
    own = {"Origin": server.base, "Sec-Fetch-Site": "same-origin"}
    foreign: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": f"{server.base}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        own | {"Sec-Fetch-Site": "cross-site"},
    ]
    for headers in foreign:
        assert code_of(await olga.post("/v1/runs", json=wish, headers=headers)) == (403, "foreign_origin"), headers
    assert (await olga.get("/v1/runs")).json()["runs"] == []
    assert (await olga.post("/v1/runs", json=wish, headers=own)).status_code == 201


async def test_a_sign_in_needs_its_token_for_changes_and_a_key_does_not(server: Running) -> None:
    olga = await server.person("olga")
    wish = {"agent": "shop", "task": LOOKUP}
    token = olga.headers.pop("X-CSRF-Token")
    for given_token in ("", "x", token[:-1], token.upper() + "0"):
        answer = await olga.post("/v1/runs", json=wish, headers={"X-CSRF-Token": given_token})
        assert code_of(answer) == (403, "csrf")
    assert (await olga.get("/v1/runs")).status_code == 200
    assert (await olga.post("/v1/runs", json=wish, headers={"X-CSRF-Token": token})).status_code == 201
    assert (await (await server.client("agent")).post("/v1/runs", json=wish)).status_code == 201


async def test_the_cookie_of_a_sign_in_is_for_this_server_only_and_no_script_reads_it(server: Running) -> None:
    olga = await server.person("olga")
    await olga.delete("/v1/session")
    answer = await olga.post("/v1/session", json={"name": "olga", "password": "correct horse battery"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "domain" not in cookie


async def test_wrong_credentials_are_all_the_same(server: Running) -> None:
    client = await server.client()
    key = await server.key("operator")
    wrong = [
        "",
        "Bearer",
        f"Bearer {key[:-1]}",
        f"Basic {key}",
        f"Bearer {key}x",
        "Bearer " + "x" * 10_000,
        key,
    ]
    for value in wrong:
        answer = await client.get("/v1/runs", headers={"Authorization": value})
        assert code_of(answer) == (401, "no_credentials"), value[:20]
        assert answer.headers["www-authenticate"] == "Bearer"
    named = f"Authorization: Bearer {key}\r\n"
    twice = f"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n{named}{named}\r\n"
    assert b" 401 " in (await raw(server, twice.encode())).split(b"\r\n")[0]


async def test_a_revoked_key_opens_nothing_from_that_moment(server: Running) -> None:
    admin, operator = await server.client("admin_all"), await server.client("operator")
    assert (await operator.get("/v1/runs")).status_code == 200
    keys = (await admin.get("/v1/keys")).json()["keys"]
    (key_id,) = [key["key_id"] for key in keys if key["name"] == "operator"]
    assert (await admin.delete(f"/v1/keys/{key_id}")).status_code == 200
    assert (await operator.get("/v1/runs")).status_code == 401


async def test_a_body_may_have_one_mebibyte_and_no_byte_more(server: Running) -> None:
    client = await server.client("agent")
    at_limit = await client.post("/v1/runs", content=sized(MIB), headers=JSON)
    assert at_limit.status_code == 422  # the task itself is too long, so it was read
    for length in (MIB + 1, 100 * MIB):
        head = f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {await server.key('agent')}\r\n"
        said = f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        assert b" 413 " in (await raw(server, said.encode())).split(b"\r\n")[0]

    async def chunks(count: int) -> AsyncGenerator[bytes]:
        for _ in range(count):
            yield b" " * 65_536

    assert code_of(await client.post("/v1/runs", content=chunks(17), headers=JSON)) == (413, "body_too_large")
    assert (await client.get("/v1/runs")).json()["runs"] == []


async def test_a_body_that_does_not_come_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_SECONDS", 0.05)
    head = f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {await server.key('agent')}\r\n"
    slow = f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    answer = await raw(server, slow.encode())
    assert b" 408 " in answer.split(b"\r\n")[0]
    assert b"Nothing was done" in answer


IMPOSSIBLE: list[tuple[bytes, str]] = [
    (b'{"agent": "shop", "task": "x", "task": "y"}', "body"),
    (b'{"agent": "shop", "task": NaN}', "body"),
    (b'{"agent": "shop", "task": ' + b"[" * 65 + b"]" * 65 + b"}", "body"),
    (b'{"agent": "shop", "task": ' + b"[" * 50_000, "body"),
    (b'{"agent": "shop", "task": "\\ud800"}', "body"),
    (b'{"agent": "shop", "task": 123456789012345678901234567890}', "body"),
    (b"\xff\xfe", "body"),
    (b"[]", "body"),
    (b"null", "body"),
    (b"{}", "task"),
    (b'{"agent": "shop", "task": "x", "more": 1}', "more"),
    (b'{"agent": "shop", "task": 1}', "task"),
    (b'{"agent": "shop", "task": ""}', "task"),
    (b'{"agent": "shop", "task": "x", "on_behalf_of": "no such; name"}', "on_behalf_of"),
]


async def test_what_cannot_be_a_run_is_refused_and_names_the_field(server: Running) -> None:
    client = await server.client("agent")
    for content, field in IMPOSSIBLE:
        answer = await client.post("/v1/runs", content=content, headers=JSON)
        assert code_of(answer) == (422, "invalid_request"), content[:80]
        assert field in [problem["field"] for problem in answer.json()["error"]["details"]["fields"]], content[:80]
    assert (await client.get("/v1/runs")).json()["runs"] == []


async def test_only_json_is_taken_for_json(server: Running) -> None:
    client = await server.client("agent")
    content = json.dumps({"agent": "shop", "task": LOOKUP}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"):
        answer = await client.post("/v1/runs", content=content, headers={"Content-Type": kind})
        assert code_of(answer) == (415, "not_json")
    charset = {"Content-Type": "application/json; charset=utf-8"}
    assert (await client.post("/v1/runs", content=content, headers=charset)).status_code == 201


async def test_filters_are_values_and_never_sql(server: Running) -> None:
    client = await server.client("operator_all")
    run_id = await server.begin(NOTE)
    await server.status(run_id, "PAUSED_APPROVAL")
    for value in (
        "' OR '1'='1",
        '" OR 1=1 --',
        "shop'; DROP TABLE runs; --",
        "%",
        "_",
        "\x00",
        "*",
        "\ud800".encode("utf-8", "replace").decode(),
    ):
        for name in ("agent", "requester", "q", "parent"):
            answer = await client.get("/v1/runs", params={name: value})
            assert answer.status_code in (200, 422), (name, value)
            assert answer.status_code == 422 or answer.json()["runs"] == [] or value in ("%", "_", "*"), (name, value)
    for name in ("agent = 'shop' OR 1", "status; DROP TABLE runs", "agents", "person"):
        answer = await client.get("/v1/runs", params={name: "x"})
        assert code_of(answer) == (422, "invalid_request")
    assert len((await client.get("/v1/runs")).json()["runs"]) == 1
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=zzz", "status=running", "status=DONE"):
        answer = await client.get(f"/v1/runs?{query}")
        assert code_of(answer) == (422, "invalid_request")
        assert answer.json()["error"]["details"]["fields"][0]["field"].startswith(query.split("=")[0])


async def test_every_answer_has_the_headers_that_keep_browsers_from_harm(server: Running) -> None:
    client = await server.client("operator")
    for path in ("/v1/runs", "/nothing", "/health/live", "/openapi.json", "/v1/runs/none", "/v1/runs?limit=0"):
        answer = await client.get(path)
        assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS), path
        assert len(answer.headers["x-request-id"]) == 16


async def test_what_is_not_there_and_what_is_not_for_a_method_say_so_in_the_same_shape(server: Running) -> None:
    client = await server.client("operator")
    assert code_of(await client.get("/nothing")) == (404, "unknown_path")
    assert code_of(await client.put("/v1/runs")) == (405, "wrong_method")
    assert code_of(await client.get("/v1/runs/")) == (404, "unknown_path")
    assert code_of(await client.get("/v1/runs/run_none")) == (404, "unknown_run")
    assert code_of(await client.get("/v1/approvals/act_none")) == (404, "unknown_action")


async def test_near_names_are_suggested_if_visible(server: Running) -> None:
    run_id = await server.begin("Hello.")
    mistyped = run_id[:-1] + ("1" if run_id.endswith("0") else "0")

    async def message(key: str, method: str, path: str, **body: str) -> str:
        client = await server.client(key)
        answer = await client.request(method, path, json=body or None)
        return answer.json()["error"]["message"]

    assert (await message("operator", "GET", f"/v1/runs/{mistyped}")).endswith(f"Did you mean `{run_id}`?")
    assert (await message("operator", "GET", f"/v1/runs/{run_id[:12]}")).endswith(f"Did you mean `{run_id}`?")
    assert "Did you mean" not in await message("agent_other", "GET", f"/v1/runs/{mistyped}")
    unknown_agent = await message("operator_all", "POST", "/v1/runs", agent="shpo", task="Hello.")
    assert unknown_agent.endswith("Did you mean `shop`?")


async def test_a_mistake_of_the_server_says_nothing_of_its_inside(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("the password is 12345")

    monkeypatch.setattr(server.service.run_queries, "get_run", broken)
    answer = await (await server.client("operator")).get("/v1/runs/run_1")

    assert code_of(answer) == (500, "unexpected")
    assert "12345" not in answer.text
    assert answer.json()["error"]["details"]["id"] == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] in caplog.text


async def test_whoever_asks_too_fast_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with running_server(tmp_path, requests_per_second=1, request_burst=5) as server:
        client, other = await server.client("operator"), await server.client("auditor")
        codes = [(await client.get("/v1/me")).status_code for _ in range(7)]
        assert (codes[:5], codes[-1]) == ([200] * 5, 429)
        assert int((await client.get("/v1/me")).headers["retry-after"]) >= 1
        assert (await other.get("/v1/me")).status_code == 200
        nobody = await server.client()
        assert [(await nobody.get("/v1/me")).status_code for _ in range(7)][-1] == 429


async def test_guessing_passwords_is_slowed_down(server: Running) -> None:
    await server.person("olga")
    client = await server.client()
    codes = [(await client.post("/v1/session", json={"name": "olga", "password": "no"})).status_code for _ in range(7)]
    assert (codes[0], codes[-1]) == (401, 429)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3)), max_size=60))
def test_nobody_ever_gets_more_than_the_burst_and_the_pace(asked: list[tuple[str, float]]) -> None:
    clock = [0.0]
    rates = RateLimiter(2.0, 3, now=lambda: clock[0])
    taken: dict[str, list[float]] = {}
    for name, wait in asked:
        clock[0] += wait
        with suppress(ApiError):
            rates.acquire(name)
            taken.setdefault(name, []).append(clock[0])
    for times in taken.values():
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= 3 + 2.0 * (times[last] - start) + 1e-6


def test_the_table_of_paces_does_not_grow_beyond_its_bound() -> None:
    rates = RateLimiter(1.0, 1)
    for number in range(MAX_BUCKETS + 10):
        rates.acquire(str(number))
    assert len(rates) == MAX_BUCKETS


@given(
    st.one_of(
        st.text(st.characters(codec="latin-1"), max_size=40), st.from_regex(r"[a-z0-9.\[\]:@%-]{0,40}", fullmatch=True)
    )
)
def test_no_other_name_is_taken_for_ones_own(host: str) -> None:
    hosts = AllowedHosts(
        ("localhost:8321", "127.0.0.1:8321", "[::1]:8321", "interlock.example"), "http://localhost:8321"
    )
    with suppress(ApiError):
        hosts.check(Headers(raw=[(b"host", host.encode("latin-1"))]))
        assert is_one(host.lower())


def is_one(name: str) -> bool:
    own = {"localhost:8321", "127.0.0.1:8321", "[::1]:8321", "interlock.example"}
    return name in own or name.startswith("interlock.example:")


async def test_who_comes_back_from_a_provider_is_led_on_by_a_page_that_repeats_nothing_harmful(server: Running) -> None:
    client = await server.client()
    hostile = {"state": '"><script>alert(1)</script>', "code": "x' onload='", "next": "https://evil.example"}
    page = await client.get("/consents/callback", params=hostile)

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in page.text
    assert "evil.example" not in page.text
    assert "url=/consents/callback?state=" in page.text
    again = await client.get("/consents/callback", params=hostile | {"arrived": "1"})
    assert (again.status_code, again.headers["location"]) == (303, "/console/consents")
