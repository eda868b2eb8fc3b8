"""Settings, and the precedence of their sources.

From weak to strong: defaults, the user's `config.toml`, the project's `.interlock/config.toml` once it is trusted,
variables (`INTERLOCK_MODEL` for `model`), options of a command. A project may choose the model and how edited files
are checked, and beyond that only tighten: lower a budget, choose a stricter mode, switch something off. It never sets
where keys are sent, who decides, or what commands may access. Keys are no settings: see `model_keys`.

A file of settings has plain keys at the top level of a TOML file. Everything that is wrong with it is said at once,
with its line. It is changed as text: one line is put in, replaced or taken out, and everything else stays as it was.
"""

import json
import os
import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from ...domain.errors import ConfigurationError
from ...domain.tool import PermissionMode
from ...policy.files.problems import PolicyFileError, PolicyProblem
from ...policy.files.source import parse_source, read_policy_file
from ...rendering.text import describe_unknown
from ...sandbox.workspace.toolchain import AUTO
from ...tools.shell.checkers import OFF, DiagnosticsSetting, parse_checkers
from .project_trust import PROJECT_FOLDER, TrustedProject
from .user_paths import UserPaths

#: Settings that had another name.
RENAMED: Mapping[str, str] = {"outside": "allow_unsandboxed", "readable": "extra_read_paths"}
_SECRET_NAME = re.compile(r"key|token$|secret|passw", re.IGNORECASE)
_MAX_SHOWN = 80
_EXPECTED_TYPE = re.compile(r"Expected `(\w+)(?: \| null)?`((?: [<>]=? [\d.]+| of length .*?)?)(?:,| -|$)")
_TYPE_LABELS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
}


class SettingValue(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    #: Where it was said.
    origin: str


def read_values(
    path: str, types: Mapping[str, Any], content: bytes | None = None, *, allowed: Container[str] | None = None
) -> dict[str, SettingValue]:
    """Read a settings file. Raise `PolicyFileError` with all problems. `allowed` are the keys that this file may
    set.
    """
    source = parse_source(read_policy_file(path) if content is None else content, path)
    values: dict[str, SettingValue] = {}
    problems: list[PolicyProblem] = []
    for name, given in source.value.items():
        try:
            if name not in types:
                raise ValueError(describe_unknown_setting(name, types))
            if allowed is not None and name not in allowed:
                raise ValueError(f"a project cannot set `{name}`; set it in the user's settings")
            value = _convert_value(name, types[name], given, strict=True)
            values[name] = SettingValue(value, f"{path}:{source.line_at([name])}")
        except ValueError as error:
            problems.append(source.make_problem([name], str(error)))
    if problems:
        raise PolicyFileError(problems)
    return values


def parse_setting(name: str, type_: Any, text: str, origin: str) -> Any:
    """Return a value from a variable or the command line. Several paths are separated as in `PATH`, checkers by
    commas.
    """
    try:
        separator = "," if name == "diagnostics" else os.pathsep
        given: Any = text.split(separator) if "tuple[" in str(type_) else text
        return _convert_value(name, type_, given, strict=False)
    except ValueError as error:
        raise ConfigurationError(f"{origin}: {error}.") from None


def replace_setting(content: bytes, name: str, value: Any, path: str) -> bytes:
    """Return the file with another value, or without the key for None. Raise `ConfigurationError` when that takes more
    than a line.
    """
    before = parse_source(content, path)
    lines = content.decode().splitlines(keepends=True)
    place = re.compile(rf"""[ \t]*(?:{name}|"{name}"|'{name}')[ \t]*=""")
    found = [number for number, line in enumerate(lines) if place.match(line)]
    new = [] if value is None else [f"{name} = {_to_toml(value)}\n"]
    if found:
        lines[found[0] : found[0] + 1] = new
    else:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines += new
    after = "".join(lines).encode()
    expected: dict[str, Any] = {key: item for key, item in before.value.items() if key != name}
    if value is not None:
        expected[name] = json.loads(_to_toml(value))
    with suppress(PolicyFileError):
        if parse_source(after, path).value == expected:
            return after
    raise ConfigurationError(f"{path} cannot be changed line by line. Edit {name} in it by hand.")


def describe_ignored(name: str, user_value: Any, project_value: SettingValue) -> str:
    """Say why a setting of the project was ignored."""
    setting = f"{project_value.origin}: {name} = {_to_toml(project_value.value)}"
    return f"{setting} was ignored: a project can only tighten; {_to_toml(user_value)} applies"


def describe_unknown_setting(name: str, types: Mapping[str, Any]) -> str:
    """Describe an unknown setting: its new name, where keys are taken from, or the nearest known one."""
    if name in RENAMED:
        return f"Setting `{name}` was renamed to `{RENAMED[name]}`."
    if _SECRET_NAME.search(name):
        shown = name[:_MAX_SHOWN]
        return f"Unknown setting `{shown}`. Keys are read from the environment or a keyring, never from a file."
    return describe_unknown("setting", name, types)


def _convert_value(name: str, type_: Any, given: Any, *, strict: bool) -> Any:
    try:
        value = msgspec.convert(given, type_, strict=strict)
    except msgspec.ValidationError as error:
        raise ValueError(_describe_error(name, type_, str(error))) from None
    if name in _CHECKS:
        _CHECKS[name](name, value)
    return value


def _describe_error(name: str, type_: Any, error: str) -> str:
    """Rephrase `Expected `int | null`, got `str``."""
    if name == "diagnostics":
        return f"{name} must be off, auto or a list of checkers"
    if error.startswith("Invalid enum value"):
        return f"{name} must be one of {', '.join(map(str, get_args(type_) or type_))}"
    found = _EXPECTED_TYPE.match(error)
    return f"{name} must be {_TYPE_LABELS.get(found[1], found[1])}{found[2]}" if found else f"{name}: {error}"


def _check_address(name: str, value: str) -> None:
    if not value:
        return
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{name} must be an http or https address")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(f"{name} must not contain a user, a password or a query")


def _check_paths(name: str, value: str | tuple[str, ...]) -> None:
    for path in (value,) if isinstance(value, str) else value:
        if path and not (name == "toolchain" and path == AUTO) and not os.path.isabs(os.path.expanduser(path)):
            raise ValueError(f"{name} must be an absolute path or begin with ~")


def _check_diagnostics(name: str, value: str | tuple[str, ...]) -> None:
    try:
        parse_checkers(cast(DiagnosticsSetting, value))
    except ConfigurationError as error:
        raise ValueError(f"{name}: {str(error).removesuffix('.')}") from None


_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "base_url": _check_address,
    "policy": _check_paths,
    "extra_read_paths": _check_paths,
    "toolchain": _check_paths,
    "diagnostics": _check_diagnostics,
}


