"""Settings: what they are, and which of several sources counts.

From weak to strong: defaults, the user's `config.toml`, the project's `.interlock/config.toml` once it is trusted,
variables (`INTERLOCK_MODEL` for `model`), options of a command. A project may choose the model, and beyond that only
tighten: lower a budget, choose a stricter mode, switch something off. It never says where keys are sent, who decides,
or what commands may reach. Keys are no settings: see `keys`.
"""

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_type_hints

import msgspec

from ...domain.tool import Mode
from .places import Places
from .project import FOLDER
from .settings_file import Value, ignored, parsed_text, read_values
from .trusted import Trusted

PROJECT_SETTINGS = f"{FOLDER}/config.toml"
_STRICTEST_FIRST = tuple(Mode)

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=31_536_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`ABOUT` says what each is."""

    provider: Literal["openai", "anthropic"] = "openai"
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""
    base_url: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    mode: Mode = Mode.DEFAULT
    policy: Annotated[str, msgspec.Meta(max_length=4_000)] = ""
    network: bool = False
    outside: bool = False
    readable: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()
    max_model_calls: _Count = 50
    max_tool_calls: _Count = 200
    max_seconds: _Seconds | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_cost: Annotated[float, msgspec.Meta(gt=0)] | None = None
    price_input: _Price | None = None
    price_output: _Price | None = None
    approval_timeout_seconds: _Seconds = 300.0


ABOUT: Mapping[str, str] = {
    "provider": "How the model is spoken to: openai (and all that are compatible) or anthropic.",
    "model": "The name of the model.",
    "base_url": "The address of the model's server. Empty: the provider's own.",
    "mode": "How much a run may do without asking: read_only, default, accept_edits or trusted.",
    "policy": "Your policy file. Empty: policy.yaml beside your settings, if there is one.",
    "network": "Commands may reach hosts.",
    "outside": "Offer a tool for commands without a sandbox. A person is asked every time.",
    "readable": "Folders beside the workspace that commands may read.",
    "max_model_calls": "How often a run may ask the model.",
    "max_tool_calls": "How many calls a run may make.",
    "max_seconds": "How long a run may take.",
    "max_tokens": "How many tokens a run may use.",
    "max_cost": "What a run may cost, in the currency of the prices.",
    "price_input": "What a million tokens cost that the model reads. With price_output: what runs cost is counted.",
    "price_output": "What a million tokens cost that the model writes.",
    "approval_timeout_seconds": "How long a question waits for an answer in a terminal.",
}

TYPES: Mapping[str, Any] = {
    name: hint for name, hint in get_type_hints(Settings, include_extras=True).items() if name in ABOUT
}


def _lower(mine: float | None, theirs: float | None) -> float | None:
    return theirs if mine is None or (theirs is not None and theirs < mine) else mine


def _stricter(mine: Mode, theirs: Mode) -> Mode:
    return min(mine, theirs, key=_STRICTEST_FIRST.index)


def _off(mine: bool, theirs: bool) -> bool:
    return mine and theirs


def _theirs(mine: Any, theirs: Any) -> Any:
    return theirs


#: What becomes of a value of the user and one of the project. What is not here, a project cannot set.
PROJECT_MAY: Mapping[str, Callable[[Any, Any], Any]] = {
    "model": _theirs,
    "mode": _stricter,
    "network": _off,
    "outside": _off,
    "max_model_calls": _lower,
    "max_tool_calls": _lower,
    "max_seconds": _lower,
    "max_tokens": _lower,
    "max_cost": _lower,
    "approval_timeout_seconds": _lower,
}


class Loaded(NamedTuple):
    settings: Settings
    #: By name: `default`, a file and its line, a variable, or an option.
    origins: Mapping[str, str]
    #: What of the project did not count, and why.
    notes: tuple[str, ...] = ()


def load_settings(
    places: Places,
    project: Trusted,
    environ: Mapping[str, str] = os.environ,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """`PolicyFileError` or `ConfigurationError`, with the place, for whatever is not a setting.

    Args:
        options: What was said on the command line, by name; None is not said.
    """
    said = _user_values(places)
    theirs, notes = _project_values(project, said)
    said |= theirs
    for name in ABOUT:
        variable = variable_of(name)
        if text := environ.get(variable, ""):
            said[name] = Value(parsed_text(name, TYPES[name], text, variable), variable)
        if options and options.get(name) is not None:
            said[name] = Value(options[name], f"--{name.replace('_', '-')}")
    settings = Settings(**{name: value.value for name, value in said.items()})
    return Loaded(settings, {name: said[name].origin if name in said else "default" for name in ABOUT}, notes)


def variable_of(name: str) -> str:
    return f"INTERLOCK_{name.upper()}"


def _user_values(places: Places) -> dict[str, Value]:
    path = None if places.config is None else places.settings_file
    if path is None or not path.exists():
        return {}
    return read_values(str(path), TYPES)


def _project_values(project: Trusted, mine: Mapping[str, Value]) -> tuple[dict[str, Value], tuple[str, ...]]:
    content = project.content(PROJECT_SETTINGS)
    if content is None:
        return {}, ()
    theirs = read_values(project.path(PROJECT_SETTINGS), TYPES, content, allowed=PROJECT_MAY)
    defaults = Settings()
    counted: dict[str, Value] = {}
    notes: list[str] = []
    for name, value in theirs.items():
        own = mine[name].value if name in mine else getattr(defaults, name)
        result = PROJECT_MAY[name](own, value.value)
        if result == value.value:
            counted[name] = value
        else:
            notes.append(ignored(name, own, value))
    return counted, tuple(notes)
