"""The program that really runs, whatever is put around it."""

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from tests.each import each


@each(
    ("text", "wrappers"),
    [
        ("env rm x", ("env",)),
        ("env -i -u HOME rm x", ("env",)),
        ("/usr/bin/env rm x", ("/usr/bin/env",)),
        ("sudo -n -u root -- rm x", ("sudo",)),
        ("sudo --user=root rm x", ("sudo",)),
        ("doas -u root rm x", ("doas",)),
        ("nice -n 5 rm x", ("nice",)),
        ("nice -5 rm x", ("nice",)),
        ("ionice -c2 -n 7 rm x", ("ionice",)),
        ("nohup rm x", ("nohup",)),
        ("timeout -k 5 --signal=KILL 10s rm x", ("timeout",)),
        ("stdbuf -oL -e0 rm x", ("stdbuf",)),
        ("time -p rm x", ("time",)),
        ("command rm x", ("command",)),
        ("builtin command rm x", ("builtin", "command")),
        ("exec rm x", ("exec",)),
        ("setsid -w rm x", ("setsid",)),
        ("chrt -b 0 rm x", ("chrt",)),
        ("taskset -c 0 rm x", ("taskset",)),
        ("busybox rm x", ("busybox",)),
        ("sudo env nice timeout 5 rm x", ("sudo", "env", "nice", "timeout")),
        ("bash -c 'rm x'", ("bash",)),
        ("sh -ec 'rm x' name arg", ("sh",)),
        ("bash -lc 'rm x'", ("bash",)),
        ("bash -o pipefail -c 'rm x'", ("bash",)),
        ("sudo bash -c 'env rm x'", ("sudo", "bash", "env")),
        ("bash -c \"sh -c 'rm x'\"", ("bash", "sh")),
    ],
)
def test_the_effective_program_is_found(text: str, wrappers: tuple[str, ...]) -> None:
    script = parse_script(text)
    assert script.opaque == ""
    assert script.commands == (SimpleCommand(argv=("rm", "x"), wrappers=wrappers),)


def test_variables_set_by_a_wrapper_stand_beside_the_command() -> None:
    (command,) = parse_script("A=1 env B=2 sudo C=3 make").commands
    assert command.assignments == (("A", "1"), ("B", "2"), ("C", "3"))


def test_a_script_inside_a_shell_gives_all_its_commands_and_files() -> None:
    script = parse_script("A=1 bash -c 'a && b > f'")
    assert script.commands == (
        SimpleCommand(argv=("a",), wrappers=("bash",), assignments=(("A", "1"),)),
        SimpleCommand(argv=("b",), wrappers=("bash",), assignments=(("A", "1"),)),
    )
    assert [redirect.path for redirect in script.redirects] == ["f"]


def test_asking_where_a_program_is_does_not_run_it() -> None:
    script = parse_script("command -v git")
    assert (script.opaque, script.commands) == ("", (SimpleCommand(argv=("command", "-v", "git")),))


def test_a_shell_with_a_file_is_a_command_of_its_own() -> None:
    script = parse_script("bash build.sh -c x")
    assert (script.opaque, script.commands) == ("", (SimpleCommand(argv=("bash", "build.sh", "-c", "x")),))


@each(
    "text",
    [
        *(
            "env",
            "env -C / rm x",
            "env --chdir=/ rm x",
            "env --ch=/ rm x",
            "sudo -s rm x",
            "sudo -i",
            "sudo --us=root rm x",
        ),
        *(
            "sudo -D / rm x",
            "time -o f rm x",
            "timeout 5",
            "timeout --sig=KILL 5 rm x",
            "nice -x rm x",
            "command -p rm x",
        ),
        *("exec -a y rm x", "taskset -p 1", "nice -n", "nohup -x rm x", "env *", "sudo -u"),
        *("xargs rm x", "parallel rm x", "watch rm x", "ssh h rm x", "nsenter rm x", "unshare rm x", "chroot / rm x"),
        *(
            "script -c 'rm x'",
            "su -c 'rm x'",
            "flock f rm x",
            "strace rm x",
            "systemd-run rm x",
            "find . -exec rm x \\;",
        ),
        *("find . -execdir rm x +", "find . -ok rm x \\;", "env " * 20 + "rm x"),
    ],
)
def test_a_wrapper_that_is_not_understood_is_opaque(text: str) -> None:
    script = parse_script(text)
    assert script.opaque != ""
    if "rm x" in text:
        assert ("rm", "x") in [command.argv[:2] for command in script.commands]
