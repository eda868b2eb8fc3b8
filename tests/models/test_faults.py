"""What an adapter says when there is no answer, and what it never says."""

import logging
import subprocess
import sys
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest

from interlock.domain.errors import ConfigurationError, ModelError
from interlock.models.anthropic_messages import AnthropicMessages
from interlock.models.openai_chat import OpenAIChat
from tests.each import each
from tests.models.loopback import Reply, serving
from tests.models.wire import ASKED, HELLO, KEY, answer, answer_to, provider_at, talking

KINDS = ("openai", "anthropic")
both = pytest.mark.parametrize("kind", KINDS)


def refusal(status: int, message: str = "No.", code: str = "", **headers: str) -> Reply:
    body = msgspec.json.encode({"error": {"message": message, "type": code, "code": code}})
    return Reply((body,), status, {"content-type": "application/json", **headers})


async def fault(kind: str, *replies: Reply) -> ModelError:
    async with talking(kind, *replies) as (provider, _):
        with pytest.raises(ModelError) as raised:
            await answer(provider)
    return raised.value


@both
@each(
    "status, again",
    [
        *((status, False) for status in (301, 307, 400, 401, 403, 404, 413, 422)),
        *((status, True) for status in (408, 409, 429, 500, 502, 503, 529)),
    ],
)
async def test_a_status_says_whether_asking_again_may_help(kind: str, status: int, again: bool) -> None:
    error = await fault(kind, refusal(status))

    assert (error.retryable, f"answered {status}: No. Nothing was executed." in str(error)) == (again, True)


@both
async def test_without_a_model_nothing_is_asked(kind: str) -> None:
    async with talking(kind) as (provider, server):
        with pytest.raises(ModelError, match=r"No model was named\. Nothing was asked"):
            await answer(provider, msgspec.structs.replace(ASKED, model=""))

    assert (provider.name, server.asked) == (kind, [])


@both
async def test_an_empty_purse_is_not_a_rate_limit(kind: str) -> None:
    error = await fault(kind, refusal(429, code="insufficient_quota"))

    assert not error.retryable


@both
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("nan", None), ("1e999", None), ("soon", None), ("", None)],
)
async def test_the_wait_that_a_server_asks_for_is_passed_on(kind: str, header: str, seconds: float | None) -> None:
    error = await fault(kind, refusal(429, **{"retry-after": header}))

    assert error.retry_after_seconds == seconds


@both
async def test_the_wait_may_be_given_in_milliseconds_or_as_a_date(kind: str) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)

    in_milliseconds = await fault(kind, refusal(429, **{"retry-after-ms": "250", "retry-after": "9"}))
    as_a_date = await fault(kind, refusal(503, **{"retry-after": later}))

    assert in_milliseconds.retry_after_seconds == 0.25
    assert as_a_date.retry_after_seconds == pytest.approx(3600, abs=60)


GARBLED = {
    "no JSON": b"data: {malformed\n\n",
    "no UTF-8": b'data: {"choices": "\xff\xfe"}\n\n',
    "deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "a text": b'data: "hello"\n\n',
    "a number": b"data: 3\n\n",
    "a list": b"data: []\n\n",
    "wrong types": b'data: {"type": "content_block_delta", "index": "x", "choices": [{"delta": {"content": 3}}]}\n\n',
    "wrong inside": b'data: {"type": "message_start", "message": 7, "choices": [5]}\n\n',
    "an error of no kind": b'data: {"error": 3}\n\n',
}


@both
@each("name", GARBLED)
async def test_an_answer_that_cannot_be_read_is_asked_for_again(kind: str, name: str) -> None:
    event = b"event: content_block_delta\n" if kind == "anthropic" else b""

    error = await fault(kind, Reply((event + GARBLED[name],)))

    assert error.retryable
    assert "Nothing was executed." in str(error)


@both
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", "text/html"])
async def test_an_answer_that_ends_without_an_end_is_not_an_answer(kind: str, content_type: str) -> None:
    error = await fault(kind, Reply((b"<html>hello</html>",), headers={"content-type": content_type}))

    assert error.retryable
    assert "broke off its answer before the end" in str(error)


@both
async def test_a_cut_connection_is_told(kind: str) -> None:
    error = await fault(kind, Reply(HELLO[kind][:1], end="cut"))

    assert (error.retryable, "was cut off" in str(error)) == (True, True)


@both
async def test_an_address_where_nobody_listens_is_told(kind: str) -> None:
    async with serving() as server:
        url = server.url
    provider = provider_at(kind, url)

    with pytest.raises(ModelError, match=f"The model at {url} could not be reached. Nothing was executed.") as error:
        await answer(provider)

    assert error.value.retryable
    await provider.close()


async def test_an_error_in_the_middle_of_a_stream_says_whether_asking_again_may_help() -> None:
    told: list[bool] = []
    for code in ("server_error", "insufficient_quota"):
        body = msgspec.json.encode({"error": {"message": f"{KEY} failed", "code": code}})
        with pytest.raises(ModelError, match=r"reported an error: \[key\] failed\.") as error:
            await answer_to("openai", b"data: " + body + b"\n\n")
        told.append(error.value.retryable)

    assert told == [True, False]


