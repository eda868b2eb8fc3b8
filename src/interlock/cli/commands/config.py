"""`interlock config`: settings, where each comes from, and how to change one. Keys are never shown and never kept."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from ...domain.errors import ConfigurationError
from ...policy.files.atomic_write import lock_folder, replace_file
from ...policy.files.source import read_policy_file
from ...rendering.text import to_compact_json
from ..config.model_keys import find_key, get_key_variable
from ..config.project_trust import PROJECT_FOLDER, find_project_root
from ..config.settings import (
    DESCRIPTIONS,
    SETTING_TYPES,
    LoadedSettings,
    Settings,
    describe_unknown_setting,
    load_settings,
    parse_setting,
    read_values,
    replace_setting,
)
from ..config.user_paths import find_user_paths, make_private_folder
from ..display.output import echo, echo_json, echo_list, echo_result, echo_table
from ..exit_codes import format_exit_codes
from ..options import JsonOption, argument, create_app
from ..session.trust import resolve_project

_EXITS = format_exit_codes(ok="done", usage="bad usage, or an invalid file")

SettingArgument: TypeAlias = Annotated[
    str, argument("KEY", "Name of a setting.", complete=lambda incomplete: list(DESCRIPTIONS))
]

app = create_app(_EXITS, is_group=True)


@app.callback()
def config() -> None:
    """Show and change settings, and where each comes from.

    They come from your config.toml, from .interlock/config.toml of a trusted project, which may choose the model and
    else only tighten, from variables (INTERLOCK_MODEL for model) and from options; the last of these counts. Keys of
    models come from the environment or a keyring only.
    """


@app.command(epilog=_EXITS)
def show(as_json: JsonOption = False) -> None:
    """Show every setting and where it comes from."""
    loaded = load_settings(
        user_paths := find_user_paths(), resolve_project(Path(), user_paths, ask=False, inspect_only=True)
    )
    for note in loaded.notes:
        echo(f"note: {note}", error=True)
    settings, names = loaded.settings, list(DESCRIPTIONS)
    key = find_key(settings.provider, settings.base_url)
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(settings)
        values = {name: {"value": found[name], "from": loaded.origins[name]} for name in names}
        origin = {"found": key is not None, "from": key.origin if key else ""}
        echo_json({"settings": values, "key": origin, "notes": loaded.notes})
        return
    rows = [(name, _format_value(loaded, name), loaded.origins[name]) for name in names]
    echo_table(("SETTING", "VALUE", "FROM"), rows)
    variable = get_key_variable(settings.provider, settings.base_url)
    echo(f"key: from {key.origin}" if key else f"key: none; set {variable}")


def _format_value(loaded: LoadedSettings, name: str) -> str:
    value = msgspec.to_builtins(getattr(loaded.settings, name))
    if value is None:
        return "no limit" if name.startswith("max_") else "none"
    return value or '""' if isinstance(value, str) else to_compact_json(value)


@app.command(epilog=_EXITS)
def path(as_json: JsonOption = False) -> None:
    """Show where settings, runs and the files of this project are looked for."""
    user_paths = find_user_paths()
    found = {
        "settings": user_paths.config and user_paths.settings_file,
        "policy": user_paths.config and user_paths.policy_file,
        "skills": user_paths.config and user_paths.skills_folder,
        "project": find_project_root(Path()) / PROJECT_FOLDER,
        "runs": Path(named) if (named := os.environ.get("INTERLOCK_LOG")) else user_paths.state and user_paths.log,
        "artifacts": user_paths.state and user_paths.artifacts,
        "trusted projects": user_paths.state and user_paths.trust_file,
    }
    rows = [
        (name, "yes" if place and place.exists() else "no", str(place or "none: this user has no home directory"))
        for name, place in found.items()
    ]
    values = {name: place and str(place) for name, place in found.items()}
    echo_list(as_json, values, ("WHAT", "THERE", "WHERE"), rows, empty="")


@app.command("set", epilog=_EXITS)
def set_value(
    name: SettingArgument,
    value: Annotated[str, argument("VALUE", "Value; several paths are separated by `:`.")],
    as_json: JsonOption = False,
) -> None:
    """Write a setting into your config.toml."""
    _require_setting(name)
    _write_setting(name, parse_setting(name, SETTING_TYPES[name], value, "VALUE"), as_json)


@app.command(epilog=_EXITS)
def unset(name: SettingArgument, as_json: JsonOption = False) -> None:
    """Remove a setting from your config.toml."""
    _require_setting(name)
    _write_setting(name, None, as_json)


@app.command(epilog=_EXITS)
def schema(as_json: JsonOption = False) -> None:
    """Print the JSON Schema of config.toml."""
    described: Any = msgspec.json.schema(Settings)
    properties = described["$defs"]["Settings"]["properties"]
    for name, about in DESCRIPTIONS.items():
        properties[name]["description"] = about
    described["$defs"]["Settings"]["additionalProperties"] = False
    echo_json(described)


def _require_setting(name: str) -> None:
    if name not in DESCRIPTIONS:
        raise ConfigurationError(describe_unknown_setting(name, SETTING_TYPES))


def _write_setting(name: str, value: Any, as_json: bool) -> None:
    file = find_user_paths().settings_file
    plain = msgspec.to_builtins(value)
    make_private_folder(file.parent)
    with lock_folder(str(file)):
        content = read_policy_file(str(file)) if file.exists() else b""
        read_values(str(file), SETTING_TYPES, content)
        replace_file(str(file), replace_setting(content, name, plain, str(file)))
    shown = "is not set" if plain is None else f"= {to_compact_json(plain)}"
    echo_result(as_json, {"path": str(file), "key": name, "value": plain}, f"{file}: {name} {shown}")
