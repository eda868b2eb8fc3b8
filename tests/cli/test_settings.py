"""Settings: which source counts, and what a project may say."""

import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.cli.config.model_keys import find_key
from interlock.cli.config.policy_files import load_policy
from interlock.cli.config.project_trust import TrustedProject, UntrustedProject, check_trust, trust_project
from interlock.cli.config.settings import (
    DESCRIPTIONS,
    PROJECT_MERGES,
    SETTING_TYPES,
    LoadedSettings,
    Settings,
    load_settings,
    read_values,
    replace_setting,
)
from interlock.cli.config.user_paths import UserPaths
from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.policy.files.problems import PolicyFileError

from .conftest import write

CONFIG = ".interlock/config.toml"


def trust(root: Path, places: UserPaths) -> TrustedProject:
    found = check_trust(root, places)
    return trust_project(found, places) if isinstance(found, UntrustedProject) else found


def load(project: Path, places: UserPaths, environ: dict[str, str] | None = None, **options: Any) -> LoadedSettings:
    return load_settings(places, trust(project, places), environ or {}, options)


def test_without_any_file_everything_is_as_it_is_by_default(project: Path, places: UserPaths) -> None:
    loaded = load(project, places)

    assert loaded == LoadedSettings(Settings(), dict.fromkeys(DESCRIPTIONS, "default"))
    assert set(DESCRIPTIONS) == {field.name for field in msgspec.structs.fields(Settings)}


def test_the_nearest_source_counts_and_is_named(project: Path, places: UserPaths) -> None:
    user = write(places.settings_file, 'provider = "anthropic"\nmodel = "mine"\nmax_seconds = 100\nmax_cost = 9\n')
    theirs = write(project / CONFIG, 'model = "theirs"\nmax_seconds = 50\n')

    loaded = load(project, places, {"INTERLOCK_MAX_COST": "3.5"}, max_tool_calls=7, mode=None)

    assert loaded.settings == Settings(
        provider="anthropic", model="theirs", max_seconds=50, max_cost=3.5, max_tool_calls=7
    )
    assert [loaded.origins[name] for name in ("provider", "model", "max_seconds", "max_cost", "max_tool_calls")] == [
        f"{user}:1",
        f"{theirs}:1",
        f"{theirs}:2",
        "INTERLOCK_MAX_COST",
        "--max-tool-calls",
    ]


def test_a_project_that_is_not_trusted_says_nothing(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, 'model = "theirs"\n')

    assert load_settings(places, TrustedProject(str(project)), {}).settings == Settings()


def test_what_a_project_would_loosen_is_ignored_and_told(project: Path, places: UserPaths) -> None:
    theirs = write(project / CONFIG, 'mode = "trusted"\nnetwork = true\nmax_tool_calls = 201\n')

    loaded = load(project, places)

    assert loaded.settings == Settings()
    assert loaded.notes == (
        f'{theirs}:1: mode = "trusted" was ignored: a project can only tighten; "default" applies',
        f"{theirs}:2: network = true was ignored: a project can only tighten; false applies",
        f"{theirs}:3: max_tool_calls = 201 was ignored: a project can only tighten; 200 applies",
    )


@pytest.mark.parametrize("name", sorted(set(DESCRIPTIONS) - set(PROJECT_MERGES)))
def test_a_project_never_says_where_keys_go_who_decides_or_what_is_reached(
    project: Path, places: UserPaths, name: str
) -> None:
    value = {"provider": '"anthropic"', "extra_read_paths": '["/"]'}.get(name, '"/x"')
    file = write(project / CONFIG, f"\n{name} = {value}\n")

    with pytest.raises(PolicyFileError) as refused:
        load(project, places)

    assert str(refused.value) == f"{file}:2: a project cannot set `{name}`; set it in the user's settings"


sources = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from([str(mode) for mode in PermissionMode]),
        "network": st.booleans(),
        "allow_unsandboxed": st.booleans(),
        "max_model_calls": st.integers(1, 1_000),
        "max_tool_calls": st.integers(1, 1_000),
        "max_seconds": st.integers(1, 1_000),
        "max_tokens": st.integers(1, 1_000),
        "max_cost": st.integers(1, 1_000),
        "approval_timeout_seconds": st.integers(1, 1_000),
    },
)


