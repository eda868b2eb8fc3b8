"""When the client sends a request again, and what it makes of answers that no server would give."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx2
import pytest

from interlock.client import (
    ApiError,
    Client,
    ConnectionFailedError,
    RateLimitedError,
    RetryPolicy,
    ServerUnavailableError,
    UnexpectedResponseError,
)
from interlock.client import models as ours
from tests.patience import HANG_SECONDS

RUN = {
    **dict.fromkeys(("agent", "requester", "created_by", "parent_run_id", "framework", "task", "message"), ""),
    **{"run_id": "run_1", "status": "RUNNING", "state": "running", "kind": "run", "last_seq": 1},
    **{"degraded": False, "cancelled": False, "damaged": False, "pending_approvals": 0, "new_field": 7},
    **{"created_at": "2030-01-31T12:00:00Z", "updated_at": "2030-01-31T12:00:00Z"},
}
FAST = RetryPolicy(base_seconds=0, max_seconds=0)


def respond(status: int, code: str = "busy") -> httpx2.Response:
    body: dict[str, Any] = {"error": {"code": code, "message": "Not now.", "details": {}}}
    return httpx2.Response(status, json=body, headers={"Retry-After": "9999"})


def answering(*answers: httpx2.Response | Exception, policy: RetryPolicy = FAST) -> tuple[Client, list[httpx2.Request]]:
    """Return a client of a server with these answers, in order, and the requests that it gets."""
    left, got = list(answers), list[httpx2.Request]()

    def handle(request: httpx2.Request) -> httpx2.Response:
        got.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Client("http://test/base/", "ik_secret", retry=policy, transport=httpx2.MockTransport(handle)), got


def test_start_is_repeated_with_the_same_key() -> None:
    client, got = answering(httpx2.ReadTimeout("late"), respond(503), httpx2.Response(201, json=RUN))

    assert client.start_run("shop", "Go.").run_id == "run_1"
    assert len({request.headers["Idempotency-Key"] for request in got}) == 1
    assert [str(request.url) for request in got] == ["http://test/base/v1/runs"] * 3
    assert client.get_run.__doc__


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimitedError), (503, ServerUnavailableError)])
def test_attempts_are_bounded(status: int, kind: type[ApiError]) -> None:
    client, got = answering(*[respond(status)] * 3)
    with pytest.raises(kind, match=r"Not now\. \(HTTP \d+, busy\)"):
        client.get_run("run_1")
    assert len(got) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 418, 422, 500])
def test_final_answers_are_not_repeated(status: int) -> None:
    client, got = answering(respond(status))
    with pytest.raises(ApiError) as caught:
        client.get_run("run_1")
    assert (len(got), caught.value.status, caught.value.code) == (1, status, "busy")


def test_lost_connection_is_an_error_without_the_key() -> None:
    client, got = answering(*[httpx2.ConnectError("refused")] * 3)
    with pytest.raises(ConnectionFailedError, match="no answer") as caught:
        client.cancel_run("run_1")
    assert len(got) == 3
    assert "ik_secret" not in str(caught.value)


def test_redirect_is_not_followed() -> None:
    """The key would go to another host."""
    client, got = answering(httpx2.Response(302, headers={"Location": "https://elsewhere.test/"}))
    with pytest.raises(ApiError) as caught:
        client.get_run("run_1")
    assert (len(got), caught.value.code) == (1, "http_302")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b'{"run_id": 7}', b"[" * 100_000])
def test_answers_of_another_program_are_refused(body: bytes) -> None:
    client, _ = answering(httpx2.Response(200, content=body))
    with pytest.raises(UnexpectedResponseError, match=r"/v1/runs/run_1: the answer cannot be read"):
        client.get_run("run_1")
    client, _ = answering(httpx2.Response(404, content=body))
    with pytest.raises(ApiError, match="not an error of an Interlock server"):
        client.get_run("run_1")


def test_stream_gives_up_after_the_reconnects() -> None:
    policy = RetryPolicy(reconnects=2, base_seconds=0, max_seconds=0)
    client, got = answering(*[httpx2.Response(200, content=b"retry: 1\n\n")] * 3, policy=policy)
    with pytest.raises(ConnectionFailedError, match="after_seq=4"):
        list(client.follow("run_1", after_seq=4))
    assert [request.url.params["after_seq"] for request in got] == ["4", "4", "4"]


@pytest.mark.parametrize("data", ["{", "7", '{"type": 3}', '{"transient": true}', "[]"])
def test_unreadable_events_are_refused(data: str) -> None:
    client, _ = answering(httpx2.Response(200, content=f"event: tool.progress\ndata: {data}\n\n".encode()))
    with pytest.raises(UnexpectedResponseError, match="An event of run_1 cannot be read"):
        list(client.follow("run_1"))


def test_line_separators_in_texts_stay_in_texts() -> None:
    event = {"type": "ERROR", "run_id": "r", "seq": 3, "at": "2030-01-31T12:00:00Z", "data": {"text": "a\u2028b\x85c"}}
    data = json.dumps(event, ensure_ascii=False)
    newer = json.dumps({"transient": True, "run_id": "r", "seq": 3, "data": {}})
    body = f"id: 3\nevent: ERROR\ndata: {data}\n\nevent: new\ndata: {newer}\n\n"
    client, _ = answering(
        httpx2.Response(200, content=f'{body}event: end\ndata: {{"reason": "run_over"}}\n\n'.encode())
    )
    first, end = client.follow("run_1")
    assert isinstance(first, ours.RecordedEvent)
    assert (first.data, type(end).__name__) == ({"text": "a\u2028b\x85c"}, "StreamEnd")


@pytest.mark.parametrize(
    "call",
    [
        lambda: Client("ftp://x", "ik_1"),
        lambda: Client("https://me:pass@x", "ik_1"),
        lambda: Client("https://x", "ik_1\r\nX: 1"),
        lambda: Client("https://x", ""),
        lambda: answering()[0].get_run(""),
        lambda: answering()[0].get_run(".."),
        lambda: answering()[0].approve("a", ""),
        lambda: answering()[0].approve("a", "sha256:1", until=datetime(2030, 1, 31)),  # noqa: DTZ001
        lambda: answering()[0].approve("a", "sha256:1", arguments={"x": object()}),
        lambda: answering()[0].start_run("a", "\ud800"),
        lambda: answering()[0].start_run("a", "x", idempotency_key="ä"),
        lambda: RetryPolicy(attempts=0),
    ],
)
def test_wrong_arguments_send_nothing(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*ik_1)"):
        call()


def test_import_loads_neither_server_nor_http() -> None:
    code = "import sys, interlock.client; interlock.client.Run, interlock.client.ApiError; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    assert "interlock.client.models" in done.stdout
    assert not [name for name in ("httpx2", "interlock.server", "pydantic", "starlette") if f"'{name}'" in done.stdout]
