"""Provider for the chat completions API: OpenAI, and compatible servers (Ollama, vLLM, ...)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ...domain.errors import ConfigurationError, ModelError

try:
    import openai
except ImportError as missing:
    raise ConfigurationError("OpenAIChat needs the `openai` package: pip install 'interlock[openai]'") from missing

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
from .request import chat_body
from .stream import OpenAIResponse

_ERRORS = SdkErrors(
    status=openai.APIStatusError,
    timeout=openai.APITimeoutError,
    connection=openai.APIConnectionError,
    said=openai.APIError,
    any=openai.OpenAIError,
)
#: They call the limit of an answer by its new name, many others only know the old one.
_OWN_HOSTS = (".openai.com", ".azure.com")


class OpenAIChat:
    """A model behind the API of OpenAI chat completions, or any compatible server (Ollama, vLLM, ...).

    `model` is for requests that name none. Without `api_key` the SDK takes it from `OPENAI_API_KEY`.

    A `client` of your own (`AsyncAzureOpenAI`, other headers, a proxy) stays yours to close. `prices` are by model.
    `extra_body` is added to every request.
    """

    name = "openai"

    def __init__(  # noqa: PLR0913 - one for each thing that may be chosen
        self,
        model: str = "",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: openai.AsyncOpenAI | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        prices: Mapping[str, Prices] | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        if client is not None and (base_url is not None or api_key is not None):
            raise ConfigurationError("Give OpenAIChat a `client`, or an address and a key, not both.")
        self._model = model
        self._timeouts = timeouts
        self._prices = prices or {}
        self._extra_body = dict(extra_body or {})
        self._owns_client = client is None
        # The SDK does not retry: use `with_retries` for that.
        self._client = client.with_options(max_retries=0) if client else _create_client(base_url, api_key, timeouts)
        # Looked up now: the SDK imports a good part of itself when this is first named.
        self._create: Any = self._client.chat.completions.create
        self._display_name = f"The model at {display_address(self._client.base_url)}"
        host = f".{self._client.base_url.host}"
        self._limit_field = "max_completion_tokens" if host.endswith(_OWN_HOSTS) else "max_tokens"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        model = request.model or self._model
        if not model:
            raise ModelError("No model was named. Nothing was asked; name one in the request or in OpenAIChat.")
        answer = OpenAIResponse(request.messages)
        with translate_errors(_ERRORS, self._display_name, lambda: self._client.api_key):
            async with asyncio.timeout(self._timeouts.first_byte_seconds):
                stream = await self._send(chat_body(request, model, self._limit_field))
            async with stream:
                limit_response(stream.response, self._timeouts)
                async for chunk in stream:
                    if text := answer.add(chunk):
                        yield TextDelta(text)
        if not answer.is_complete:
            raise interrupted_error(self._display_name)
        for event in answer.finish(self._prices.get(model)):
            yield event

    async def _send(self, body: dict[str, Any]) -> openai.AsyncStream[Any]:
        return await self._create(
            **body, stream=True, stream_options={"include_usage": True}, extra_body=self._extra_body or None
        )

    async def close(self) -> None:
        if self._owns_client:
            await self._client.close()


def _create_client(base_url: str | None, api_key: str | None, timeouts: Timeouts) -> openai.AsyncOpenAI:
    if base_url is not None:
        check_base_url(base_url, "`base_url`")
    http = create_http_client(timeouts)
    try:
        made = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, http_client=http)
    except openai.OpenAIError:
        if base_url is None:
            raise ConfigurationError("There is no API key: set OPENAI_API_KEY, or give OpenAIChat one.") from None
        made = openai.AsyncOpenAI(base_url=base_url, api_key=NO_KEY, max_retries=0, http_client=http)
    check_base_url(str(made.base_url), "`OPENAI_BASE_URL`")
    return made
