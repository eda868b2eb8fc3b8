"""The process between Interlock and a command: what it tells, and that nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.sandbox.commands import supervisor
from tests.patience import HANG_SECONDS

PROGRAM = (sys.executable, "-I", "-S", supervisor.__file__)
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
#: Each daemon holds the standard output, leaves its group, and says which process it is.
DAEMONS = """
setsid sh -c 'echo $$; exec sleep 1000' &
( setsid sh -c 'trap "" TERM; echo $$; exec sleep 1000' & )
sh -c 'trap "" TERM INT HUP; echo $$; sleep 1000 & wait' &
"""

#: Two signals that no program can set, and that may come in ignored.
_OF_THE_C_LIBRARY = (1 << 31) | (1 << 32)


class Supervised:
    def __init__(self, *argv: str, environment: dict[str, str] = ENVIRONMENT, **options: object) -> None:
        self._status, its_status = os.pipe()
        given = {"parent": os.getpid(), "status": its_status, "cwd": "/", "silent": True} | options
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        self.process = subprocess.Popen(
            [*PROGRAM, *words, "--", *argv],
            env=environment,
            pass_fds=[its_status],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.close(its_status)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self) -> tuple[dict[str, Any], str]:
        """What it told, and what the command printed: all that could hold the output is gone."""
        with self.process, open(self._status, encoding="utf-8") as status:
            output = self.process.communicate(timeout=HANG_SECONDS)[0].decode()
            told: dict[str, Any] = {}
            for line in status:
                told |= json.loads(line)
        told.pop("child-pid", None)
        return told, output


def supervised(*argv: str, **options: Any) -> tuple[dict[str, Any], str]:
    return Supervised(*argv, **options).end()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exit 255", 255)])
def test_the_exit_code_is_told(script: str, code: int) -> None:
    assert supervised("sh", "-c", script) == ({"exit-code": code}, "")


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (("no-such-program",), {}),
        (("/etc/passwd",), {}),
        (("true",), {"cwd": '/no/such "folder"\n'}),
        (("true",), {"ruleset": 999}),
        (("true",), {"filter": 999}),
    ],
)
def test_what_could_not_be_started_never_looks_like_an_exit_code(
    argv: tuple[str, ...], options: dict[str, object]
) -> None:
    told, output = supervised(*argv, **options)

    assert list(told) == ["setup-error"]
    assert told["setup-error"].startswith("the command cannot be ")
    assert output == ""


def test_the_child_is_named_early() -> None:
    command = Supervised("sh", "-c", "echo $$; read nothing", parent=os.getpid())
    pid = int(command.line())

    with open(command._status, encoding="utf-8", closefd=False) as status:  # pyright: ignore[reportPrivateUsage]
        assert json.loads(status.readline()) == {"child-pid": pid}
    command.end()


def test_what_cannot_say_itself_that_it_began_is_told_of() -> None:
    assert supervised("true", silent=None)[0] == {"started": True, "exit-code": 0}
    assert list(supervised("no-such-program", silent=None)[0]) == ["setup-error"]


def test_nothing_starts_when_the_parent_is_gone_already() -> None:
    assert supervised("echo", "started", parent=1) == ({}, "")


@pytest.mark.parametrize("last", ["exit 3", "kill -9 $$"])
def test_daemons_end_with_the_command(last: str) -> None:
    command = Supervised("bash", "-c", f"{DAEMONS} read; {last}")
    pids = [int(command.line()) for _ in range(3)]

    told, _ = command.end()

    assert told == {"exit-code": 3 if last == "exit 3" else 137}
    assert all(is_gone(pid) for pid in pids)


def test_sigterm_ends_the_command_and_its_daemons() -> None:
    command = Supervised("bash", "-c", f"trap '' TERM; {DAEMONS} echo $$; wait")
    pids = [int(command.line()) for _ in range(4)]

    command.process.terminate()
    told, _ = command.end()

    assert told == {}
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("number", [2, 20])
def test_processes_that_never_stay_the_same_are_ended_too(number: int, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.touch()
    hop = f'[ -e {keep} ] && exec setsid -f bash -c "$hop"'
    hops = 'eval "$hop" & ' * number
    command = Supervised("bash", "-c", f"export hop='{hop}'; {hops} wait; echo hopping; sleep 1000")
    try:
        command.line()
        command.process.terminate()

        assert command.end() == ({}, "")
    finally:
        keep.unlink()


@pytest.mark.requirement("R225")
def test_a_harness_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    script = f"{DAEMONS} echo here > {folder}/file; wait"
    harness = (
        "import os, subprocess, sys\n"
        "subprocess.run([*sys.argv[2:6], f'parent={os.getpid()}', 'status=2', 'cwd=/', f'remove={sys.argv[1]}', '--',"
        f" 'bash', '-c', {script!r}])"
    )
    words = [sys.executable, "-c", harness, str(folder), *PROGRAM]
    with subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(3)]

        process.kill()
        # Both pipes end when the last one is gone that could write to them: the supervisor.
        process.communicate(timeout=HANG_SECONDS)

    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_a_supervisor_that_is_killed_takes_the_command_with_it() -> None:
    command = Supervised("sh", "-c", "echo started; exec sleep 1000")
    command.line()

    command.process.kill()

    assert command.end() == ({}, "")


def test_the_command_gets_no_descriptor_and_no_variable_beside_its_own() -> None:
    told, output = supervised(
        "sh", "-c", "ls /proc/self/fd; env", environment={"A": "1", "PATH": "/bin"}, unset="LC_CTYPE"
    )

    assert told == {"exit-code": 0}
    assert sorted(output.split()) == ["0", "1", "2", "3", "A=1", "PATH=/bin", "PWD=/"]


def test_the_command_is_the_first_of_its_own_session_with_default_signals() -> None:
    told, output = supervised(
        "sh", "-c", "ps -o sid= -p $$; echo $$; grep -E 'Sig(Blk|Ign)|NoNewPrivs' /proc/self/status"
    )

    assert told == {"exit-code": 0}
    session, pid, _, blocked, _, ignored, _, no_new_privileges = output.split()
    assert session == pid
    assert (int(blocked, 16), int(ignored, 16) & ~_OF_THE_C_LIBRARY, no_new_privileges) == (0, 0, "1")


def test_limits_hold_for_every_process() -> None:
    script = "ulimit -n; ulimit -f; ulimit -d; ulimit -c; bash -c 'ulimit -n'; ulimit -n 100000 2>&1 | grep -c cannot"

    limits = {"open_files": 77, "file_bytes": 4096, "memory_bytes": 1 << 30, "core_bytes": 0}
    told, output = supervised("bash", "-c", script, **limits)

    assert told == {"exit-code": 0}
    assert output.split()[:5] == ["77", "4", str(1 << 20), "0", "77"]


def test_a_file_beyond_the_limit_ends_its_writer(tmp_path: Path) -> None:
    told, _ = supervised("sh", "-c", f"exec head -c 10000 /dev/zero > {tmp_path}/large", file_bytes=4096)

    assert told == {"exit-code": 128 + signal.SIGXFSZ}
    assert (tmp_path / "large").stat().st_size == 4096


def test_its_folder_is_removed_whatever_is_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "private"
    outside.mkdir()
    (outside / "kept").write_text("here")
    folder.mkdir()
    script = (
        f"cd {folder}; ln -s {outside} link; ln -s {outside}/kept kept; mkfifo pipe;"
        "mkdir -p no/entry; touch no/entry/f; chmod 0 no/entry no;"
        "for i in $(seq 100); do d=$d/$(printf %0100d $i); mkdir -p .$d 2>/dev/null || break; done"
    )

    told, _ = supervised("bash", "-c", script, remove=folder)

    assert told == {"exit-code": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").read_text() == "here"


def test_it_starts_with_few_modules() -> None:
    program = f"import sys; exec(open({supervisor.__file__!r}).read(), {{'__name__': 'a'}}); print(*sys.modules)"

    ended = subprocess.run([*PROGRAM[:3], "-c", program], capture_output=True, text=True, check=True)

    assert not {"json", "re", "typing", "subprocess", "shutil", "tempfile"} & set(ended.stdout.split())
