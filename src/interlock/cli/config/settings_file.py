"""A file of settings: plain keys at the top level of a TOML file.

Everything that is wrong with it is said at once, with its line. It is changed as text: one line is put in, replaced or
taken out, and everything else stays as it was.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec

from ...domain.errors import ConfigurationError
from ...policy.files.problems import PolicyFileError, PolicyProblem
from ...policy.files.source import parse_source, read_policy_file

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
            values[name] = SettingValue(_check_value(name, types, given, allowed), f"{path}:{source.line_at([name])}")
        except ValueError as error:
            problems.append(source.make_problem([name], str(error)))
    if problems:
        raise PolicyFileError(problems)
    return values


def parse_setting(name: str, type_: Any, text: str, origin: str) -> Any:
    """Return a value from a variable or the command line. Several paths are separated as in `PATH`."""
    try:
        given: Any = text.split(os.pathsep) if "tuple[" in str(type_) else text
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
        expected[name] = list(value) if _is_list(value) else value
    if _try_parse(after, path) != expected:
        raise ConfigurationError(f"{path} cannot be changed line by line; change {name} there yourself.")
    return after


def describe_ignored(name: str, user_value: Any, project_value: SettingValue) -> str:
    setting = f"{project_value.origin}: {name} = {_to_toml(project_value.value)}"
    return f"{setting} was ignored: a project can only tighten, and {_to_toml(user_value)} holds"


def describe_unknown(name: str, types: Mapping[str, Any]) -> str:
    shown = name[:_MAX_SHOWN]
    if _SECRET_NAME.search(name):
        return f"there is no setting {shown}: keys are taken from the environment or a keyring, and never from a file"
    near = difflib.get_close_matches(name, types, n=1)
    return f"there is no setting {shown}{f'; is it {near[0]}?' if near else ''}"


def _try_parse(content: bytes, path: str) -> Any:
    try:
        return parse_source(content, path).value
    except PolicyFileError:
        return None


def _check_value(name: str, types: Mapping[str, Any], given: Any, allowed: Container[str] | None) -> Any:
    if name not in types:
        raise ValueError(describe_unknown(name, types))
    if allowed is not None and name not in allowed:
        raise ValueError(f"a project cannot set {name}; it is for the settings of a user")
    return _convert_value(name, types[name], given, strict=True)


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
    if error.startswith("Invalid enum value"):
        return f"{name} must be one of {', '.join(_list_choices(type_))}"
    found = _EXPECTED_TYPE.match(error)
    return f"{name} must be {_TYPE_LABELS.get(found[1], found[1])}{found[2]}" if found else f"{name}: {error}"


def _list_choices(type_: Any) -> list[str]:
    return [str(each) for each in (get_args(type_) or type_)]


def _check_address(name: str, value: str) -> None:
    if not value:
        return
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{name} must be an http or https address")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(f"{name} must not hold a user, a password or a query: keys have their own place")


def _check_path(name: str, value: str) -> None:
    if value and not os.path.isabs(os.path.expanduser(value)):
        raise ValueError(f"{name}: write a whole path, from / or ~ on")


def _check_paths(name: str, value: tuple[str, ...]) -> None:
    for path in value:
        _check_path(name, path)


_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "base_url": _check_address,
    "policy": _check_path,
    "readable": _check_paths,
}


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _to_toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
