"""Models behind Anthropic's messages API."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ...domain.errors import ConfigurationError, ModelError

try:
    import anthropic
except ImportError as missing:
    raise ConfigurationError(
        "AnthropicMessages needs the `anthropic` package: pip install 'interlock[anthropic]'"
    ) from missing

from ..connection import (
    DEFAULT_TIMEOUTS,
    NO_KEY,
    Timeouts,
    check_base_url,
    create_http_client,
    display_address,
    limit_response,
)
from ..errors import SdkErrors, interrupted_error, translate_errors
from ..interface import ModelEvent, ModelRequest, TextDelta
from ..usage import Prices
from .request import messages_body
from .stream import AnthropicResponse

_ERRORS = SdkErrors(
    status=anthropic.APIStatusError,
    timeout=anthropic.APITimeoutError,
    connection=anthropic.APIConnectionError,
    said=anthropic.APIError,
    any=anthropic.AnthropicError,
)


class AnthropicMessages:
    """A model behind the API of Anthropic messages.

    `model` is for requests that name none. Without `api_key` the SDK takes it from `ANTHROPIC_API_KEY`.

    The API takes no temperature, so it is not sent. `max_output_tokens` is for requests that set no limit, because the
    API wants one. `prompt_cache` lets the provider keep the conversation so far for the next turn, which makes that
    cheaper. A `client` of your own stays yours to close. `prices` are by model.
    """

    name = "anthropic"

    def __init__(  # noqa: PLR0913 - one for each thing that may be chosen
        self,
        model: str = "",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: anthropic.AsyncAnthropic | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        max_output_tokens: int = 16_384,
        prompt_cache: bool = True,
        prices: Mapping[str, Prices] | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        if client is not None and (base_url is not None or api_key is not None):
            raise ConfigurationError("Give AnthropicMessages a `client`, or an address and a key, not both.")
        self._model = model
        self._timeouts = timeouts
        self._max_output_tokens = max_output_tokens
        self._prompt_cache = prompt_cache
        self._prices = prices or {}
        self._extra_body = dict(extra_body or {})
        self._owns_client = client is None
        # The SDK does not retry: use `with_retries` for that.
        self._client = client.with_options(max_retries=0) if client else _create_client(base_url, api_key, timeouts)
        # Looked up now: the SDK imports a good part of itself when this is first named.
        self._create: Any = self._client.messages.create
        self._display_name = f"The model at {display_address(self._client.base_url)}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        model = request.model or self._model
        if not model:
            raise ModelError("No model was named. Nothing was asked; name one in the request or in AnthropicMessages.")
        answer = AnthropicResponse(request.messages, model)
        with translate_errors(
            _ERRORS, self._display_name, lambda: self._client.api_key or self._client.auth_token or ""
        ):
            async with asyncio.timeout(self._timeouts.first_byte_seconds):
                stream = await self._send(self._body(request, model))
            async with stream:
                limit_response(stream.response, self._timeouts)
                async for event in stream:
                    if text := answer.add(event):
                        yield TextDelta(text)
        if not answer.is_complete:
            raise interrupted_error(self._display_name)
        for event in answer.finish(self._prices.get(model)):
            yield event

    def _body(self, request: ModelRequest, model: str) -> dict[str, Any]:
        body = messages_body(request, model, self._max_output_tokens)
        if self._prompt_cache:
            body["cache_control"] = {"type": "ephemeral"}
        if request.output_schema is not None:
            schema = anthropic.transform_schema(request.output_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return body

    async def _send(self, body: dict[str, Any]) -> anthropic.AsyncStream[Any]:
        return await self._create(**body, stream=True, extra_body=self._extra_body or None)

    async def close(self) -> None:
        if self._owns_client:
            await self._client.close()


def _create_client(base_url: str | None, api_key: str | None, timeouts: Timeouts) -> anthropic.AsyncAnthropic:
    if base_url is not None:
        check_base_url(base_url, "`base_url`")
    http = create_http_client(timeouts)
    try:
        made = anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0, http_client=http)
    except anthropic.AnthropicError as error:
        raise ConfigurationError(f"The SDK cannot use the credentials that it found: {error}") from None
    if not (made.api_key or made.auth_token or made.credentials):
        if base_url is None:
            raise ConfigurationError("There is no API key: set ANTHROPIC_API_KEY, or give AnthropicMessages one.")
        made = anthropic.AsyncAnthropic(base_url=base_url, api_key=NO_KEY, max_retries=0, http_client=http)
    check_base_url(str(made.base_url), "`ANTHROPIC_BASE_URL`")
    return made
