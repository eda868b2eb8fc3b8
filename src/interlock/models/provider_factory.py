"""Creates providers by name, for command lines and settings.

An SDK takes a second to import and may be missing, so only the one that is asked for is imported, and only then. The
key comes from the caller, always: an SDK that looks for one itself would send it to whatever address it was given.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple
from urllib.parse import urlsplit

from ..domain.errors import ConfigurationError
from .interface import ModelProvider
from .retry import with_retries
from .scripted import MAX_SCRIPT_BYTES, ScriptedModel, from_script
from .usage import Prices

#: Self-hosted servers often want no key, but the SDKs do.
NO_KEY = "none"


class _Adapter(NamedTuple):
    module: str
    kind: str
    #: Where people usually keep the key.
    variable: str


_ADAPTERS: Mapping[str, _Adapter] = {
    "openai": _Adapter("openai.chat", "OpenAIChat", "OPENAI_API_KEY"),
    "anthropic": _Adapter("anthropic.messages", "AnthropicMessages", "ANTHROPIC_API_KEY"),
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
        raise ConfigurationError(f"There is no provider {name[:100]!r}. There are: {', '.join(PROVIDER_NAMES)}.")
    if not key and not _is_loopback_url(base_url):
        raise ConfigurationError(_missing_key_message(name, adapter, base_url))
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


def _missing_key_message(name: str, adapter: _Adapter, base_url: str) -> str:
    if base_url:
        return "There is no API key for this base_url. Nothing was asked; only a server on this host needs none."
    return (
        f"There is no API key for {name!r}. Nothing was asked; set {adapter.variable}, or give a base_url on this host."
    )


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