def _to_toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


PROJECT_SETTINGS = f"{PROJECT_FOLDER}/config.toml"
_STRICTEST_FIRST = tuple(PermissionMode)

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=31_536_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the command line."""

    provider: Literal["openai", "anthropic"] = "openai"
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""
    base_url: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    mode: PermissionMode = PermissionMode.DEFAULT
    policy: Annotated[str, msgspec.Meta(max_length=4_000)] = ""
    network: bool = False
    allow_unsandboxed: bool = False
    extra_read_paths: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()
    toolchain: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = (AUTO,)
    diagnostics: Annotated[tuple[str, ...], msgspec.Meta(max_length=20)] | Literal["off", "auto"] = "auto"
    undo: Literal["all", "edits", "off"] = "all"
    max_model_calls: _Count = 50
    max_tool_calls: _Count = 200
    max_seconds: _Seconds | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_cost: Annotated[float, msgspec.Meta(gt=0)] | None = None
    window_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    price_input: _Price | None = None
    price_output: _Price | None = None
    approval_timeout_seconds: _Seconds = 300.0
    notify: Literal["off", "bell", "desktop"] = "bell"


DESCRIPTIONS: Mapping[str, str] = {
    "provider": "Provider API: `openai` (or any compatible server) or `anthropic`.",
    "model": "Name of the model.",
    "base_url": "URL of the model's server. Empty: the provider's own.",
    "mode": "Permission mode: read_only, default, accept_edits, contained or trusted.",
    "policy": "Policy file. Empty: policy.yaml in the config directory, if it exists.",
    "network": "Let commands use the network.",
    "allow_unsandboxed": "Offer a tool for commands without a sandbox. Every call requires approval.",
    "extra_read_paths": "Directories outside the workspace that commands may read.",
    "toolchain": "Directories of programs for commands, as in PATH. auto: those that your shell finds.",
    "diagnostics": "Checks of edited files: off, auto (those the project configures), or a list: ruff, pyright, tsc.",
    "undo": "What can be undone: all, edits (commands then write at once), or off (and nothing is tried first).",
    "max_model_calls": "Maximum number of model requests of a run.",
    "max_tool_calls": "Maximum number of tool calls of a run.",
    "max_seconds": "Maximum duration of a run in seconds.",
    "max_tokens": "Maximum number of tokens of a run.",
    "max_cost": "Maximum cost of a run, in the currency of the prices.",
    "window_tokens": "Window of the model in tokens. Older outputs are left out of what it sees before it is full.",
    "price_input": "Price of a million input tokens. Costs are counted when both prices are set.",
    "price_output": "Price of a million output tokens.",
    "notify": "What the terminal does when a question waits: off, bell or desktop (a bell and a notification).",
    "approval_timeout_seconds": "Seconds that a question in a terminal waits for an answer.",
}

SETTING_TYPES: Mapping[str, Any] = {
    name: hint for name, hint in get_type_hints(Settings, include_extras=True).items() if name in DESCRIPTIONS
}


def _take_lower(user_value: float | None, project_value: float | None) -> float | None:
    return min((value for value in (user_value, project_value) if value is not None), default=None)


def _take_stricter(user_value: PermissionMode, project_value: PermissionMode) -> PermissionMode:
    return min(user_value, project_value, key=_STRICTEST_FIRST.index)


def _allow_only_both(user_value: bool, project_value: bool) -> bool:
    return user_value and project_value


def _keep_off(user_value: str | tuple[str, ...], project_value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    return user_value if user_value in (OFF, (OFF,)) else project_value


def _take_project(user_value: Any, project_value: Any) -> Any:
    return project_value


#: What becomes of a value of the user and one of the project. What is not here, a project cannot set.
PROJECT_MERGES: Mapping[str, Callable[[Any, Any], Any]] = {
    "model": _take_project,
    "mode": _take_stricter,
    "network": _allow_only_both,
    "diagnostics": _keep_off,
    "allow_unsandboxed": _allow_only_both,
    **{name: _take_lower for name in SETTING_TYPES if name.startswith("max_")},
    "window_tokens": _take_lower,
    "approval_timeout_seconds": _take_lower,
}


class LoadedSettings(NamedTuple):
    """The settings, where each comes from, and notes."""

    settings: Settings
    #: By name: `default`, a file and its line, a variable, or an option.
    origins: Mapping[str, str]
    #: What of the project did not count, and why.
    notes: tuple[str, ...] = ()


def load_settings(
    user_paths: UserPaths,
    project: TrustedProject,
    environ: Mapping[str, str] = os.environ,
    options: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Load the settings. Raise `PolicyFileError` or `ConfigurationError`, with the place, for invalid ones.

    Args:
        options: The options of the command line, by name; None: not given.
    """
    file = None if user_paths.config is None else user_paths.settings_file
    values = read_values(str(file), SETTING_TYPES) if file is not None and file.exists() else {}
    project_values, notes = _read_project_values(project, values)
    values |= project_values
    for name, renamed in RENAMED.items():
        if environ.get(variable_name(name)):
            raise ConfigurationError(f"{variable_name(name)} was renamed to {variable_name(renamed)}.")
    for name in DESCRIPTIONS:
        variable = variable_name(name)
        if text := environ.get(variable, ""):
            values[name] = SettingValue(parse_setting(name, SETTING_TYPES[name], text, variable), variable)
        if options and options.get(name) is not None:
            values[name] = SettingValue(options[name], f"--{name.replace('_', '-')}")
    settings = Settings(**{name: value.value for name, value in values.items()})
    origins = {name: values[name].origin if name in values else "default" for name in DESCRIPTIONS}
    return LoadedSettings(settings, origins, notes)


def variable_name(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"INTERLOCK_{name.upper()}"


def _read_project_values(
    project: TrustedProject, user_values: Mapping[str, SettingValue]
) -> tuple[dict[str, SettingValue], tuple[str, ...]]:
    content = project.content(PROJECT_SETTINGS)
    if content is None:
        return {}, ()
    project_values = read_values(project.path(PROJECT_SETTINGS), SETTING_TYPES, content, allowed=PROJECT_MERGES)
    defaults = Settings()
    accepted: dict[str, SettingValue] = {}
    notes: list[str] = []
    for name, value in project_values.items():
        user_value = user_values[name].value if name in user_values else getattr(defaults, name)
        result = PROJECT_MERGES[name](user_value, value.value)
        if result == value.value:
            accepted[name] = value
        else:
            notes.append(describe_ignored(name, user_value, value))
    return accepted, tuple(notes)