def looseness(loaded: LoadedSettings) -> dict[str, float]:
    found = loaded.settings
    numbers = {name: getattr(found, name) for name in DESCRIPTIONS if name.startswith("max_")}
    return {
        "mode": list(PermissionMode).index(found.mode),
        "network": found.network,
        "allow_unsandboxed": found.allow_unsandboxed,
        "approval": found.approval_timeout_seconds,
        **{name: float("inf") if value is None else value for name, value in numbers.items()},
    }


def toml(values: dict[str, Any]) -> str:
    return "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in values.items())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(user=sources, theirs=sources)
def test_a_project_never_loosens_anything(
    project: Path, places: UserPaths, user: dict[str, Any], theirs: dict[str, Any]
) -> None:
    write(places.settings_file, toml(user))
    write(project / CONFIG, toml(theirs))

    alone, together = load_settings(places, TrustedProject(str(project)), {}), load(project, places)

    before, after = looseness(alone), looseness(together)
    assert {name for name in before if after[name] > before[name]} == set()


def test_everything_that_is_wrong_is_said_at_once_with_its_line(project: Path, places: UserPaths) -> None:
    file = write(
        places.settings_file,
        'modl = "x"\napi_key = "sk-1"\nmax_seconds = "3"\nmax_tool_calls = 0\nmode = "no"\nextra_read_paths = ["a"]\n'
        'base_url = "http://u:p@h"\nnetwork = 1\n[a]\nb = 1\n',
    )

    with pytest.raises(PolicyFileError) as refused:
        load(project, places)

    assert str(refused.value).replace(f"{file}:", "").splitlines() == [
        "1: Unknown setting `modl`. Did you mean `model`?",
        "2: Unknown setting `api_key`. Keys are read from the environment or a keyring, never from a file.",
        "3: max_seconds must be a number",
        "4: max_tool_calls must be a whole number >= 1",
        "5: mode must be one of read_only, default, accept_edits, contained, trusted",
        "6: extra_read_paths must be an absolute path or begin with ~",
        "7: base_url must not contain a user, a password or a query",
        "8: network must be true or false",
        f"9: Unknown setting `a`. Known: {', '.join(SETTING_TYPES)}.",
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "x", "1e999", "9" * 400])
def test_a_budget_in_a_variable_is_a_number_that_limits(project: Path, places: UserPaths, value: str) -> None:
    with pytest.raises(ConfigurationError, match="INTERLOCK_MAX_SECONDS: max_seconds"):
        load(project, places, {"INTERLOCK_MAX_SECONDS": value})


@settings(deadline=None)
@given(text=st.text(max_size=60) | st.binary(max_size=60))
def test_no_file_of_settings_is_a_crash(text: str | bytes) -> None:
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    with suppress(PolicyFileError):
        read_values("config.toml", SETTING_TYPES, content)


BEFORE = b'# mine\nmodel = "a"  # old\n\nmax_seconds = 3'


def test_a_setting_is_changed_and_all_else_stays_as_it_was() -> None:
    assert replace_setting(BEFORE, "model", "b", "c.toml") == b'# mine\nmodel = "b"\n\nmax_seconds = 3'
    assert replace_setting(BEFORE, "network", True, "c.toml") == BEFORE + b"\nnetwork = true\n"
    assert replace_setting(BEFORE, "max_seconds", None, "c.toml") == b'# mine\nmodel = "a"  # old\n\n'
    assert replace_setting(b"", "extra_read_paths", ("/a",), "c.toml") == b'extra_read_paths = ["/a"]\n'


@pytest.mark.parametrize(
    "before",
    [b'extra_read_paths = [\n"/a",\n]\n', b'policy = """\nextra_read_paths = 1\n"""\nextra_read_paths = ["/"]\n'],
)
def test_what_takes_more_than_a_line_is_left_to_its_owner(before: bytes) -> None:
    with pytest.raises(ConfigurationError, match="Edit extra_read_paths in it by hand"):
        replace_setting(before, "extra_read_paths", ("/b",), "c.toml")


@given(value=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40))
def test_a_text_is_read_back_as_it_was_written(value: str) -> None:
    try:
        content = replace_setting(BEFORE, "model", value, "c.toml")
    except ConfigurationError:
        return
    assert read_values("c.toml", SETTING_TYPES, content)["model"].value == value


