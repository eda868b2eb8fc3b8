"""Policies in files: layers, reloading, and what holds while a file is broken."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interlock.domain.decision import Decision, Verdict, pick_strictest
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.files.examples import read_example
from interlock.policy.files.policy_files import PolicyFiles, check_file, load_policy, read_layer
from interlock.policy.files.problems import PolicyFileError
from interlock.policy.interface import PolicyEngine


def write(path: Path, text: str) -> Path:
    path.write_text(f"version: 1\n{text}\n")
    return path


def decide(policy: PolicyEngine, call: str) -> Decision:
    decision = policy.evaluate(read_example(call))
    assert isinstance(decision, Decision)
    return decision


def test_the_rules_of_all_layers_decide_together(tmp_path: Path) -> None:
    (tmp_path / "session.toml").write_text('version = 1\ndeny = ["bash(npm publish)"]\n')
    policy = PolicyFiles(
        managed=write(tmp_path / "managed.yaml", "deny: ['bash(git reset --hard)']"),
        user=write(tmp_path / "user.yaml", "allow: [bash, edit_file]"),
        project=write(tmp_path / "project.yaml", "ask: [edit_file]"),
        session=tmp_path / "session.toml",
    )

    assert policy.problems == ()
    calls = ["bash(git reset --hard)", "bash(npm test)", "edit_file(a)", "bash(npm publish)"]
    assert [(decide(policy, call).verdict, decide(policy, call).layer) for call in calls] == [
        (Verdict.DENY, "enterprise policy"),
        (Verdict.ALLOW, "user rule"),
        (Verdict.ASK, "project rule"),
        (Verdict.DENY, "session rule"),
    ]
    assert len(policy.rules) == 5
    assert decide(policy, "edit_file(a)").policy_digest == policy.digest == policy.policy.digest


@pytest.mark.parametrize(
    ("managed", "user", "project", "default"),
    [
        ("", "", "", "risk"),
        ("default: allow", "", "", "allow"),
        ("default: allow", "default: risk", "", "risk"),
        ("default: risk", "default: ask", "", "ask"),
        ("default: allow", "default: ask", "default: deny", "deny"),
        ("default: deny", "default: allow", "default: risk", "deny"),
    ],
)
def test_the_strictest_default_counts(tmp_path: Path, managed: str, user: str, project: str, default: str) -> None:
    policy = PolicyFiles(
        managed=write(tmp_path / "managed.yaml", managed),
        user=write(tmp_path / "user.yaml", user),
        project=write(tmp_path / "project.yaml", project),
    )

    assert policy.policy.default == default


def test_without_files_the_declared_risk_decides() -> None:
    policy = PolicyFiles()

    assert decide(policy, "read_file(a)").verdict is Verdict.ALLOW
    assert decide(policy, "edit_file(a)").verdict is Verdict.ASK
    assert policy.reload() == ()


@pytest.mark.requirement("D03")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such file"),
        ("version: 1\nallow: [read_file]\nwhat: 1\n", ":3: what: there is no such key"),
        ("version: 1\nallow: [&a read_file, *a]\n", ":2: anchors are not allowed"),
        ("version: 1\nallow:\n  - tools: read_file\n    matches: [bash]\n", ":4: this example should match"),
        ("", ":1: the file is empty"),
    ],
)
@pytest.mark.parametrize("layer", ["managed", "user", "project", "session"])
def test_a_policy_that_is_missing_or_broken_denies_everything(
    tmp_path: Path, layer: str, text: str | None, told: str
) -> None:
    path = tmp_path / "policy.yaml"
    if text is not None:
        path.write_text(text)
    policy = PolicyFiles(**{layer: path})  # pyright: ignore[reportArgumentType]

    assert policy.problems
    for call in ("read_file(a)", "bash(ls)", "unknown"):
        decision = decide(policy, call)
        assert (decision.verdict, decision.rule_ids) == (Verdict.DENY, ("interlock:policy-file",))
        assert str(path) in decision.reason
        if layer != "project" or text is None:
            assert told in decision.reason
        assert "load it again" in decision.reason
    said = {"managed": "enterprise policy", "user": "user rule", "project": "project rule", "session": "session rule"}
    assert decide(policy, "read_file(a)").layer == said[layer]

    write(path, "ask: [read_file]")
    assert decide(policy, "read_file(a)").verdict is Verdict.DENY
    assert policy.reload() == ()
    assert policy.problems == ()
    assert decide(policy, "read_file(a)").verdict is Verdict.ASK


@pytest.mark.requirement("D03")
@pytest.mark.parametrize(
    "broken",
    [
        "version: 1\nallow: [bash\n",
        "version: 1\nallow: [bash]\nwhat: 1\n",
        "version: 1\nrules: [{id: r, decision: ask}]\n",
        None,
    ],
)
def test_a_reload_that_finds_a_problem_leaves_the_policy_in_force(tmp_path: Path, broken: str | None) -> None:
    user = write(tmp_path / "user.yaml", "deny: ['bash(git push)']")
    managed = write(tmp_path / "managed.yaml", "rules: [{id: r, decision: deny, tools: mail}]")
    policy = PolicyFiles(user=user, managed=managed)
    before = policy.digest
    write(managed, "rules: [{id: r, decision: deny, tools: other}]")
    if broken is None:
        user.unlink()
    else:
        user.write_text(broken)

    problems = policy.reload()

    assert [problem.path for problem in problems] == [str(user)]
    assert policy.problems == problems
    assert policy.digest == before
    assert decide(policy, "mail").verdict is Verdict.DENY
    assert decide(policy, "bash(git push)").verdict is Verdict.DENY


def test_the_same_id_in_two_files_is_refused_and_the_same_short_rule_is_not(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yaml", "deny: [bash]\nrules: [{id: mine, decision: deny, tools: a}]")
    project = write(tmp_path / "project.yaml", "deny: [bash]\n")

    assert PolicyFiles(user=user, project=project).problems == ()
    write(project, "deny: [bash]\nrules:\n  - {id: mine, decision: deny, tools: b}")
    assert [str(problem) for problem in PolicyFiles(user=user, project=project).problems] == [
        f"{project}:4: the id mine is given twice; first in {user}, line 3"
    ]


def test_where_the_default_denies_a_question_of_the_project_does_not_loosen_it(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yaml", "default: deny\nallow: [edit_file]\ndeny: [Read(a)]")
    project = write(tmp_path / "project.yaml", "ask: [bash, edit_file]")
    policy = PolicyFiles(user=user, project=project)

    assert decide(policy, "bash(ls)").verdict is Verdict.DENY
    assert decide(policy, "bash(ls)").policy_digest == policy.digest
    assert decide(policy, "edit_file(a)").verdict is Verdict.ASK
    assert [warning.line for warning in policy.warnings] == [4]


TOOLS = st.sampled_from(
    ["bash", "read_file", "edit_file", "mail", "*", "bash(git push:*)", "bash(npm test)", "Read(a/**)"]
)
OTHERS = st.sampled_from(["{path: a/b}", "{host: example.com}", "{risk: write}", "{mode: default, tools: bash}"])
ENTRIES = st.lists(TOOLS.map(lambda text: f'"{text}"') | OTHERS, max_size=2, unique=True).map(", ".join)
CALLS = [
    *("bash(git push)", "bash(npm test)", "bash(ls; git push)", "bash($(x))", "read_file(a/b)", "edit_file(a/b)"),
    *("mail", "mail(host:example.com)", "bash(cat a/b > c)", "glob(c)"),
]


@st.composite
def files(draw: st.DrawFn, lists: tuple[str, ...], defaults: tuple[str, ...]) -> bytes:
    lines = ["version: 1", *(f"{name}: [{draw(ENTRIES)}]" for name in lists)]
    default = draw(st.sampled_from(["", *defaults]))
    return "\n".join([*lines, f"default: {default}" if default else ""]).encode()


@given(
    files(("deny", "ask", "allow"), ("risk", "ask", "deny", "allow")), files(("deny", "ask"), ("risk", "ask", "deny"))
)
def test_a_project_never_loosens_what_the_user_says(
    tmp_path_factory: pytest.TempPathFactory, user: bytes, project: bytes
) -> None:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "user.yaml").write_bytes(user)
    (folder / "project.yaml").write_bytes(project)
    alone = PolicyFiles(user=folder / "user.yaml")
    both = PolicyFiles(user=folder / "user.yaml", project=folder / "project.yaml")
    assume(not alone.problems and not both.problems)

    for call in CALLS:
        decisions = [decide(alone, call), decide(both, call)]
        assert pick_strictest(decisions).verdict is decisions[1].verdict


@settings(deadline=None)
@given(st.binary(max_size=300) | files(("deny", "ask", "allow", "rules"), ("risk", "x")))
def test_any_bytes_are_a_policy_or_are_refused(content: bytes) -> None:
    for path in ("policy.yaml", "policy.toml"):
        with suppress(PolicyFileError):
            layer = read_layer(path, "user", content)
            RulePolicy(layer.rules, layer.default or "risk", layer.resources)


def test_a_file_can_be_loaded_and_checked_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "policy.yaml", "default: deny\nask: [Read(a)]")

    assert load_policy(path).default == "deny"
    assert [rule.layer for rule in load_policy(path, "managed").rules] == ["enterprise policy"]
    report = check_file(path, "project")
    assert ([rule.verdict for rule in report.rules], len(report.warnings)) == (["ask"], 1)
    for refuse in (load_policy, check_file):
        with pytest.raises(PolicyFileError, match="no such file"):
            refuse(tmp_path / "missing.yaml")


def test_files_that_are_no_files_deny_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")

    for path in (tmp_path / "fifo.yaml", tmp_path, "/dev/zero"):
        assert decide(PolicyFiles(user=path), "read_file(a)").verdict is Verdict.DENY
