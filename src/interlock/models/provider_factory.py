"""Creates providers by name, for command lines and settings, and retries their requests.

An SDK takes a second to import and may be missing, so only the one that is asked for is imported, and only then. The
key comes from the caller, always: an SDK that looks for one itself would send it to whatever address it was given.

`with_retries` retries requests: rate limits, server errors, broken connections. A provider says what may help
(`ModelError.retryable`); here is only how often, and how long between.
"""

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple
from urllib.parse import urlsplit

from ..domain.errors import ConfigurationError, ModelError
from ..domain.messages import Usage
from ..rendering.text import describe_unknown
from .interface import NO_KEY, ModelEvent, ModelProvider, ModelRequest, StreamRestarted
from .scripted import MAX_SCRIPT_BYTES, ScriptedModel, from_script
from .usage import Prices, estimate_cost


def with_retries(  # noqa: PLR0913 - one for each thing that may be chosen
    provider: ModelProvider,
    attempts: int = 4,
    *,
    first_wait_seconds: float = 0.5,
    max_wait_seconds: float = 30.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = randomness.random,
) -> ModelProvider:
    """Return the provider with retries. Waits double from the first one on, with jitter; what the server asks for is
    respected up to `max_wait_seconds`.
    """
    if attempts < 1 or first_wait_seconds < 0 or max_wait_seconds < 0:
        raise ConfigurationError("Retries need at least one attempt, and waits that are not negative.")

    def wait_seconds(attempt: int, error: ModelError) -> float:
        doubled = first_wait_seconds * 2.0 ** min(attempt - 1, 64) * (0.5 + random() / 2)
        return min(max_wait_seconds, max(doubled, error.retry_after_seconds or 0.0))

    return _RetryingModel(provider, attempts, wait_seconds, sleep)


class _RetryingModel:
    def __init__(
        self,
        provider: ModelProvider,
        attempts: int,
        wait_seconds: Callable[[int, ModelError], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._provider = provider
        self._attempts = attempts
        self._wait_seconds = wait_seconds
        self._sleep = sleep

    @property
    def name(self) -> str:
        return self._provider.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        attempt = 0
        while True:
            attempt += 1
            has_output = False
            try:
                async with aclosing(self._provider.stream(request)) as events:
                    async for event in events:
                        has_output = True
                        yield event
                return
            except ModelError as error:
                if not error.retryable:
                    raise
                wait, reason = self._wait_seconds(attempt, error), str(error)
                if attempt == self._attempts:
                    tried = f"{reason} It was tried {attempt} times." if attempt > 1 else reason
                    raise ModelError(tried, retryable=True, retry_after_seconds=error.retry_after_seconds) from None
            if has_output:
                yield StreamRestarted(reason)
            await self._sleep(wait)

    def estimate_cost(self, usage: Usage, model: str) -> float | None:
        return estimate_cost(self._provider, usage, model)

    async def close(self) -> None:
        await self._provider.close()


class _Adapter(NamedTuple):
    module: str
    kind: str
    #: Where people usually keep the key.
    variable: str


_ADAPTERS: Mapping[str, _Adapter] = {
    "openai": _Adapter("openai_chat", "OpenAIChat", "OPENAI_API_KEY"),
    "anthropic": _Adapter("anthropic_messages", "AnthropicMessages", "ANTHROPIC_API_KEY"),
}
SCRIPTED = "scripted"
PROVIDER_NAMES = (*_ADAPTERS, SCRIPTED)


def create_provider(  # noqa: PLR0913 - one for each thing that may be chosen
    name: str,
    *,
    model: str = "",
    base_url: str = "",
    key: str = "",
    prices: Mapping[str, Prices] | None = None,
    script: str | Path = "",
    attempts: int = 4,
) -> ModelProvider:
    """Create a provider. `base_url`: a compatible server; on this host it needs no key. `script`: the file of a
    scripted provider. `attempts`: the maximum number of attempts per request.

    Raise `ConfigurationError` when it is not available. Nothing is sent yet.
    """
    if name == SCRIPTED:
        return _load_scripted(Path(script))
    adapter = _ADAPTERS.get(name)
    if adapter is None:
        raise ConfigurationError(describe_unknown("provider", name, PROVIDER_NAMES))
    if not key and not _is_loopback_url(base_url):
        hint = f"set {adapter.variable}, or give a base_url on this host"
        raise ConfigurationError(
            "There is no API key for this base_url. Nothing was asked; only a server on this host needs none."
            if base_url
            else f"There is no API key for {name!r}. Nothing was asked; {hint}."
        )
    made = load_adapter(name)(model, base_url=base_url or None, api_key=key or NO_KEY, prices=prices or {})
    return with_retries(made, attempts)


def load_adapter(name: str) -> Callable[..., ModelProvider]:
    """Return the constructor of a provider. Raise `ConfigurationError` when its SDK is not installed."""
    adapter = _ADAPTERS[name]
    try:
        return getattr(import_module(f".{adapter.module}", __package__), adapter.kind)
    except ImportError as missing:
        raise ConfigurationError(
            f"The provider {name!r} needs the package {missing.name!r}, which is not installed: "
            f"pip install 'interlock[{name}]'"
        ) from missing


def _is_loopback_url(base_url: str) -> bool:
    try:
        host = urlsplit(base_url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _load_scripted(path: Path) -> ScriptedModel:
    """Load a script by position, so that a run resumed by another process finds its turn."""
    if path == Path():
        raise ConfigurationError(f"The provider {SCRIPTED!r} needs the file of a script.")
    try:
        # A pipe or a device would be waited for.
        if not S_ISREG(path.stat().st_mode):
            raise ConfigurationError(f"The script {path} is not a file.")
        with path.open("rb") as file:
            written = file.read(MAX_SCRIPT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"The script {path} cannot be read: {reason}.") from None
    return ScriptedModel(from_script(written), by_position=True)
