"""`interlock policy` on files: check, test, explain, import, schema, rules, revoke."""

import json
from pathlib import Path

import pytest
import yaml

from interlock.cli.config.user_paths import UserPaths
from interlock.policy.files.document import json_schema
from interlock.policy.files.policy_files import PolicyFiles, load_policy

from .conftest import Run, write
from .scripts import calls, write_script

IMPORTS = Path(__file__).parents[1] / "policy" / "imports"


def test_check_says_that_a_file_is_in_order(run: Run, policy: Path) -> None:
    result = run("check", policy)

    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{policy}: valid, 4 rules\n", "")


def test_check_says_what_is_wrong_in_which_line_of_every_file(run: Run, policy: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\nrules:\n  - id: a\n    decison: allow\n")

    result = run("check", policy, broken)

    assert result.exit_code == 1
    assert f"{broken}:4: decison: there is no such key. Did you mean `decision`?" in result.stderr
    assert ": valid, " in result.stdout


def test_check_knows_what_a_project_may_not_say(run: Run, policy: Path) -> None:
    result = run("check", policy, "--layer", "project", "--json")

    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)
    assert "a project file can only tighten" in found["problems"][0]["reason"]
    assert found["path"] == str(policy)


def test_a_file_that_cannot_be_read_is_not_a_wrong_file(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"

    for command in (("check",), ("test",), ("explain", "bash", "ls", "--policy"), ("rules", "--user")):
        result = run(*command, missing)
        assert (result.exit_code, result.stderr) == (2, f"{missing}: there is no such file\n")


def test_test_runs_all_examples_and_names_rules_without(run: Run, policy: Path) -> None:
    result = run("test", policy)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "2 examples, none of them wrong"
    assert "rules without examples: user:deny:path=.env, " in result.stdout


def test_test_says_which_examples_are_wrong(run: Run, policy: Path) -> None:
    policy.write_text(policy.read_text().replace("[a, b, c]", "[a]"))

    result = run("test", policy)

    assert result.exit_code == 1
    assert ":14: this example should match, and the rule many says nothing about it" in result.stderr
    assert "2 examples, 1 of them wrong" in result.stdout
    assert json.loads(run("test", policy, "--json").stdout)["failing"][0]["line"] == 14


def test_test_of_a_file_with_other_faults_says_those(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 2\n")

    result = run("test", file)

    assert result.exit_code == 1
    assert f"{file}:1: version: " in result.stderr


def test_explain_shows_every_rule_that_spoke_part_by_part_and_where_it_is_held_to(run: Run, policy: Path) -> None:
    result = run("explain", "bash", "npm test && cat .env", "--policy", policy)

    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[:3] == [
        "bash: deny (user rule)",
        "  Rule user:deny:path=.env says deny.",
        "  rules: user:deny:path=.env",
    ]
    assert "part 1: npm test: allow" in lines
    assert "part 2: cat .env: deny" in lines
    assert "  user:deny:path=.env (user rule) says deny: Rule user:deny:path=.env says deny." in lines
    assert [line for line in lines if line.startswith("  user:deny:path=.env: sandbox, ")]
    assert "\x1b" not in result.stdout


def test_explain_takes_json_arguments_and_every_option_of_the_situation(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "version: 1\n"
        "rules:\n"
        "  - {id: it, decision: deny, tools: send_mail, agent: clerk, mode: trusted, interactive: true, risk: network, "
        "origin: mcp, server: box, arguments: {to: ann}}\n"
    )
    options = ["--agent", "clerk", "--mode", "trusted", "--interactive", "--risk", "network", "--server", "box"]

    result = run("explain", "send_mail", '{"to": "ann"}', "--user", file, *options, "--origin", "mcp", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["decision"]["rule_ids"] == ["it"]
    assert run("explain", "send_mail", '{"to": "bob"}', "--user", file, *options, "--origin", "mcp").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "effect"),
    [
        ('{"order": "A 7"}', "refund:A%207; a second time is refused, as a new one after 86400 s"),
        ("{}", "the call is refused: effect key 'refund:{order}': there is no argument `order`. It has none."),
    ],
)
def test_explain_shows_the_effect_key(run: Run, tmp_path: Path, arguments: str, effect: str) -> None:
    file = tmp_path / "policy.yaml"
    declared = '{tools: refund, key: "refund:{order}", repeat: deny, repeat_after: 24h}'
    file.write_text(f"version: 1\neffects: [{declared}]\nallow: [refund]\n")

    assert f"  effect: {effect}" in run("explain", "refund", arguments, "--user", file).stdout.splitlines()
    assert json.loads(run("explain", "refund", arguments, "--user", file, "--json").stdout)["effect"] == effect


def test_explain_suggests_the_tool_that_was_meant(run: Run, policy: Path) -> None:
    assert "Did you mean `bash`?" in run("explain", "bsh", "{}", "--policy", policy).stderr
    assert "Did you mean" not in run("explain", "send_mail", "{}", "--policy", policy).stderr


def test_explain_resolves_paths_in_the_workspace(run: Run, policy: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to(tmp_path / ".env")

    assert run("explain", "read_file", "notes", "--policy", policy, "--workspace", tmp_path).exit_code == 1
    assert run("explain", "read_file", "other", "--policy", policy, "--workspace", tmp_path).exit_code == 0


def test_explain_joins_the_layers(run: Run, policy: Path, tmp_path: Path) -> None:
    project = tmp_path / "project.yaml"
    project.write_text("version: 1\nask: [bash(npm test)]\n")

    result = run("explain", "bash", "npm test", "--user", policy, "--project", project)

    assert result.exit_code == 0
    assert result.stdout.startswith("bash: ask (project rule)\n")


@pytest.mark.usefixtures("home")
def test_explain_without_a_policy_says_what_happens_without_one(run: Run) -> None:
    result = run("explain", "bash", "make", "--json")

    explained = json.loads(result.stdout)
    assert explained["decision"]["verdict"] == "ask"
    assert '"words":["make"]' in explained["decision"]["suggested_rule"]


@pytest.mark.parametrize("arguments", ["[1]", "{", '{"a": 1, "a": 2}'])
def test_arguments_that_are_no_object_are_bad_usage(run: Run, arguments: str) -> None:
    result = run("explain", "send_mail", arguments)

    assert result.exit_code == 2
    assert "Pass an object" in result.stderr or "must be a JSON object" in result.stderr


def test_one_file_for_the_user_is_enough(run: Run, policy: Path) -> None:
    result = run("explain", "bash", "ls", "--policy", policy, "--user", policy)

    assert result.exit_code == 2
    assert "given twice" in result.stderr


@pytest.mark.parametrize(
    ("source", "name"), [("claude", "settings.json"), ("codex", "default.rules"), ("gemini", "policy.toml")]
)
def test_what_is_imported_loads_and_the_notes_go_elsewhere(run: Run, tmp_path: Path, source: str, name: str) -> None:
    out = tmp_path / "new.yaml"

    printed = run("import", source, IMPORTS / name)
    written = run("import", source, IMPORTS / name, "--out", out)

    assert (printed.exit_code, written.exit_code, written.stdout) == (0, 0, "")
    assert out.read_text() == printed.stdout
    assert len(load_policy(out).rules) == len(yaml.safe_load(printed.stdout)["rules"])
    as_json = json.loads(run("import", source, IMPORTS / name, "--json").stdout)
    assert as_json["policy"] == yaml.safe_load(printed.stdout)
    assert all(f"note: {note}" in printed.stderr for note in as_json["notes"] if note.isascii() and "\\" not in note)


def test_import_overwrites_nothing_and_refuses_what_it_does_not_understand(run: Run, policy: Path) -> None:
    before = policy.read_text()

    result = run("import", "claude", IMPORTS / "settings.json", "--out", policy)

    assert (result.exit_code, policy.read_text()) == (2, before)
    assert f"interlock: {policy} already exists. Pass the name of a new file." in result.stderr
    assert run("import", "claude", policy).exit_code == 2
    assert run("import", "cursor", policy).exit_code == 2


def test_import_says_what_it_cannot_read_or_write(run: Run, tmp_path: Path) -> None:
    binary = tmp_path / "settings.json"
    binary.write_bytes(b"\xff\xfe")

    unreadable = run("import", "claude", binary)
    unwritable = run("import", "claude", IMPORTS / "settings.json", "--out", tmp_path / "no" / "file.yaml")

    assert (unreadable.exit_code, unreadable.stderr) == (2, f"interlock: {binary} is not UTF-8 text.\n")
    assert unwritable.exit_code == 2
    assert "cannot be written: No such file or directory." in unwritable.stderr


def test_schema_prints_the_json_schema(run: Run) -> None:
    assert json.loads(run("schema").stdout) == json_schema()


def test_rules_lists_layer_id_decision_and_what_a_rule_is_about(run: Run, policy: Path, tmp_path: Path) -> None:
    project = tmp_path / "project.yaml"
    project.write_text(
        "version: 1\nrules:\n  - {id: p, decision: deny, host: '*.evil.example', access: read, path: a}\n"
    )

    result = run("rules", "--user", policy, "--project", project)

    assert result.stdout.splitlines() == [
        "user rule: many: ask tools send_mail, when size(arguments.to) > 2",
        "project rule: p: deny tools *, path a, access read, host *.evil.example",
        "user rule: user:allow:bash(npm test): allow tools bash, command npm test",
        "user rule: user:deny:bash(git push:*): deny tools bash, command git push ...",
        "user rule: user:deny:path=.env: deny tools *, path .env",
    ]
    as_json = json.loads(run("rules", "--project", project, "--json").stdout)
    assert [(rule["layer"], rule["id"], rule["decision"]) for rule in as_json] == [("project", "p", "deny")]


def test_egress_rules_are_counted_listed_and_explained(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "egress.yaml"
    policy.write_text("version: 1\negress:\n  - allow: pypi.org\n  - {id: x, ask: a.test, ports: 8443, methods: GET}\n")

    assert run("check", policy).stdout == f"{policy}: valid, 2 rules\n"
    assert run("rules", "--user", policy).stdout.splitlines() == [
        "user rule: egress:allow:pypi.org: egress allow hosts pypi.org, ports 80 | 443",
        "user rule: x: egress ask hosts a.test, ports 8443, methods GET",
    ]
    assert [rule["about"] for rule in json.loads(run("rules", "--user", policy, "--json").stdout)][1].startswith(
        "hosts a"
    )
    explained = run("explain", "bash", "curl https://pypi.org", "--policy", policy).stdout
    assert "  egress: pypi.org:443 allow by egress:allow:pypi.org\n" in explained


def test_without_a_file_the_policy_of_runs_here_is_used(
    run: Run, cli: Run, project: Path, places: UserPaths, tmp_path: Path
) -> None:
    """What `explain` says is what a run does."""
    write(places.policy_file, "version: 1\nrules:\n  - {id: mine, decision: deny, tools: list_dir}\n")
    write(project / ".interlock" / "policy.yaml", "version: 1\nrules:\n  - {id: ours, decision: ask, tools: grep}\n")
    write(places.settings_file, 'mode = "read_only"\n')
    script = write_script(tmp_path / "script.json", calls(("list_dir", {})), "Done.")

    untrusted = run("rules", "--json")
    cli("trust", "--yes")
    trusted = run("rules", "--json")
    explained = json.loads(run("explain", "list_dir", "{}", "--json").stdout)
    ran = json.loads(cli("run", "List.", "--script", script, "--json").stdout)

    assert [rule["id"] for rule in json.loads(untrusted.stdout)] == ["mine"]
    assert "were ignored: this project is not trusted yet" in untrusted.stderr
    assert {rule["id"] for rule in json.loads(trusted.stdout)} == {"mine", "ours"}
    assert str(places.policy_file) in trusted.stderr
    assert explained["decision"]["verdict"] == "deny"
    assert ran["calls"][0]["code"] == "policy_denied"
    assert json.loads(run("explain", "write_file", '{"path": "a"}', "--json").stdout)["decision"]["verdict"] == "deny"


def test_revoke_takes_the_file_of_runs_by_default(run: Run, project: Path, places: UserPaths) -> None:
    write(places.policy_file, "version: 1\n")
    rule_id = PolicyFiles(user=places.policy_file).keep('{"decision": "allow", "tools": "bash", "command": "make all"}')

    assert run("revoke", rule_id).exit_code == 0
    assert rule_id not in places.policy_file.read_text()


def test_revoke_takes_out_a_kept_rule_and_nothing_else(run: Run, policy: Path) -> None:
    before = policy.read_text()
    rule_id = PolicyFiles(user=policy).keep('{"decision": "allow", "tools": "bash", "command": "make all"}')

    assert rule_id in run("rules", "--user", policy).stdout
    result = run("revoke", rule_id, "--user", policy, "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (0, {"revoked": rule_id, "path": str(policy)})
    assert rule_id not in policy.read_text()
    assert policy.read_text().startswith(before)


def test_a_rule_that_is_not_kept_cannot_be_revoked(run: Run, policy: Path) -> None:
    before = policy.read_text()

    result = run("revoke", "many", "--user", policy)

    assert (result.exit_code, policy.read_text()) == (2, before)
    assert f"{policy} has no saved rule many. `interlock policy rules --user {policy}` lists all" in result.stderr
