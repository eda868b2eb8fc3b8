"""`interlock config`: settings, where each comes from, and how to change one. Keys are never shown and never kept."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from ...domain.errors import ConfigurationError
from ...policy.files.replace import lock_folder, replace_file
from ...policy.files.source import read_file
from ..config.model_keys import find_key, where_to_put
from ..config.places import find_places, make_private
from ..config.project import FOLDER, find_root
from ..config.settings import ABOUT, TYPES, Loaded, Settings, load_settings
from ..config.settings_file import changed, parsed_text, read_values, unknown
from ..display.output import compact, say, say_json, say_table
from ..exit_codes import ExitCode, exits
from ..options import Json
from .trust import files_of_project

_EXITS = exits({ExitCode.OK: "done", ExitCode.USAGE: "bad usage, or a file that is not in order"})

Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The name of a setting.", show_default=False, autocompletion=lambda: list(ABOUT)
    ),
]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, epilog=_EXITS
)


@app.callback()
def config() -> None:
    """Show and change settings, and where each comes from.

    They come from your config.toml, from .interlock/config.toml of a trusted project, which may choose the model and
    else only tighten, from variables (INTERLOCK_MODEL for model) and from options; the last of these counts. Keys of
    models come from the environment or a keyring only.
    """


@app.command(epilog=_EXITS)
def show(as_json: Json = False) -> None:
    """Show every setting and where it comes from."""
    loaded = load_settings(places := find_places(), files_of_project(Path(), places, ask=False, only_look=True))
    for note in loaded.notes:
        say(f"note: {note}", error=True)
    settings = loaded.settings
    key = find_key(settings.provider, settings.base_url)
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(settings)
        say_json(
            {
                "settings": {name: {"value": found[name], "from": loaded.origins[name]} for name in ABOUT},
                "key": {"found": key is not None, "from": key.origin if key else ""},
                "notes": loaded.notes,
            }
        )
        return
    say_table(("SETTING", "VALUE", "FROM"), [(name, _shown(loaded, name), loaded.origins[name]) for name in ABOUT])
    say(f"key: from {key.origin}" if key else f"key: none; set {where_to_put(settings.provider, settings.base_url)}")


def _shown(loaded: Loaded, name: str) -> str:
    value = msgspec.to_builtins(getattr(loaded.settings, name))
    if value is None:
        return "no limit" if name.startswith("max_") else "none"
    return value or '""' if isinstance(value, str) else compact(value)


@app.command(epilog=_EXITS)
def path(as_json: Json = False) -> None:
    """Show where settings, runs and the files of this project are looked for."""
    places = find_places()
    found = {
        "settings": places.config and places.settings_file,
        "policy": places.config and places.policy_file,
        "skills": places.config and places.skills,
        "project": find_root(Path()) / FOLDER,
        "runs": Path(named) if (named := os.environ.get("INTERLOCK_LOG")) else places.state and places.log,
        "artifacts": places.state and places.artifacts,
        "trusted projects": places.state and places.trust_file,
    }
    if as_json:
        say_json({name: None if place is None else str(place) for name, place in found.items()})
    else:
        say_table(("WHAT", "THERE", "WHERE"), [(name, *_there(place)) for name, place in found.items()])


def _there(place: Path | None) -> tuple[str, str]:
    if place is None:
        return "no", "nowhere: this user has no home folder"
    return ("yes" if place.exists() else "no"), str(place)


@app.command("set", epilog=_EXITS)
def set_value(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value; paths as in PATH.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Write a setting into your config.toml."""
    _require_known(name)
    _write(name, parsed_text(name, TYPES[name], value, "VALUE"), as_json)


@app.command(epilog=_EXITS)
def unset(name: Name, as_json: Json = False) -> None:
    """Take a setting out of your config.toml."""
    _require_known(name)
    _write(name, None, as_json)


@app.command(epilog=_EXITS)
def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of config.toml."""
    described: Any = msgspec.json.schema(Settings)
    properties = described["$defs"]["Settings"]["properties"]
    for name, about in ABOUT.items():
        properties[name]["description"] = about
    described["$defs"]["Settings"]["additionalProperties"] = False
    say_json(described)


def _require_known(name: str) -> None:
    if name not in ABOUT:
        why = unknown(name, TYPES)
        raise ConfigurationError(f"{why[0].upper()}{why[1:].rstrip('?')}. The settings are: {', '.join(ABOUT)}.")


def _write(name: str, value: Any, as_json: bool) -> None:
    file = find_places().settings_file
    plain = msgspec.to_builtins(value)
    make_private(file.parent)
    with lock_folder(str(file)):
        content = read_file(str(file)) if file.exists() else b""
        read_values(str(file), TYPES, content)
        replace_file(str(file), changed(content, name, plain, str(file)))
    if as_json:
        say_json({"path": str(file), "key": name, "value": plain})
    else:
        say(f"{file}: {name} {'is not set' if plain is None else f'= {compact(plain)}'}")