#: Status, name of the error, and message, as providers and compatible servers report that a request is too long.
TOO_LONG = {
    "openai": (400, "context_length_exceeded", "This model's maximum context length is 128000 tokens."),
    "anthropic": (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
    "anthropic, answer": (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 > 8"),
    "anthropic, bytes": (413, "request_too_large", "Request exceeds the maximum size"),
    "llama.cpp": (400, "exceed_context_size_error", "the request exceeds the available context size"),
    "vllm": (400, "BadRequestError", "maximum context length is 4096 tokens. However, you requested 5000"),
}


@both
@pytest.mark.parametrize("form", TOO_LONG)
async def test_a_request_that_is_too_long_has_a_code(kind: str, form: str) -> None:
    status, name, message = TOO_LONG[form]

    error = await fault(kind, refusal(status, message, name))

    assert (error.code, error.retryable) == ("context_length_exceeded", False)
    assert "refused the request as too long" in str(error)
    assert "Nothing was executed" not in str(error), "the run may have executed calls before"


@both
@pytest.mark.parametrize(
    ("status", "name", "message"),
    [
        (429, "rate_limit_error", "too many tokens per minute"),
        (400, "rate_limit_exceeded", "too many tokens"),
        (400, "", "No."),
    ],
)
async def test_other_refusals_are_not_too_long(kind: str, status: int, name: str, message: str) -> None:
    assert (await fault(kind, refusal(status, message, name))).code == ""


async def test_a_stream_may_report_that_a_request_is_too_long() -> None:
    body = msgspec.json.encode({"error": {"message": "No.", "code": "context_length_exceeded"}})

    with pytest.raises(ModelError, match="too long") as error:
        await answer_to("openai", b"data: " + body + b"\n\n")

    assert (error.value.code, error.value.retryable) == ("context_length_exceeded", False)


@both
async def test_no_key_is_in_an_error_or_in_a_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    error = await fault(kind, refusal(401, f"Your key {KEY} is wrong. " + "x" * 5000))

    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.__dict__)
    assert KEY not in shown
    assert KEY not in caplog.text
    assert error.__cause__ is None
    assert len(str(error)) < 800


@both
async def test_a_redirect_is_not_followed_because_it_would_take_the_key_away(kind: str) -> None:
    async with serving(Reply(HELLO[kind])) as elsewhere:
        error = await fault(kind, Reply(status=307, headers={"location": f"{elsewhere.url}/v1/messages"}))

    assert not error.retryable
    assert elsewhere.asked == []


@both
@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{KEY}@127.0.0.1:1/v1",
        f"http://{KEY}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1?key={KEY}",
        f"http://127.0.0.1:1/v1#{KEY}",
        f"ftp://127.0.0.1/{KEY}",
        f"http://[{KEY}",
        f"http://127.0.0.1:port{KEY}",
        KEY,
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_without_showing_it(kind: str, url: str) -> None:
    with pytest.raises(ConfigurationError, match="`base_url` must") as error:
        provider_at(kind, url)

    assert KEY not in str(error.value)


@pytest.mark.parametrize(("make", "variable"), [(OpenAIChat, "OPENAI"), (AnthropicMessages, "ANTHROPIC")])
def test_an_address_from_the_environment_is_checked_too(
    make: type[OpenAIChat | AnthropicMessages], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{variable}_BASE_URL", f"http://user:{KEY}@127.0.0.1:1")

    with pytest.raises(ConfigurationError, match=f"`{variable}_BASE_URL` must not hold"):
        make("m", api_key="k")


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CONFIG_DIR",
        "ANTHROPIC_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(("make", "variable"), [(OpenAIChat, "OPENAI"), (AnthropicMessages, "ANTHROPIC")])
def test_without_a_key_the_provider_says_where_one_is_looked_for(
    make: type[OpenAIChat | AnthropicMessages], variable: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"There is no API key: set {variable}_API_KEY"):
        make("m")


def test_credentials_that_the_sdk_cannot_use_are_a_matter_of_configuration(
    no_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")

    with pytest.raises(ConfigurationError, match="cannot use the credentials"):
        AnthropicMessages("m")


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(("make", "kind"), [(OpenAIChat, "openai"), (AnthropicMessages, "anthropic")])
async def test_a_server_of_ones_own_needs_no_key(make: type[OpenAIChat | AnthropicMessages], kind: str) -> None:
    async with serving(Reply(HELLO[kind])) as server:
        provider = make("m", base_url=server.url)
        await answer(provider)
        await provider.close()

    assert server.asked[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(("module", "package"), [("openai_chat", "openai"), ("anthropic_messages", "anthropic")])
def test_without_its_package_an_adapter_says_what_to_install(module: str, package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None; import interlock.models.{module}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)

    assert f"pip install 'interlock[{package}]'" in done.stderr
    assert done.returncode == 1
