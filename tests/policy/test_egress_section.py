"""The section `egress` of a policy file: what it says, what is wrong with it, and where it counts."""

from pathlib import Path

import pytest

from interlock import Rule, RulePolicy
from interlock.policy import EgressRule, PolicyFiles, example_event, explain, load_policy
from interlock.policy.analysis.explain import find_egress_rules
from interlock.policy.files.layer_compiler import Layer
from interlock.policy.files.problems import PolicyFileError

PYPI = ("pypi.org", "files.pythonhosted.org")


def write(folder: Path, egress: str, name: str = "policy.yaml") -> Path:
    path = folder / name
    path.write_text(f"version: 1\negress:\n{egress}")
    return path


def test_one_line_and_long_rules_are_read(tmp_path: Path) -> None:
    rules = load_policy(
        write(
            tmp_path,
            """
  - {allow: "pypi.org, Files.PythonHosted.org"}
  - {ask: ["*.example.com"], ports: 8443}
  - {allow: api.test, methods: [get], credential: API_TOKEN, header: "X-Key: {}", id: api}
  - {deny: evil.test}
""",
        )
    ).egress

    assert [(rule.id, rule.verdict, rule.hosts, rule.ports, rule.methods) for rule in rules] == [
        ("api", "allow", ("api.test",), (80, 443), ("GET",)),
        ("egress:allow:pypi.org,files.pythonhosted.org", "allow", PYPI, (80, 443), ()),
        ("egress:ask:*.example.com:8443", "ask", ("*.example.com",), (8443,), ()),
        ("egress:deny:evil.test", "deny", ("evil.test",), (), ()),
    ]
    assert (rules[0].credential, rules[0].header, rules[0].layer) == ("API_TOKEN", "X-Key: {}", "user rule")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{alow: a.com}", "alow: there is no such key. Did you mean `allow`?"),
        ("{allow: a.com, port: 80}", "port: there is no such key. Did you mean `ports`?"),
        ("{allow: a.com, deny: b.com}", "exactly one of allow, ask and deny"),
        ("{ports: [80]}", "exactly one of allow, ask and deny"),
        ('{allow: "https://a.com/"}', "the host alone"),
        ('{allow: "a.com, "}', "at least 1 character"),
        ("{allow: a.com, ports: 99999}", "less than or equal to 65535"),
        ("{allow: a.com, methods: [CONNECT]}", "no HTTP method"),
        ('{allow: "*", credential: TOKEN}', "named hosts"),
        ('{allow: a.com, header: "X: {}"}', "header goes with credential"),
    ],
)
def test_problems_name_their_line(tmp_path: Path, entry: str, problem: str) -> None:
    with pytest.raises(PolicyFileError) as refused:
        load_policy(write(tmp_path, f"  - {entry}\n"))

    [found] = refused.value.problems
    assert problem in str(found)
    assert found.line == 3


def test_project_file_can_only_tighten(tmp_path: Path) -> None:
    layer: Layer = "project"
    with pytest.raises(PolicyFileError, match="a project file can only tighten"):
        load_policy(write(tmp_path, "  - {allow: a.com}\n"), layer)

    assert len(load_policy(write(tmp_path, "  - {ask: a.com}\n  - {deny: b.com}\n"), layer).egress) == 2


def test_rules_of_all_layers_count_and_reload(tmp_path: Path) -> None:
    user = write(tmp_path, "  - {allow: a.com}\n", "user.yaml")
    files = PolicyFiles(user=user, project=write(tmp_path, "  - {deny: a.com}\n", "project.yaml"))
    before = files.digest
    user.write_text("version: 1\n")
    files.reload()

    assert [rule.verdict for rule in files.egress] == ["deny"]
    assert files.digest != before


def test_digest_covers_egress_and_is_unchanged_without() -> None:
    plain = RulePolicy([Rule(id="a", verdict="allow", tools="x")])
    rules = [EgressRule(verdict="allow", hosts=hosts, ports=port) for hosts, port in (("a.com", 80), ("a.com", 81))]

    digests = {plain.digest, *(RulePolicy(plain.rules, egress=[rule]).digest for rule in rules)}
    assert len(digests) == 3
    assert RulePolicy(plain.rules, egress=rules).digest == RulePolicy(plain.rules, egress=rules[::-1]).digest
    assert RulePolicy(plain.rules, egress=[]).digest == plain.digest


def test_hosts_denied_to_every_tool_are_denied_to_commands() -> None:
    denied = [
        Rule(id="always", verdict="deny", host="evil.test"),
        Rule(id="sometimes", verdict="deny", host="other.test", mode="default"),
        Rule(id="ended", verdict="deny", host="old.test", expires_at=1),
    ]
    policy = RulePolicy(denied, egress=[EgressRule(verdict="allow", hosts="*")])

    assert [rule.id for rule in find_egress_rules(policy)] == ["egress:allow:*", "always"]
    assert find_egress_rules(RulePolicy(denied)) == ()


def test_explanation_names_the_egress_rule() -> None:
    policy = RulePolicy(egress=[EgressRule(verdict="allow", hosts="a.com"), EgressRule(verdict="deny", hosts="b.com")])
    event = example_event("bash", {"command": "curl https://a.com https://b.com https://c.com"})

    assert explain(policy, event).egress == (
        "a.com:443 allow by egress:allow:a.com",
        "b.com:443 deny by egress:deny:b.com",
        "c.com:443 is refused: no egress rule names it",
    )
    assert explain(policy, example_event("fetch", {"url": "https://a.com"}, resources={"url": "host"})).egress == ()