def test_a_key_is_for_whoever_issued_it() -> None:
    environ = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"}

    own, elsewhere = find_key("anthropic", "", environ), find_key("openai", "http://localhost:1", environ)
    named = find_key("openai", "http://localhost:1", {**environ, "INTERLOCK_API_KEY": " k "})

    assert own is not None
    assert (own.value, own.origin, elsewhere) == ("sk-a", "ANTHROPIC_API_KEY", None)
    assert "sk-a" not in repr(own)
    assert named is not None
    assert named.value == "k"


def test_a_keyring_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_password(service: str, name: str) -> str | None:
        if name == "broken":
            raise RuntimeError("no keyring here")
        return {"openai": "from the ring", "localhost": "local"}.get(name)

    ring = module_from_spec(ModuleSpec("keyring", None))
    monkeypatch.setattr(ring, "get_password", get_password, raising=False)
    monkeypatch.setitem(sys.modules, "keyring", ring)

    found = [find_key("openai", "", {}), find_key("openai", "http://localhost:1/v1", {})]

    assert [(key.value, key.origin) for key in found if key] == [
        ("from the ring", "keyring entry interlock/openai"),
        ("local", "keyring entry interlock/localhost"),
    ]
    assert (find_key("anthropic", "", {}), find_key("broken", "", {})) == (None, None)


def test_the_policy_of_a_run_is_that_of_the_user_and_of_the_trusted_project(project: Path, places: UserPaths) -> None:
    write(places.policy_file, "version: 1\nallow: [bash(make)]\n")
    write(project / ".interlock/policy.yaml", "version: 1\ndeny: [bash(git push:*)]\n")

    trusted = load_policy(Settings(), places, trust(project, places), str(project))
    alone = load_policy(Settings(), places, TrustedProject(str(project)), str(project))

    assert sorted(rule.layer for rule in trusted.rules) == ["project rule", "user rule"]
    assert [rule.layer for rule in alone.rules] == ["user rule"]


def test_a_policy_that_was_named_and_is_missing_stops_everything(project: Path, places: UserPaths) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_policy(Settings(policy=str(project / "none.yaml")), places, TrustedProject(""), str(project))


def test_renamed_settings_name_their_successor(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('outside = true\nreadable = ["/a"]\n')

    with pytest.raises(PolicyFileError) as refused:
        read_values(str(file), SETTING_TYPES)

    assert str(refused.value).splitlines() == [
        f"{file}:1: Setting `outside` was renamed to `allow_unsandboxed`.",
        f"{file}:2: Setting `readable` was renamed to `extra_read_paths`.",
    ]


@pytest.mark.parametrize(
    ("user", "project_line", "expected"),
    [
        ("", "", "auto"),
        ('diagnostics = "off"', "", "off"),
        ('diagnostics = "off"', 'diagnostics = ["ruff"]', "off"),
        ("", 'diagnostics = "off"', "off"),
        ('diagnostics = ["ruff"]', 'diagnostics = ["tsc", "*.js: eslint {file}"]', ("tsc", "*.js: eslint {file}")),
    ],
)
def test_a_project_chooses_diagnostics_unless_they_are_off(
    project: Path, places: UserPaths, user: str, project_line: str, expected: str | tuple[str, ...]
) -> None:
    write(places.settings_file, f"{user}\n")
    write(project / CONFIG, f"{project_line}\n")

    assert load(project, places).settings.diagnostics == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("diagnostics = 3", "diagnostics must be off, auto or a list of checkers"),
        ('diagnostics = "ruff"', "diagnostics must be off, auto or a list of checkers"),
        ('diagnostics = ["rufff"]', "Did you mean `ruff`"),
    ],
)
def test_wrong_diagnostics_are_reported(project: Path, places: UserPaths, line: str, message: str) -> None:
    write(places.settings_file, f"{line}\n")

    with pytest.raises(PolicyFileError, match=message):
        load(project, places)


def test_a_variable_lists_checkers(project: Path, places: UserPaths) -> None:
    assert load(project, places, {"INTERLOCK_DIAGNOSTICS": "ruff,tsc"}).settings.diagnostics == ("ruff", "tsc")
