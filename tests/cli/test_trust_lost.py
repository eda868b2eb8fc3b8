"""A project that was trusted and changed: nothing goes on as if it had never tightened anything."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.cli.config.policy_files import load_policy
from interlock.cli.config.project_trust import TrustedProject, check_trust, trust_project
from interlock.cli.config.settings import Settings
from interlock.cli.config.user_paths import UserPaths
from interlock.cli.session.agent import load_skill_tools
from interlock.policy.files.policy_files import BROKEN_RULE_ID
from interlock.policy.files.problems import PolicyFileError

from .conftest import Run, write
from .scripts import write_script
from .test_trust import untrusted

POLICY = ".interlock/policy.yaml"
NO_GREP = "version: 1\nrules:\n  - {id: no-grep, decision: deny, tools: grep}\n"


def trust(project: Path, places: UserPaths) -> TrustedProject:
    return trust_project(untrusted(project, places), places)


def changed(project: Path) -> None:
    write(project / POLICY, f"{NO_GREP}# more\n")


def gone(project: Path) -> None:
    shutil.rmtree(project / ".interlock")


def refused(project: Path) -> None:
    (project / ".interlock/link").symlink_to("policy.yaml")


@pytest.mark.parametrize("lose", [changed, gone, refused])
def test_a_run_does_not_start_without_the_rules_that_a_trusted_project_had(
    cli: Run, project: Path, places: UserPaths, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    write(project / POLICY, NO_GREP)
    trust(project, places)
    lose(project)
    (project / "deep").mkdir()
    script = write_script(tmp_path / "script.json", "Done.")

    ended = [cli("run", "x", "--script", script, "--headless", *where) for where in ((), ("--workspace", "deep"))]

    assert [each.exit_code for each in ended] == [2, 2]
    assert all("nothing was started without them" in each.stderr and "interlock trust" in each.stderr for each in ended)
    assert cli("runs", "list").stdout.startswith("No runs yet.")


def test_in_a_folder_without_other_marks_a_trusted_project_that_is_gone_is_still_known(
    cli: Run, project: Path, places: UserPaths, tmp_path: Path
) -> None:
    (project / ".git").rmdir()
    write(project / POLICY, NO_GREP)
    trust(project, places)
    gone(project)
    (project / "deep").mkdir()

    ended = cli("run", "x", "--headless", "--workspace", "deep")

    assert (ended.exit_code, "(1 gone)" in ended.stderr) == (2, True)


@pytest.mark.parametrize("again", [("trust", "--yes"), ("trust", "revoke")])
def test_after_somebody_looked_again_runs_start_again(
    cli: Run, project: Path, places: UserPaths, tmp_path: Path, again: tuple[str, ...]
) -> None:
    write(project / POLICY, NO_GREP)
    trust(project, places)
    changed(project)
    script = write_script(tmp_path / "script.json", "Done.")

    assert cli(*again).exit_code == 0

    assert cli("run", "x", "--script", script, "--headless").exit_code == 0


def test_a_project_that_was_never_trusted_is_ignored_with_a_line(cli: Run, project: Path, tmp_path: Path) -> None:
    write(project / POLICY, NO_GREP)

    ended = cli("run", "x", "--script", write_script(tmp_path / "script.json", "Done."), "--headless")

    assert (ended.exit_code, "were ignored: this project is not trusted yet" in ended.stderr) == (0, True)


def test_settings_and_tools_can_be_looked_at_while_the_project_is_not_trusted(
    cli: Run, project: Path, places: UserPaths
) -> None:
    write(project / POLICY, NO_GREP)
    trust(project, places)
    changed(project)

    looked = [cli("config", "show"), cli("tools")]

    assert [(each.exit_code, "were ignored" in each.stderr) for each in looked] == [(0, True), (0, True)]


def test_a_policy_that_is_swapped_after_it_was_trusted_denies_everything(project: Path, places: UserPaths) -> None:
    write(project / POLICY, NO_GREP)
    trusted = trust(project, places)
    write(project / POLICY, "version: 1\n")

    policy = load_policy(Settings(), places, trusted, str(project))

    assert [rule.id for rule in policy.rules] == [BROKEN_RULE_ID]
    assert "changed since it was trusted" in str(policy.problems[0])


def test_a_policy_that_is_swapped_later_changes_nothing_and_no_rule_is_kept(project: Path, places: UserPaths) -> None:
    write(places.policy_file, "version: 1\n")
    write(project / POLICY, NO_GREP)
    policy = load_policy(Settings(), places, trust(project, places), str(project))
    write(project / POLICY, "version: 1\n")

    with pytest.raises(PolicyFileError, match="changed since it was trusted"):
        policy.keep("{id: kept-1, decision: allow, tools: grep}")
    problems = policy.reload()

    assert ["changed since it was trusted" in str(problem) for problem in problems] == [True]
    assert [rule.id for rule in policy.rules] == ["no-grep"]
    assert places.policy_file.read_text() == "version: 1\n"


def test_skills_of_a_project_are_those_that_were_trusted(project: Path, places: UserPaths) -> None:
    skill = write(
        project / ".interlock/skills/review/SKILL.md", "---\nname: review\ndescription: Reviews.\n---\nGood\n"
    )
    write(skill.with_name("more.md"), "good")
    trusted = trust(project, places)

    assert [tool.name for tool in load_skill_tools(places, trusted)] == ["skill_review"]
    assert isinstance(check_trust(project, places), TrustedProject)
