"""What a command does so that a later command, a tool or a person does its work: files that change their places."""

import sys
from pathlib import Path

import pytest

from interlock import FileArtifacts, PolicyFiles, Rule, RulePolicy, SqliteLog
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .toolbox import CANARY, Box, box, commands_of, snapshot, text_of

_DIVE = """{python} -I - <<'PROGRAM'
import os
os.chdir('deep')
while os.path.isdir('d' * 200): os.chdir('d' * 200)
print(open('app/.env').read())
PROGRAM"""
_DIG = """{python} -I - <<'PROGRAM'
import os
os.mkdir('deep'); os.rename('app', 'deep/app'); os.chdir('deep')
for _ in range(25): os.mkdir('d' * 200); os.rename('app', 'd' * 200 + '/app'); os.chdir('d' * 200)
PROGRAM"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("app/.env", "a/secrets/key", ".git/modules/libs/tool/config", ".git/HEAD"):
        path = tmp_path / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    (tmp_path / "workspace/.git/HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path / "workspace"


@pytest.mark.requirement("R232", "P13")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("mkdir -p .git/objects; mv app .git/objects/", "cat .git/objects/app/.env"),
        ("mkdir -p .hg/store; mv app .hg/store/", "cat .hg/store/app/.env"),
        (_DIG, _DIVE),
        ("chmod 311 app", "cat app/.env"),
        ("chmod 000 app", "chmod 755 app; cat app/.env"),
        ("mv app b; ln -s b app", "cat app/.env b/.env"),
        ("ln app/.env x; cp app/.env y; mv app/.env z", "cat x y z"),
        ("ln -s app/.env x; mkdir s; ln -s ../app s/t", "cat x s/t/.env"),
        ("cp -a app b; tar cf t.tar app", "cat b/.env; tar xOf t.tar app/.env"),
        ("git init -q g; git -C g add -f ../app/.env", "cat app/.env"),
    ],
)
async def test_a_secret_stays_hidden_wherever_a_command_moves_it(workspace: Path, first: str, then: str) -> None:
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        await attacker.bash(first.replace("{python}", sys.executable))
        said = await attacker.bash(then.replace("{python}", sys.executable))

    assert CANARY not in text_of(said)


_FLIP = """exec {python} -I - <<'PROGRAM'
import os
while True: os.rename('x/app', 'y/app'); os.rename('y/app', 'x/app')
PROGRAM"""


@pytest.mark.requirement("R232")
async def test_a_secret_stays_hidden_while_a_task_moves_it_to_and_fro(workspace: Path) -> None:
    """Looking for secrets takes time: what moves meanwhile can be where nobody looks."""
    for name in ("x", "y"):
        for number in range(200):
            (workspace / name / str(number)).mkdir(parents=True)
    (workspace / "app").rename(workspace / "x" / "app")
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        task = await attacker.bash(_FLIP.format(python=sys.executable), background=True)
        said = [await attacker.bash(f"for _ in 1 2 3 4 5 6; do cat ?/app/.env; done # {at}") for at in range(25)]

    assert task.ok
    assert sum(CANARY in text_of(one) for one in said) == 0


@pytest.mark.requirement("R232")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("mv a b", "cat b/*/*"),
        ("mkdir c; mv a c/", "cat c/*/*/*"),
        ("mv a/sec* a/x", "cat a/x/*"),
        ("cp -r a b", "cat b/*/*"),
        ("cp -al a b", "cat b/*/*"),
        ("tar cf t.tar a", "tar xOf t.tar"),
        ("ln -s a b", "cat b/s*/*"),
        ("git init -q; git add -A", "git show :a/sec*/key; git grep --untracked fish; git grep --cached fish"),
        ("exec 3<a/sec*; find . -name 'k*' | cpio -o > c", "cat c"),
    ],
)
async def test_what_a_rule_denies_to_all_stays_hidden_wherever_a_command_moves_it(
    workspace: Path, first: str, then: str
) -> None:
    policy = RulePolicy([Rule(id="closed", verdict="deny", path="a/secrets/")])

    async with box(workspace, commands=commands_of("bubblewrap"), policy=policy) as attacker:
        await attacker.bash(first)
        said = await attacker.bash(then)
        read = await attacker.call("read_file", path="b/secrets/key")
        found = await attacker.call("grep", pattern="fish", path=".")

    assert CANARY not in text_of(said)
    assert CANARY not in text_of(read)
    assert "secrets/key" not in text_of(found)


async def test_what_a_rule_denies_is_hidden_also_when_it_comes_later_or_by_another_name(workspace: Path) -> None:
    policy = RulePolicy([Rule(id="closed", verdict="deny", path=["a/", "late/", "**/*.secret"])])

    async with box(workspace, commands=commands_of("bubblewrap"), policy=policy) as attacker:
        await attacker.bash("true > x")
        (workspace / "late").mkdir()
        (workspace / "late" / "key").write_text(CANARY)
        (workspace / "b.secret").write_text(CANARY)
        (workspace / "link").symlink_to("late/key")
        said = await attacker.bash("cat l*/k* link *.sec*; cat < link; grep -r fish .")
        read = [await attacker.call("read_file", path=path) for path in ("link", "LATE/key", "b.secret", "./late/key")]
        found = [
            await attacker.call("grep", pattern="fish"),
            await attacker.call("glob", pattern="**"),
            await attacker.call("list_dir", path="late"),
        ]

    told = "".join(map(text_of, (said, *read, *found)))
    assert CANARY not in told
    assert "late/key" not in told


async def test_what_a_rule_denies_to_bash_alone_is_hidden_from_commands_and_not_from_tools(workspace: Path) -> None:
    policy = RulePolicy([Rule(id="closed", verdict="deny", tools="bash", path="a/secrets/")])

    async with box(workspace, commands=commands_of("bubblewrap"), policy=policy) as attacker:
        said = await attacker.bash("cat a/s*/k*; grep -r fish a")
        read = await attacker.call("read_file", path="a/secrets/key")

    assert CANARY not in text_of(said)
    assert CANARY in text_of(read)


async def test_what_a_rule_denies_to_write_is_read_only_for_commands_also_after_a_move(workspace: Path) -> None:
    policy = RulePolicy([Rule(id="frozen", verdict="deny", path="a/secrets/", access="write")])

    async with box(workspace, commands=commands_of("bubblewrap"), policy=policy) as attacker:
        said = await attacker.bash("find . -name key | xargs cat; find . -name key | xargs -n 1 cp .git/HEAD; mv a b")
        await attacker.bash("find . -name key | xargs -n 1 cp .git/HEAD; mv b a")

    assert CANARY in text_of(said)
    assert (workspace / "a/secrets/key").read_text() == CANARY


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("path", [".git/modules/libs/tool/config", ".git/modules/libs/tool/hooks/post-checkout"])
async def test_settings_of_a_module_in_a_folder_cannot_be_written(workspace: Path, path: str) -> None:
    """A module at `libs/tool` has its repository in `.git/modules/libs/tool`."""
    (workspace / ".git/modules/libs/tool/hooks").mkdir()
    (workspace / ".git/modules/libs/tool/HEAD").write_text("ref: refs/heads/main\n")

    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        await attacker.bash(f"echo evil > {path}")

    assert not (workspace / path).exists() or "evil" not in (workspace / path).read_text()


_PLANTS = [
    "echo evil > .envrc",
    "mkdir .vscode; echo evil > .vscode/tasks.json",
    "mv .git g; mkdir .git; echo evil > .git/config",
    "mv .git g; echo 'gitdir: g' > .git",
    "git init -q nested; echo evil > nested/.git/hooks/post-checkout",
    "mkdir -p .git/x; echo 'ref: x' > .git/x/HEAD; echo evil > .git/x/config; echo 'gitdir: .git/x' > a/.git",
    "echo ../x > .git/commondir",
]


@pytest.mark.requirement("P13")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("script", _PLANTS)
async def test_a_person_is_told_of_every_file_that_other_programs_would_obey(
    workspace: Path, script: str, background: bool
) -> None:
    """What does not exist cannot be held; so it is told, however the command ran. Or nothing came of it."""
    (workspace / ".git/config").write_text("[core]\n")
    before = snapshot(workspace)
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        await _run(attacker, script, background)
        await attacker.bash("true")
        told = await attacker.logged()

    assert "what other programs obey" in told or snapshot(workspace) == before


@pytest.mark.requirement("P13")
async def test_a_repository_that_goes_and_comes_back_with_other_hooks_is_told(workspace: Path) -> None:
    (workspace / ".git/hooks").mkdir()
    before = snapshot(workspace)
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        for script in ("mv .git g", "echo evil > g/hooks/post-checkout", "mv g .git"):
            await attacker.bash(script)
        told = await attacker.logged()

    assert "what other programs obey" in told or snapshot(workspace) == before


@pytest.mark.requirement("P13")
@pytest.mark.parametrize(
    "script",
    ["echo evil >> runs.db", "rm -f runs.db", "mv runs.db x", "truncate -s 0 runs.db", "echo evil >> runs.db-wal"],
)
async def test_a_log_in_the_workspace_is_closed_to_commands(workspace: Path, script: str) -> None:
    """Who can write it has approved its own questions at the next start."""
    commands = commands_of("bubblewrap")
    async with SqliteLog(workspace / "runs.db") as log, box(workspace, commands=commands, log=log) as attacker:
        await attacker.bash("true")
        before = (workspace / "runs.db").stat()
        said = [await attacker.bash(script), await attacker.call("write_file", path="runs.db", content="evil")]
        now = (workspace / "runs.db").stat()
        audit = await attacker.runtime.verify()

    assert [one.ok for one in said] == [False, False]
    assert (now.st_ino, now.st_size >= before.st_size) == (before.st_ino, True)
    assert audit.ok


@pytest.mark.requirement("P13")
async def test_artifacts_in_the_workspace_are_closed_to_commands_and_tools(workspace: Path) -> None:
    artifacts = FileArtifacts(workspace / "kept")
    async with box(workspace, commands=commands_of("bubblewrap"), artifacts=artifacts) as attacker:
        await attacker.bash("echo something")
        files = (path for path in (workspace / "kept").rglob("*") if path.is_file())
        kept = next(path for path in files if path.read_text() == "something\n")
        await attacker.bash(
            f"chmod -R u+w kept; echo evil > kept/{kept.relative_to(workspace / 'kept')}; rm -rf kept/*"
        )

        assert kept.read_text() == "something\n"


@pytest.mark.requirement("P13")
async def test_a_policy_file_in_the_workspace_is_closed_to_commands_and_tools(workspace: Path) -> None:
    """It is read again while the run lives: who writes it allows itself everything."""
    (workspace / "rules.yaml").write_text("version: 1\nrules: []\n")
    policy = PolicyFiles(user=workspace / "rules.yaml")
    async with box(workspace, commands=commands_of("bubblewrap"), policy=policy) as attacker:
        await attacker.bash("echo evil > rules.yaml")
        await attacker.call("write_file", path="rules.yaml", content="evil")

    assert (workspace / "rules.yaml").read_text() == "version: 1\nrules: []\n"


@pytest.mark.requirement("P13")
@pytest.mark.parametrize(
    "script",
    [
        "cp /bin/true x; chmod u+s x",
        "cp /bin/true x; chmod g+s x",
        "cp /bin/true x; {python} -I -c \"import os; os.chmod('x', 0o6755)\"",
        "{python} -I -c \"import os; os.open('x', os.O_CREAT | os.O_WRONLY, 0o4777)\"",
    ],
)
async def test_a_command_leaves_no_program_that_gives_our_rights_to_others(workspace: Path, script: str) -> None:
    """Its files belong to us on the host: a program with such a mode is started by another user, as us."""
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        await attacker.bash(script.replace("{python}", sys.executable))

    assert not (workspace / "x").exists() or not (workspace / "x").stat().st_mode & 0o6000


async def test_nothing_of_a_command_is_left_for_the_next(workspace: Path) -> None:
    leave = (
        "echo evil > ~/.bashrc; echo evil > ~/.bash_profile; echo evil > /tmp/left; echo evil > /dev/shm/left; "
        "export LD_PRELOAD=/tmp/evil.so BASH_ENV=/tmp/left; alias cat=evil; ulimit -n 9; cd a; umask 777"
    )
    async with box(workspace, commands=commands_of("bubblewrap")) as attacker:
        await attacker.bash(leave)
        said = await attacker.bash("ls -A ~ /tmp /dev/shm; env; alias; pwd; umask; ulimit -n")

    assert "evil" not in text_of(said)
    assert "left" not in text_of(said)
    assert {"0022", "1024", str(workspace)} <= set(text_of(said).split())


async def _run(attacker: Box, script: str, background: bool) -> None:
    said = await attacker.bash(script, background=background)
    if background:
        await attacker.call("wait_task", task_id=said.facts["task"]["id"])


@pytest.mark.skipif("os.geteuid() != 0", reason="this is an ordinary user")
def test_a_secret_stays_hidden_when_we_are_an_ordinary_user() -> None:
    pytest_as_ordinary_user("tests/local/test_escapes.py", "-k", "secret_stays_hidden_wherever")
