"""The model that proposes: the provider of the settings, or a script. Checked before anything is written."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from ...domain.errors import ConfigurationError
from ...models.interface import ModelProvider
from ...models.named import NO_KEY, load_adapter, create_provider
from ...models.usage import Prices
from ..config.model_keys import KEY_VARIABLE, PROVIDER_VARIABLES, find_key, get_key_variable
from ..config.settings import Settings

_SETTINGS_HELP = "`interlock config show` shows what is set, and from where."


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    #: For the eyes of a person.
    label: str
    #: As the provider names it.
    name: str = ""
    make_provider: Callable[[], ModelProvider]
    #: What must never be shown or stored.
    secrets: Mapping[str, str] = {}


def load_scripted_model(path: Path) -> ModelChoice:
    read = create_provider("scripted", script=path)
    return ModelChoice(label=f"the script {path.name}", make_provider=lambda: read)


def choose_model(settings: Settings, environ: Mapping[str, str] = os.environ) -> ModelChoice:
    """`ConfigurationError` in words when there is no model to ask, or no key for it."""
    provider, base_url = settings.provider, settings.base_url
    key = find_key(provider, base_url, environ)
    if key is None and not base_url:
        raise ConfigurationError(_missing_key_message(provider, environ))
    if not settings.model:
        raise ConfigurationError(
            "No model is named. Name one with --model NAME, or for good with `interlock config set model NAME`. "
            f"Nothing was started. {_SETTINGS_HELP}"
        )
    load_adapter(provider)  # not installed: said now, before anything is written
    # A key that is given keeps the SDK from sending the provider's own key to another address.
    value = key.value if key is not None else NO_KEY
    make = partial(
        create_provider, provider, model=settings.model, base_url=base_url, key=value, prices=_read_prices(settings)
    )
    return ModelChoice(
        label=f"{settings.model} ({base_url or provider})",
        name=settings.model,
        make_provider=make,
        secrets={} if key is None else {key.origin: value},
    )


def _read_prices(settings: Settings) -> dict[str, Prices]:
    read, written = settings.price_input, settings.price_output
    if read is None and written is None:
        return {}
    if read is None or written is None:
        missing = "price_input" if read is None else "price_output"
        raise ConfigurationError(f"{missing} is not set: both prices are needed to count what a run costs.")
    return {settings.model: Prices(input=read, output=written)}


def _missing_key_message(provider: str, environ: Mapping[str, str]) -> str:
    other = next((name for name in PROVIDER_VARIABLES if name != provider and find_key(name, "", environ)), "")
    hint = f" There is one for {other}: choose it with --provider {other}." if other else ""
    return (
        f"There is no key for {provider}: set {get_key_variable(provider)} (or {KEY_VARIABLE}), or name a server of your "
        f"own with --base-url.{hint} `interlock demo` needs neither. Nothing was started. {_SETTINGS_HELP}"
    )
