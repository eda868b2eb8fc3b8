"""What is sent over HTTP, and what each answer of a receiver means."""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit_sinks.destination import HecDestination, WebhookDestination
from interlock.server.core.audit_sinks.forwarder import create_sender
from interlock.server.core.audit_sinks.senders import (
    BatchItem,
    EventBatch,
    SendDelay,
    SendRejection,
    SendSuccess,
    parse_retry_after,
)
from interlock.server.core.configured_secret import read_secret
from interlock.server.core.settings import parse_settings
from tests.each import each

from .receiver import answer, receiving

SECRET = "a-secret-of-some-length"
ENVIRON = {"SECRET": SECRET}
NOW = 1_700_000_000_000_000_000

BATCH = EventBatch(
    "delivery-1",
    (
        BatchItem(1, "run_a", 0, "run.started", NOW, b'{"event": 1}'),
        BatchItem(2, "run_a", 1, "warning", NOW, b'{"event": {"deep": [1.10, "\\u00e4"]}}'),
    ),
)


def webhook(port: int) -> WebhookDestination:
    url = f"http://127.0.0.1:{port}/in?key=in-the-url"
    return WebhookDestination(name="siem", url=url, secret_env="SECRET", allow_plain=True, allow_private=True)


async def test_a_webhook_gets_one_event_per_line_signed_with_time_and_delivery() -> None:
    async with receiving() as receiver:
        sender = create_sender(webhook(receiver.port), ENVIRON, now=lambda: NOW)
        assert await sender.send(BATCH) == SendSuccess()
        await sender.close()

    got = receiver.requests[0]
    assert got.body.splitlines() == [item.line for item in BATCH.items]
    assert got.headers["x-interlock-timestamp"] == "1700000000"
    assert got.headers["x-interlock-delivery"] == "delivery-1"
    signed = b"1700000000.delivery-1." + got.body
    assert got.headers["x-interlock-signature"] == "v1=" + hmac.new(SECRET.encode(), signed, sha256).hexdigest()


async def test_splunk_gets_concatenated_envelopes_with_the_index_beside_the_untouched_event() -> None:
    async with receiving(answer(200, b'{"text":"Success","code":0}')) as receiver:
        place = HecDestination(
            name="splunk",
            url=f"http://127.0.0.1:{receiver.port}/services/collector/event",
            token_env="SECRET",
            index="audit",
            allow_plain=True,
            allow_private=True,
        )
        sender = create_sender(place, ENVIRON)
        assert await sender.send(BATCH) == SendSuccess()
        await sender.close()

    got = receiver.requests[0]
    assert got.target == "/services/collector/event"
    assert got.headers["authorization"] == f"Splunk {SECRET}"
    assert got.body == b'{"event":1,"index":"audit"}\n{"event":{"deep": [1.10, "\\u00e4"]},"index":"audit"}'


@pytest.mark.parametrize("status", [400, 406, 409, 413, 415, 422, 431])
async def test_a_receiver_that_does_not_want_the_events_rejects_them(status: int) -> None:
    async with receiving(answer(status, b"no\x1b[31m thanks")) as receiver:
        sender = create_sender(webhook(receiver.port), ENVIRON)
        said = await sender.send(BATCH)
        await sender.close()

    assert said == SendRejection(f"The receiver answered {status}: no\\u{{1b}}[31m thanks")


@each("status", [302, 401, 403, 404, 408, 425, 429, 500, 502, 503, 504])
async def test_a_receiver_that_is_not_well_or_does_not_know_us_only_delays_them(status: int) -> None:
    """A token that ran out is no reason to set the log aside, event by event."""
    async with receiving(answer(status, retry_after="7")) as receiver:
        sender = create_sender(webhook(receiver.port), ENVIRON)
        said = await sender.send(BATCH)
        await sender.close()

    assert isinstance(said, SendDelay)
    assert said.retry_after_seconds == 7.0


async def test_no_error_holds_the_secret_or_the_query_of_the_url() -> None:
    async with receiving(answer(500, f"your {SECRET} is wrong".encode()), b"garbage") as receiver:
        sender = create_sender(webhook(receiver.port), ENVIRON)
        said = [await sender.send(BATCH), await sender.send(BATCH)]
    said.append(await sender.send(BATCH))  # nobody listens any more
    await sender.close()

    assert all(isinstance(one, SendDelay) for one in said)
    assert SECRET not in repr(said)
    assert "in-the-url" not in repr(said)
    assert "***" in repr(said)


@each(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("999999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2000 22:14:20 GMT", 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("1e9", 0.0),
        ("\u0663", 0.0),
    ],
)
def test_a_retry_after_is_read_as_seconds_or_a_date_and_bounded(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == pytest.approx(seconds, abs=0.01)


@each(
    ("table", "words"),
    [
        ({"kind": "webhook", "url": "http://siem.example/", "secret_env": "S"}, "allow_plain"),
        ({"kind": "webhook", "url": "https://u:p@siem.example/", "secret_env": "S"}, "user or a password"),
        ({"kind": "webhook", "url": "https://siem.example/", "secret": "in the open"}, "never written down"),
        ({"kind": "hec", "url": "https://siem.example/", "token_env": "S", "schema": "ecs"}, "splunk_hec only"),
        ({"kind": "syslog", "host": "siem.example", "transport": "udp"}, "not encrypted"),
        ({"kind": "syslog", "host": "siem.example", "facility": "kern"}, "facility"),
        ({"kind": "syslog", "host": "siem.example", "port": 0}, "port"),
        ({"kind": "syslog", "host": "0x7f.1"}, "number"),
        ({"kind": "file", "path": "audit.log"}, "absolute"),
        ({"kind": "file", "path": "/var/log/audit.log", "name": "Not A Name"}, "lower-case"),
        ({"kind": "pigeon"}, "pigeon"),
    ],
)
def test_a_destination_that_cannot_work_is_named_before_the_server_starts(table: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_settings({"forward": [{"name": "siem", **table}]})


def test_destinations_are_read_from_plain_tables_and_two_of_one_name_are_refused() -> None:
    table = {"kind": "file", "name": "disk", "path": "/var/log/audit.log", "schema": "cef"}
    lists = {"agents": ["billing"], "events": ["run.started"]}

    assert msgspec.to_builtins(parse_settings({"forward": [table | lists]}).forward) == ({**table, **lists},)
    with pytest.raises(ConfigurationError, match="same name"):
        parse_settings({"forward": [table, table]})


def test_a_secret_comes_from_one_place_and_no_error_shows_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    assert read_secret("It", "SECRET", "", ENVIRON) == SECRET
    assert read_secret("It", "", str(tmp_path / "secret"), {}) == SECRET
    for env, file, environ in (
        ("SECRET", str(tmp_path / "secret"), ENVIRON),
        ("", "", ENVIRON),
        ("SECRET", "", {}),
        ("SECRET", "", {"SECRET": "shorty"}),
        ("SECRET", "", {"SECRET": "with\nline breaks in it"}),
        ("", str(tmp_path / "missing"), {}),
        ("", str(tmp_path), {}),
    ):
        with pytest.raises(ConfigurationError) as raised:
            read_secret("It", env, file, environ)
        assert "shorty" not in str(raised.value)
        assert "line breaks" not in str(raised.value)
