"""`a` at a question: a rule for this kind of call, here, shown with what it would have done, and saved."""

import json
from pathlib import Path

import pytest
import yaml

from interlock.cli.config.user_paths import UserPaths
from interlock.cli.exit_codes import ExitCode
from interlock.cli.session.dialog_support import LocalDialogSupport
from interlock.domain.tool import CallContext
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.files.policy_files import load_policy
from interlock.registry.decorator import tool
from tests.each import each

from .scripts import calls, command, on_terminal, write_script

PROMPT = "d details: "


def unwrapped(text: str) -> str:
    return "".join(text.replace(">", "").split())


def suggested(tool_name: str, workspace: str = "/work", **arguments: object) -> str:
    event = example_event(tool_name, dict(arguments), CallContext(run_id="r", workspace=workspace))
    return RulePolicy().evaluate(event).suggested_rule


def support(log: Path = Path("/nonexistent/runs.db")) -> LocalDialogSupport:
    return LocalDialogSupport(log, lambda name: None)


@each(
    ("script", "text"),
    [
        ("pytest -q tests/x.py", "bash(pytest *)"),
        ("npm run lint -- --fix", "bash(npm run lint *)"),
        ("cargo test -p x", "bash(cargo test *)"),
        ("git commit -m 'a b'", "bash(git commit *)"),
        ("python -m pytest -q tests/x.py", "bash(python -m pytest *)"),
        ("python3 -m unittest", "bash(python3 -m unittest *)"),
        ("npm test -- --run", "bash(npm test *)"),
        ("npx vitest run x", "bash(npx vitest *)"),
        ("go test ./...", "bash(go test *)"),
        ("ruff check --fix .", "bash(ruff check *)"),
        ("npx cowsay hi", "bash(npx cowsay hi)"),
        ("python -m http.server", ""),
        ("python -X dev -m pytest", ""),
        ("/tmp/python -m pytest", ""),
        ("make test", "bash(make test)"),
        ("mytool 'a b'", "bash(mytool 'a b')"),
        ("rm -rf build", "bash(rm -rf build)"),
        ("sudo make install", ""),
        ("npm run -s lint", "bash(npm run -s lint)"),
        ("git -c core.pager=x add .", "bash(git -c core.pager=x add .)"),
        ("/usr/bin/pytest", "bash(/usr/bin/pytest)"),
        ("bash -c 'pytest -q'", ""),
        ("python -c 'print()'", ""),
        ("python x.py", ""),
        ("timeout 5 pytest", ""),
        ("pytest $(id)", ""),
        ("cd src && pytest", ""),
        ("pytest > out.txt", ""),
        ("X=1 pytest", ""),
    ],
)
def test_a_command_is_generalised_no_further_than_its_kind(script: str, text: str) -> None:
    rule = suggested("bash", command=script)

    assert (support().format_rule(rule) if rule else "") == text


def test_two_commands_need_a_rule_for_both() -> None:
    rule = json.loads(suggested("bash", command="ruff check . && pytest -q && pytest -x"))

    assert rule["command"] == [{"words": ["ruff", "check"]}, {"words": ["pytest"]}]
    assert rule["workspace"] == "/work"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/app.py", "edit(src/*.py)"),
        ("app.py", "edit(*.py)"),
        ("Makefile", ""),
        (".github/ci.yml", ""),
        ("../a.py", ""),
    ],
)
def test_an_edit_is_generalised_to_its_folder_and_ending(path: str, text: str) -> None:
    rule = suggested("write_file", path=path, content="x")

    assert support().format_rule(rule) == (text or rule)


@each(
    ("text", "problem"),
    [
        ("bash(pytest -q *)", ""),
        ("bash(pytest -q)", ""),
        ("bash(pytest *)", ""),
        ("bash(*)", "not provably narrower"),
        ("bash(python *)", "not provably narrower"),
        ("edit(src/*.py)", "not provably narrower"),
        ("bash(pytest", "is neither a tool nor Tool(pattern)"),
        ("", "is neither a tool nor Tool(pattern)"),
        ("{decision: allow, tools: bash}", "not provably narrower"),
    ],
)
def test_a_changed_rule_may_only_be_narrower(text: str, problem: str) -> None:
    changed = support().parse_rule(text, suggested("bash", command="pytest -q"))

    assert problem in changed.problem if problem else not changed.problem
    assert problem or json.loads(changed.rule)["workspace"] == "/work"


def test_one_file_is_narrower_than_its_folder() -> None:
    rule = suggested("write_file", path="src/app.py", content="x")

    assert not support().parse_rule("edit(src/b.py)", rule).problem
    for wider in ("edit(other/b.py)", "edit(b.py)", "edit(/src/b.py)", "edit(src/*)", "edit(src/x/b.py)"):
        assert "not provably narrower" in support().parse_rule(wider, rule).problem


def test_a_rule_of_another_engine_is_shown_as_it_is() -> None:
    assert support().format_rule("permit(principal, action)") == "permit(principal, action)"
    assert support().preview_rule("permit(principal, action)") == ""


def test_edited_arguments_are_checked_against_the_schema() -> None:
    def count(path: str, n: int = 1) -> str:
        """Count."""
        return path * n

    checks = LocalDialogSupport(Path("x"), lambda name: tool(count) if name == "count" else None)

    assert checks.check_arguments("count", {"path": "a"}) == ""
    assert checks.check_arguments("other", {"path": 1}) == ""
    assert checks.check_arguments("count", {"n": "x"}).startswith("path: Field required; n: ")


def test_a_makes_the_policy_file_and_the_kind_is_not_asked_again(
    tmp_path: Path, home: Path, project: Path, places: UserPaths
) -> None:
    """The first rule of a person who has no policy file."""
    script = tmp_path / "script.json"
    write_script(
        script,
        command("mkdir one"),
        command("mkdir two"),
        calls(("write_file", {"path": "x.md", "content": ""})),
        "Done.",
    )

    with on_terminal("run", "Try.", "--script", script) as here:
        here.sees(PROMPT)
        here.types("a")
        shown = here.sees("allow: bash(mkdir *)")
        here.types("\n")
        asked = here.sees(PROMPT)
        here.types("y")
        here.sees("look at the run")
        assert here.ends() == ExitCode.OK

    assert unwrapped(f"Only in {project}. No call was recorded before.") in unwrapped(shown)
    assert "mkdir two" in asked
    assert "$ mkdir" not in asked
    [rule] = yaml.safe_load(places.policy_file.read_text())["rules"]
    assert (rule["command"], rule["workspace"]) == ([{"words": ["mkdir"]}], str(project))
    assert len(load_policy(places.policy_file).rules) == 1


def test_a_preview_counts_what_was_allowed_and_rejected(
    tmp_path: Path, home: Path, project: Path, places: UserPaths
) -> None:
    script = tmp_path / "script.json"
    write_script(script, command("mkdir one"), command("mkdir two"), command("mkdir three"), "Done.")

    with on_terminal("run", "Try.", "--script", script) as here:
        here.sees(PROMPT)
        here.types("y")
        here.sees(PROMPT)
        here.types("n")
        here.sees("(Enter: none): ")
        here.types("\n")
        here.sees(PROMPT)
        here.types("a")
        shown = here.sees("allow: bash(mkdir *)")

    said = "It would have allowed 2 of the last 2 recorded calls, and 1 of them had been rejected."
    assert unwrapped(said) in unwrapped(shown)
