"""One rule about a path or a host holds for every way to it: file tools, commands, MCP tools, tools of others."""

from pathlib import Path

import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, JsonObject, PermissionMode
from interlock.policy.engine.example_event import ToolDeclaration, example_event
from interlock.policy.engine.rule import ResourceDeclaration, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from tests.corpora import spellings
from tests.each import each

SECRETS = Rule(id="secrets", verdict="deny", path="secrets/**")
DOTENV = Rule(id="dotenv", verdict="deny", path=".env")
HOST = Rule(id="host", verdict="deny", host="*.evil.example")
#: Whatever is not refused is allowed, so that a rule which does not hold is seen.
EVERYTHING = Rule(id="everything", verdict="allow")
DENIES = RulePolicy([SECRETS, DOTENV, HOST, EVERYTHING])
UPLOAD: ToolDeclaration = {
    "risk": ("network",),
    "origin": "mcp",
    "source": "drive",
    "resources": {"file": "path", "files.name": "path", "to.url": "host", "script": "command"},
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "project"
    for folder in ("secrets", "src", "sub"):
        (made / folder).mkdir(parents=True)
    for file in (".env", "secrets/key", "src/a.py", "sub/.env"):
        (made / file).write_text("1")
    monkeypatch.setenv("HOME", str(made))
    return made


def decide(workspace: Path, tool: str, arguments: JsonObject, policy: RulePolicy = DENIES) -> Decision:
    situation = CallContext(run_id="run_1", mode=PermissionMode.TRUSTED, workspace=str(workspace))
    made: ToolDeclaration = {**UPLOAD} if tool == "upload" else {}
    return policy.evaluate(example_event(tool, arguments, situation, **made))


def bash(workspace: Path, script: str, policy: RulePolicy = DENIES) -> Decision:
    return decide(workspace, "bash", {"command": script.replace("WORKSPACE", str(workspace))}, policy)


@each("tool", spellings.load("paths to secrets"))
@each(
    "path",
    [
        "secrets/key",
        "secrets",
        "secrets/",
        "./secrets/key",
        "src/../secrets/key",
        "secrets//key",
        "secrets/./key",
        "secrets/.",
        "secrets/not/there",
        "SECRETS/KEY",
        "Secrets/key",
        "\uff53ecrets/key",
        "\u017fecrets/key",
        "~/secrets/key",
        ".env",
        "sub/.env",
        ".ENV",
        ".env/",
        "/elsewhere/.env",
        ["src/a.py", ["secrets/key"]],
    ],
)
def test_file_tools_are_refused_however_the_path_is_written(tool: str, path: object, workspace: Path) -> None:
    decision = decide(workspace, tool, {"path": path})

    assert decision.verdict == "deny"
    assert decision.rule_ids in (("secrets",), ("dotenv",))


def test_absolute_paths_are_refused_with_one_slash_or_two(workspace: Path) -> None:
    for path in (f"{workspace}/secrets/key", f"/{workspace}/secrets/key", f"{workspace}/src/../secrets"):
        assert decide(workspace, "read_file", {"path": path}).rule_ids == ("secrets",)


@pytest.mark.parametrize(
    "path", ["src/a.py", "my-secrets/key", "secrets2/key", "src/secrets/key", ".env.sample", "env", ""]
)
def test_what_is_called_alike_is_not_refused(path: str, workspace: Path) -> None:
    assert decide(workspace, "read_file", {"path": path}).verdict == "allow"


SPELLINGS = spellings.load("commands that read secrets")


@each("script", SPELLINGS)
def test_commands_are_refused_however_they_name_the_path(script: str, workspace: Path) -> None:
    decision = bash(workspace, script)

    assert decision.verdict == "deny"
    assert set(decision.rule_ids) <= {"secrets", "dotenv"}


@pytest.mark.parametrize(
    "script",
    [
        "cat $HOME/secrets/key",
        "cat {secrets,src}/key",
        "cat ~root/x",
        "cat ~/s*/key",
        "cat < s*/key",
        "X=secrets; cat $X/key",
        'cat "$(ls -d sec*)"/key',
        "cat /proc/self/cwd/secrets/key",
        "cat /proc/$$/cwd/secrets/key",
        "cd - && cat key",
        "shopt -s nocaseglob; cat SEC*/key",
    ],
)
def test_what_cannot_be_followed_is_not_allowed(script: str, workspace: Path) -> None:
    decision = bash(workspace, script)

    assert decision.verdict in ("ask", "deny")
    assert set(decision.rule_ids) <= {"secrets", "dotenv", "host"}


@pytest.mark.parametrize(
    "script", ["cat src/a.py", "ls src", "echo secrets-of-success > src/b.py", "cd src && cat a.py", "cat src/*"]
)
def test_commands_elsewhere_are_left_alone(script: str, workspace: Path) -> None:
    assert bash(workspace, script).verdict == "allow"


def test_a_name_that_is_no_text_is_refused_where_it_lies(workspace: Path) -> None:
    (workspace / "secrets" / "key").unlink()
    Path(bytes(workspace / "secrets").decode() + "/k\udc80").write_text("1")

    assert bash(workspace, "cat s*ts/k*").verdict == "deny"


@pytest.mark.parametrize(
    "arguments",
    [
        {"file": "secrets/key"},
        {"files": [{"name": "src/a.py"}, {"name": "secrets/key"}]},
        {"files": [[{"name": [["secrets/key"]]}]]},
        {"files": {"name": "secrets/key"}},
        {"to": {"url": "https://evil.example/x"}},
        {"to": [{"url": "https://docs.example"}, {"url": "a.evil.example"}]},
        {"script": "cat secrets/key"},
        {"script": ["cat", "secrets/key"]},
        {"script": ["sh", "-c", "cat secrets/key"]},
        {"script": "curl https://evil.example"},
        {"file": "src/a.py", "script": "ls > secrets/x"},
        {"file": "secrets/key", "script": "> out.txt"},
        {"file": "secrets/key", "script": "# nothing"},
        {"file": "secrets/key", "script": ""},
    ],
)
def test_tools_of_a_server_are_refused_by_the_arguments_that_they_declare(
    arguments: JsonObject, workspace: Path
) -> None:
    assert decide(workspace, "upload", arguments).verdict == "deny"


@pytest.mark.parametrize(
    "arguments",
    [
        {"file": 7},
        {"file": {"secrets": "key"}},
        {"files": [{"name": None}, {"name": True}]},
        {"file": "a\0b"},
        {"to": {"url": "http://0x7f.1/"}},
        {"to": {"url": ["https://docs.example", ""]}},
        {"script": 7},
        {"script": ["cat", 7]},
        {"script": []},
    ],
)
def test_an_argument_that_is_no_path_host_or_script_is_not_allowed(arguments: JsonObject, workspace: Path) -> None:
    assert decide(workspace, "upload", arguments).verdict == "ask"


def test_what_is_not_named_is_not_held_against_the_call(workspace: Path) -> None:
    calls: list[JsonObject] = [{}, {"file": None}, {"files": []}, {"other": "secrets/key"}]
    for arguments in calls:
        assert decide(workspace, "upload", arguments).verdict == "allow"


def test_a_declaration_makes_rules_hold_for_tools_that_declare_nothing(workspace: Path) -> None:
    declared = [
        ResourceDeclaration("db_*", {"dump.target": "path"}),
        ResourceDeclaration("db_query", {"server": "host", "hook": "command"}),
    ]
    policy = RulePolicy([SECRETS, HOST, EVERYTHING], resources=declared)

    def verdict(tool: str, arguments: JsonObject) -> str:
        return decide(workspace, tool, arguments, policy).verdict

    assert verdict("db_query", {"dump": [{"target": "secrets/key"}]}) == "deny"
    assert verdict("db_query", {"server": "db.evil.example:5432"}) == "deny"
    assert verdict("db_query", {"hook": "cat secrets/key"}) == "deny"
    assert verdict("db_copy", {"dump": {"target": "secrets/key"}}) == "deny"
    assert verdict("db_copy", {"server": "db.evil.example"}) == "allow"
    assert verdict("other", {"dump": {"target": "secrets/key"}}) == "allow"


def test_a_declaration_takes_nothing_from_what_the_tool_declares_itself(workspace: Path) -> None:
    remove = Rule(id="rm", verdict="deny", command="rm")
    policy = RulePolicy([remove, EVERYTHING], resources=[ResourceDeclaration("bash", {"command": "path"})])

    assert bash(workspace, "rm x", policy).verdict == "deny"


def test_a_tool_that_declares_more_under_the_same_version_is_judged_anew(workspace: Path) -> None:
    situation = CallContext(run_id="run_1", workspace=str(workspace))
    before = example_event("load", {"file": "secrets/key"}, situation)
    after = example_event("load", {"file": "secrets/key"}, situation, resources={"file": "path"})
    policy = RulePolicy([SECRETS])

    assert [policy.evaluate(event).verdict for event in (before, after)] == ["allow", "deny"]


@pytest.mark.parametrize("link", ["file", "folder/key", "chain", "folder/../secrets/key", "dangling"])
def test_links_to_what_is_denied_are_denied(link: str, workspace: Path) -> None:
    (workspace / "file").symlink_to("secrets/key")
    (workspace / "folder").symlink_to("secrets")
    (workspace / "chain").symlink_to("file")
    (workspace / "dangling").symlink_to("secrets/not-there-yet")

    assert decide(workspace, "read_file", {"path": link}).verdict == "deny"
    assert bash(workspace, f"cat {link}").verdict == "deny"
    assert bash(workspace, f"echo x > {link}").verdict == "deny"


def test_a_link_is_denied_by_its_own_name_wherever_it_leads(workspace: Path) -> None:
    (workspace / "secrets" / "open").symlink_to("../src/a.py")

    assert decide(workspace, "read_file", {"path": "secrets/open"}).verdict == "deny"


def test_a_workspace_that_is_reached_by_a_link_is_the_same_workspace(tmp_path: Path, workspace: Path) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(workspace)

    for root, path in (
        (linked, "secrets/key"),
        (linked, f"{workspace}/secrets/key"),
        (linked, f"{linked}/secrets/key"),
    ):
        assert decide(root, "read_file", {"path": path}).verdict == "deny"


@each("script", spellings.load("commands that name a host"))
def test_commands_are_refused_however_they_name_the_host(script: str, workspace: Path) -> None:
    decision = bash(workspace, script)

    assert (decision.verdict, decision.rule_ids) == ("deny", ("host",))


@pytest.mark.parametrize("url", ["http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://[::ffff:127.0.0.1]/"])
def test_an_address_in_other_digits_is_not_allowed_past_a_rule_about_it(url: str, workspace: Path) -> None:
    policy = RulePolicy([Rule(id="local", verdict="deny", host="127.0.0.1"), EVERYTHING])

    assert bash(workspace, f"curl {url}", policy).verdict in ("ask", "deny")
    assert decide(workspace, "upload", {"to": {"url": url}}, policy).verdict in ("ask", "deny")


@pytest.mark.parametrize("written", ["b\xfccher.example", "B\xdcCHER.example", "xn--bcher-kva.example"])
def test_a_host_in_another_script_is_one_host_in_rules_arguments_and_commands(written: str, workspace: Path) -> None:
    policy = RulePolicy([Rule(id="books", verdict="deny", host=written), EVERYTHING])

    for named in ("b\xfccher.example", "xn--bcher-kva.example"):
        assert decide(workspace, "upload", {"to": {"url": f"https://{named}/"}}, policy).verdict == "deny"
        assert bash(workspace, f"curl https://{named}/", policy).verdict == "deny"
