"""Nothing of a project is loaded before it is trusted, and nothing that changed since."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.cli.config import project_trust as looking
from interlock.cli.config.project_trust import (
    FileChange,
    TrustedProject,
    UntrustedProject,
    check_trust,
    find_project_root,
    read_trust_records,
    revoke_trust,
    trust_project,
)
from interlock.cli.config.user_paths import UserPaths
from interlock.domain.errors import ConfigurationError
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.person import Person, at_terminal

from .conftest import Run, write

CONFIG = ".interlock/config.toml"


def untrusted(root: Path, places: UserPaths) -> UntrustedProject:
    found = check_trust(root, places)
    assert isinstance(found, UntrustedProject)
    return found


def test_a_project_that_brings_nothing_needs_no_trust(project: Path, places: UserPaths) -> None:
    assert check_trust(project, places) == TrustedProject(str(project))
    assert not (places.state or Path()).exists()


def test_what_a_project_brings_is_not_trusted_until_somebody_said_so(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, 'model = "m"')
    before = untrusted(project, places)

    trust_project(before, places)

    assert (before.kind, [file.path for file in before.files]) == ("new", [CONFIG])
    now = check_trust(project, places)
    assert isinstance(now, TrustedProject)
    assert (now.content(CONFIG), now.content(".interlock/policy.yaml")) == (b'model = "m"', None)
    assert (now.path(CONFIG), now.path("other")) == (str(project / CONFIG), "")


def test_a_change_is_asked_again_with_what_changed(project: Path, places: UserPaths) -> None:
    for name in ("config.toml", "policy.yaml", "skills/a/SKILL.md"):
        write(project / ".interlock" / name, "1")
    trust_project(untrusted(project, places), places)

    write(project / CONFIG, "2")
    write(project / ".interlock/skills/b/SKILL.md", "1")
    (project / ".interlock/policy.yaml").unlink()

    found = untrusted(project, places)
    assert found.kind == "changed"
    assert found.changes == (
        FileChange(".interlock/skills/b/SKILL.md", "new"),
        FileChange(CONFIG, "changed"),
        FileChange(".interlock/policy.yaml", "gone"),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.dictionaries(st.sampled_from(["config.toml", "a", "b/c", "b/d"]), st.binary(max_size=3), min_size=1),
    after=st.dictionaries(st.sampled_from(["config.toml", "a", "b/c", "b/d"]), st.binary(max_size=3), min_size=1),
)
def test_files_are_trusted_only_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("project")
    places = UserPaths(None, tmp_path_factory.mktemp("state") / "interlock")

    def lay(files: dict[str, bytes]) -> None:
        for name, content in files.items():
            write(root / ".interlock" / name, "").write_bytes(content)

    lay(before)
    trust_project(untrusted(root, places), places)
    for name in before:
        (root / ".interlock" / name).unlink()
    lay(after)

    assert isinstance(check_trust(root, places), TrustedProject) == (before == after)


def test_what_was_shown_is_trusted_and_not_what_lies_there_by_then(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, "shown")
    shown = untrusted(project, places)
    write(project / CONFIG, "swapped")

    trust_project(shown, places)

    assert untrusted(project, places).kind == "changed"


def test_content_that_was_swapped_after_the_look_is_not_given_out(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, "good")
    trusted = trust_project(untrusted(project, places), places)
    write(project / CONFIG, "evil")

    with pytest.raises(ConfigurationError, match="was changed a moment ago"):
        trusted.content(CONFIG)


def test_trust_is_in_the_real_directory_however_it_is_called(project: Path, places: UserPaths, tmp_path: Path) -> None:
    write(project / CONFIG, "1")
    (tmp_path / "link").symlink_to(project)
    trust_project(untrusted(tmp_path / "link", places), places)
    other = write(tmp_path / "other" / CONFIG, "1").parents[1]

    assert isinstance(check_trust(project, places), TrustedProject)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    assert untrusted(tmp_path / "link", places).root == str(other)


def test_a_parents_trust_does_not_cover_a_project_inside_of_it(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, "1")
    trust_project(untrusted(project, places), places)
    inner = write(project / "vendor/lib" / CONFIG, "1").parents[1]
    (project / "src/deep").mkdir(parents=True)

    assert isinstance(check_trust(find_project_root(project / "src/deep"), places), TrustedProject)
    assert untrusted(find_project_root(inner), places).kind == "new"


def test_what_cannot_be_told_for_sure_is_refused(project: Path, places: UserPaths, tmp_path: Path) -> None:
    file = write(project / CONFIG, "1")
    folder = file.parent

    def reason() -> str:
        found = untrusted(project, places)
        assert found.kind == "refused"
        with pytest.raises(ConfigurationError, match="cannot be trusted"):
            trust_project(found, places)
        return found.reason

    (folder / "link").symlink_to("/etc/passwd")
    assert reason() == ".interlock/link is a link; put the file itself there"
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    assert reason() == ".interlock/pipe is neither a file nor a folder; put the file itself there"
    (folder / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(folder / "socket"))
        assert "neither a file nor a folder" in reason()
    (folder / "socket").unlink()
    (folder / os.fsdecode(b"\xff")).touch()
    assert reason() == ".interlock has a name that is not UTF-8"
    (folder / os.fsdecode(b"\xff")).unlink()
    deep = folder.joinpath(*["d"] * looking.MAX_DEPTH)
    deep.mkdir(parents=True)
    assert "nested more than 16 deep" in reason()
    folder.rename(project / "elsewhere")
    folder.symlink_to(project / "elsewhere")
    assert ".interlock cannot be read" in reason()


@pytest.mark.parametrize("name", [".", ".interlock", CONFIG])
def test_what_everybody_may_change_is_refused(project: Path, places: UserPaths, name: str) -> None:
    write(project / CONFIG, "1")
    (project / name).chmod(0o777)

    found = untrusted(project, places)

    assert (found.kind, "everybody may change" in found.reason) == ("refused", True)


def test_more_than_anybody_would_read_is_refused(
    project: Path, places: UserPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / CONFIG, "12345")
    write(project / ".interlock/b", "12345")

    monkeypatch.setattr(looking, "MAX_FILES", 1)
    assert "more than 1 files" in untrusted(project, places).reason
    monkeypatch.setattr(looking, "MAX_FILES", 10)
    monkeypatch.setattr(looking, "MAX_TOTAL_BYTES", 9)
    assert "or 9 bytes" in untrusted(project, places).reason


def test_the_list_is_for_its_owner_alone(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, "1")
    usual = os.umask(0)
    try:
        trust_project(untrusted(project, places), places)
    finally:
        os.umask(usual)

    assert places.trust_file.stat().st_mode & 0o777 == 0o600
    assert places.trust_file.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(places.trust_file.parent) == ["trust.json"]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"version": 2}', b"[" * 100_000, b'{"x": 1}'])
def test_a_list_that_is_not_ours_trusts_nothing(project: Path, places: UserPaths, content: bytes) -> None:
    write(project / CONFIG, "1")
    trust_project(untrusted(project, places), places)
    places.trust_file.write_bytes(content)

    found = untrusted(project, places)

    assert found.kind == "refused"
    assert "Move the file away to start over" in found.reason
    with pytest.raises(ConfigurationError):
        read_trust_records(places)


@pytest.mark.parametrize("mode", [0o622, 0o640])
def test_a_list_that_others_could_write_or_read_trusts_nothing(project: Path, places: UserPaths, mode: int) -> None:
    write(project / CONFIG, "1")
    trust_project(untrusted(project, places), places)
    places.trust_file.chmod(mode)

    assert "it is not a file for you alone" in untrusted(project, places).reason


def test_trust_can_be_taken_back_also_from_what_is_gone(project: Path, places: UserPaths) -> None:
    write(project / CONFIG, "1")
    trust_project(untrusted(project, places), places)
    project.rename(project.with_name("moved"))

    assert revoke_trust(project, places)
    assert not revoke_trust(project, places)
    assert read_trust_records(places) == {}


def test_without_a_place_for_the_list_nothing_is_trusted(project: Path) -> None:
    write(project / CONFIG, "1")

    assert untrusted(project, UserPaths(None, None)).kind == "new"


def test_the_command_trusts_lists_and_revokes(cli: Run, project: Path) -> None:
    write(project / CONFIG, "")

    first = cli("trust")
    yes = cli("trust", "--yes")
    listed = json.loads(cli("trust", "list", "--json").stdout)
    write(project / CONFIG, "# new")
    changed = cli("trust", "--json")

    assert (first.exit_code, "this project is not trusted yet" in first.stderr) == (3, True)
    assert (yes.exit_code, yes.stdout) == (0, f"{project}: trusted, 1 file\n")
    assert [(each["root"], each["now"]) for each in listed] == [(str(project), "trusted")]
    assert changed.exit_code == 3
    assert json.loads(changed.stdout)["project"]["changes"] == [{"path": CONFIG, "what": "changed"}]
    assert "changed" in cli("trust", "list").stdout
    assert cli("trust", "revoke").exit_code == 0
    assert cli("trust", "list").stdout == "No trusted projects.\n"
    assert cli("trust", "revoke").exit_code == 2


def test_the_command_says_why_a_project_cannot_be_trusted(cli: Run, project: Path) -> None:
    write(project / CONFIG, "").chmod(0o666)

    result = cli("trust", "--yes")

    assert (result.exit_code, result.stdout) == (4, "Nothing was trusted.\n")
    assert "everybody may change" in result.stderr
    assert cli("trust", "list", "--json").stdout == "[]\n"


def at_a_terminal(person: Person, *arguments: str) -> "subprocess.Popen[bytes]":
    program = "from interlock.cli.main import main; main()"
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(words, stdin=person.keys, stdout=person.output, stderr=person.output)


@pytest.mark.parametrize(("typed", "code", "kinds"), [("y\n", 0, ["trusted"]), ("\n", 4, []), ("\x04", 4, [])])
def test_a_person_is_shown_the_files_and_asked(
    cli: Run, project: Path, typed: str, code: int, kinds: list[str]
) -> None:
    write(project / CONFIG, 'model = "m"')

    with at_terminal() as person, at_a_terminal(person, "trust") as running:
        shown = person.waits_for("Trust these files as they are now? [y/N]: ")
        person.types(typed)
        assert running.wait(HANG_SECONDS) == code

    assert "  .interlock/config.toml (11 bytes)" in shown
    assert [each["now"] for each in json.loads(cli("trust", "list", "--json").stdout)] == kinds


def test_names_in_a_project_do_nothing_to_a_terminal(cli: Run, project: Path) -> None:
    write(project / ".interlock" / "a\x1b[2J\u202e\nb", "")

    shown = cli("trust").stderr

    assert all(character == "\n" or character.isprintable() for character in shown)
    assert r"\u{1b}[2J\u{202e}\nb" in shown
