"""`interlock config` and `interlock tools`, as people and programs use them."""

import json
from pathlib import Path

import pytest

from interlock.cli.config.settings import DESCRIPTIONS

from .conftest import Run, write


def test_show_says_where_each_value_comes_from(cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_MODEL", "m")

    shown = cli("config", "show")
    found = json.loads(cli("config", "show", "--json").stdout)

    assert (shown.exit_code, shown.stdout.splitlines()[0].split()) == (0, ["SETTING", "VALUE", "FROM"])
    assert ["model", "m", "INTERLOCK_MODEL"] in [line.split() for line in shown.stdout.splitlines()]
    assert "key: none; set OPENAI_API_KEY" in shown.stdout
    assert found["settings"]["model"] == {"value": "m", "from": "INTERLOCK_MODEL"}
    assert list(found["settings"]) == list(DESCRIPTIONS)


def test_a_key_is_never_shown(cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    shown = [cli("config", "show"), cli("config", "show", "--json"), cli("config", "set", "api_key", "sk-secret")]

    assert "key: from OPENAI_API_KEY" in shown[0].stdout
    assert all("sk-secret" not in result.output for result in shown)
    assert shown[2].exit_code == 2


def test_set_writes_what_show_reads_and_unset_takes_it_out(cli: Run, home: Path) -> None:
    assert cli("config", "set", "mode", "read_only").exit_code == 0
    assert json.loads(cli("config", "set", "extra_read_paths", "/a:/b", "--json").stdout)["value"] == ["/a", "/b"]
    assert json.loads(cli("config", "show", "--json").stdout)["settings"]["mode"]["value"] == "read_only"
    assert cli("config", "unset", "mode").exit_code == 0

    file = home / ".config/interlock/config.toml"
    assert file.read_text() == 'extra_read_paths = ["/a", "/b"]\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_no_setting_is_refused_and_nothing_is_written(cli: Run, home: Path) -> None:
    for arguments in (("nothing", "1"), ("max_seconds", "soon"), ("base_url", "ftp://x"), ("extra_read_paths", "a")):
        result = cli("config", "set", *arguments)
        assert (result.exit_code, result.stderr.startswith("interlock: ")) == (2, True)

    assert list(home.glob(".config/interlock/*")) == []


def test_a_file_that_is_not_in_order_is_not_changed(cli: Run, home: Path) -> None:
    file = write(home / ".config/interlock/config.toml", "modl = 1\n")

    result = cli("config", "set", "model", "m")

    assert (result.exit_code, result.stderr) == (2, f"{file}:1: Unknown setting `modl`. Did you mean `model`?\n")
    assert file.read_text() == "modl = 1\n"


def test_an_untrusted_project_is_one_line_and_counts_for_nothing(cli: Run, project: Path) -> None:
    write(project / ".interlock/config.toml", 'model = "theirs"')

    before = cli("config", "show", "--json")
    cli("trust", "--yes")
    after = cli("config", "show", "--json")

    assert before.stderr == (
        f"The files that {project} brings were ignored: this project is not trusted yet. "
        "`interlock trust` shows them.\n"
    )
    assert json.loads(before.stdout)["settings"]["model"]["value"] == ""
    assert (json.loads(after.stdout)["settings"]["model"]["value"], after.stderr) == ("theirs", "")


def test_path_says_where_things_are(cli: Run, home: Path, project: Path) -> None:
    found = json.loads(cli("config", "path", "--json").stdout)

    assert found["settings"] == str(home / ".config/interlock/config.toml")
    assert found["runs"] == str(home / ".local/state/interlock/runs.db")
    assert found["project"] == str(project / ".interlock")
    assert cli("config", "path").exit_code == 0


def test_schema_describes_every_setting(cli: Run) -> None:
    found = json.loads(cli("config", "schema").stdout)["$defs"]["Settings"]

    assert {name: entry["description"] for name, entry in found["properties"].items()} == DESCRIPTIONS
    assert found["additionalProperties"] is False


def test_tools_are_listed_with_their_risk_and_what_the_policy_says(cli: Run, home: Path) -> None:
    write(home / ".config/interlock/policy.yaml", "version: 1\ndeny: [write_file]\n")

    lines = [line.split() for line in cli("tools").stdout.splitlines()]
    found = {tool["name"]: tool for tool in json.loads(cli("tools", "--json").stdout)}

    rows = {line[0]: line[1:3] for line in lines}
    assert rows["read_file"] == ["read", "allow"]
    assert rows["write_file"] == ["write", "deny"]
    assert rows["bash"] == ["execute", "ask"]
    assert found["write_file"]["decision"]["rule_ids"] == ["user:deny:write_file"]


def test_skills_are_listed_once_the_project_that_brings_them_is_trusted(cli: Run, project: Path) -> None:
    write(
        project / ".interlock/skills/tea/SKILL.md", "---\nname: tea\ndescription: How to make tea.\n---\nBoil water.\n"
    )

    before = cli("tools")
    cli("trust", "--yes")
    after = cli("tools")

    assert "skill_tea" not in before.stdout
    assert "were ignored: this project is not trusted yet" in before.stderr
    assert ["skill_tea", "read", "allow", "How"] in [line.split()[:4] for line in after.stdout.splitlines()]
    assert "read_artifact" in after.stdout


def test_a_key_is_no_setting_and_it_says_where_it_belongs(cli: Run, home: Path) -> None:
    ended = cli("config", "set", "api_key", "sk-1")

    assert ended.exit_code == 2
    assert "Unknown setting `api_key`. Keys are read from the environment or a keyring" in ended.stderr


def test_a_tool_is_shown_with_its_schema(cli: Run, home: Path) -> None:
    shown, found = cli("tools", "show", "grep"), json.loads(cli("tools", "show", "grep", "--json").stdout)
    unknown = cli("tools", "show", "grip")

    assert shown.stdout.startswith("grep: read; default: allow")
    assert "pattern" in found["schema"]["properties"]
    assert (unknown.exit_code, "Unknown tool `grip`. Did you mean `grep`?" in unknown.stderr) == (2, True)


def test_tools_with_a_policy_that_is_not_in_order_say_what_is_wrong(cli: Run, home: Path) -> None:
    file = write(home / ".config/interlock/policy.yaml", "version: 9\n")

    result = cli("tools")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:1: ")
