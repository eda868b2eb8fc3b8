"""Known holes of sandboxes, each tried from inside, as root and as an ordinary user."""

import asyncio
import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host import process_tree
from interlock.sandbox.host.programs import find_bwrap, python_folders
from interlock.sandbox.interface import CommandLimits, OutputStream
from tests.patience import HANG_SECONDS

from .commands import a_command, run, works
from .ordinary_user import pytest_as_ordinary_user


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


async def python(sandbox: BubblewrapSandbox, program: str, workspace: Path) -> list[str]:
    """The lines that this very interpreter printed inside."""
    outcome = await run(sandbox, (sys.executable, "-I", "-c", program), workspace, readable=python_folders())
    assert outcome.ended.exit_code == 0, outcome
    return outcome.stdout.split("\n")[:-1]


async def test_h1_settings_of_the_kernel_cannot_be_written(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    files = ("kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "user/max_user_namespaces")
    writes = [f"echo 1 > /proc/sys/{name}" for name in files]
    others = [f"echo 1 > {path}" for path in ("/proc/sysrq-trigger", "/proc/irq/0/smp_affinity", "/proc/mtrr")]

    assert await works(sandbox, [*writes, *others, "mount -o remount,rw /proc/sys"], tmp_path) == []
    assert await works(sandbox, ["cat /proc/sys/kernel/hostname"], tmp_path) != []


@pytest.mark.requirement("R234")
async def test_h2_no_variable_of_this_process_is_visible_in_any_process(
    sandbox: BubblewrapSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "swordfish")

    outcome = await run(sandbox, "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env; set", tmp_path)

    assert "PATH=" in outcome.stdout
    assert "swordfish" not in outcome.stdout
    assert "BASH_ENV" not in (await run(sandbox, "env", tmp_path)).stdout


@pytest.fixture
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("host") / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield path


async def test_h3_sockets_of_the_host_are_not_there(
    sandbox: BubblewrapSandbox, tmp_path: Path, listening: Path
) -> None:
    assert await works(sandbox, [f"test -e {listening}"], tmp_path) == []

    # The workspace itself may be in `/var/tmp`: then the way to it is there, and nothing else.
    found = await run(sandbox, f"find /run /var -path '{tmp_path}' -prune -o -print", tmp_path)
    assert set(found.stdout.splitlines()) <= {str(folder) for folder in tmp_path.parents}


async def test_h3_sockets_of_the_host_without_a_file_are_in_another_namespace(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    name = f"\0interlock-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        connect = f"import socket; print(socket.socket(socket.AF_UNIX).connect_ex({name!r}) != 0)"

        assert await python(sandbox, connect, tmp_path) == ["True"]


SYSTEM_CALLS = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    outcome = libc.syscall(*arguments)
    print(name, errno.errorcode.get(ctypes.get_errno(), "ok") if outcome < 0 else "ok")
for name, family in dict(vsock=40, alg=38, packet=17, bluetooth=31, xdp=44).items():
    try:
        socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_SEQPACKET)
        print(name, "ok")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
call("keyctl", 250, 0, -3, 0)
call("add_key", 248, b"user", b"name", b"text", 4, -2)
call("ptrace", 101, 0, 0, 0, 0)
call("unshare", 272, 0x10000000)
call("clone", 56, 0x10000000 | 17, 0, 0, 0, 0)
call("clone3", 435, 0, 0)
call("mount", 165, b"x", b"/tmp", b"tmpfs", 0, 0)
call("io_uring_setup", 425, 1, 0)
call("bpf", 321, 0, 0, 0)
call("userfaultfd", 323, 0)
call("process_vm_readv", 310, 1, 0, 0, 0, 0, 0)
call("open_by_handle_at", 304, 0, 0, 0)
call("tiocsti", 16, 0, 0x5412, b"x")
call("x32", 0x40000000 | 39)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
async def test_h4_what_reaches_around_namespaces_is_refused(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    lines = await python(sandbox, SYSTEM_CALLS, tmp_path)

    found = dict(line.split() for line in lines)
    families = {found.pop(name) for name in ("vsock", "alg", "packet", "bluetooth", "xdp")}
    assert families == {"EAFNOSUPPORT"}
    assert (found.pop("clone3"), found.pop("x32")) == ("ENOSYS", "ENOSYS")
    assert set(found.values()) == {"EPERM"}


async def test_h4_programs_of_the_system_make_no_namespaces_either(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    tries = ["unshare -U true", "unshare -r true", "unshare -n true", "mount -t tmpfs x /tmp", "chroot / true"]

    assert await works(sandbox, tries, tmp_path) == []


@pytest.mark.requirement("R232")
async def test_h5_secrets_of_the_host_cannot_be_read(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    folders = (
        "/root",
        "/home/*/.[a-z]*",
        "/var/log",
        "/run/secrets",
        "/etc/ssl/private",
        "/srv",
        "/mnt",
        "/opt",
        "/sys",
    )
    tries = ["cat /etc/shadow", *(f"ls -d {folder}" for folder in folders)]

    assert await works(sandbox, tries, tmp_path) == []
    assert await works(sandbox, ["touch /usr/x", "touch /etc/x", "touch /x", "touch /dev/x"], tmp_path) == []
    assert await works(sandbox, ["touch ~/x", "touch /tmp/x", "touch x"], tmp_path) != []


async def test_h6_protecting_what_is_missing_makes_nothing_on_the_host(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    (tmp_path / "broken").symlink_to("nowhere")
    names = [str(tmp_path / name) for name in (".agent", "a/b/c", ".env", "broken")]

    outcome = await run(sandbox, "ls -A", tmp_path, hidden=tuple(names), read_only=tuple(names))

    assert outcome.stdout == "broken\n"
    assert os.listdir(tmp_path) == ["broken"]


async def test_h7_what_may_not_be_read_does_not_stop_the_start(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "file").write_text("x")
    locked.chmod(0)

    outcome = await run(sandbox, "echo up", tmp_path, hidden=(str(locked),), read_only=(str(locked),))
    locked.chmod(0o700)

    assert outcome.stdout == "up\n"


async def test_h8_no_folder_in_memory_is_without_a_size(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    script = (
        "while read -r _ place kind options _; do [ $kind = tmpfs ] && echo $place ${options%%,*}; done < /proc/mounts"
    )

    outcome = await run(sandbox, script, tmp_path)

    writable = {line.split()[0] for line in outcome.stdout.splitlines() if line.endswith(" rw")}
    assert writable == {"/dev/shm", "/tmp", "/home/agent"}


async def test_h9_no_open_file_of_this_process_is_inherited(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    fd = os.open(secret, os.O_RDONLY)
    os.set_inheritable(fd, True)

    outcome = await run(sandbox, "for fd in /proc/self/fd/*; do readlink $fd; done", tmp_path)
    os.close(fd)

    assert {line.partition("[")[0] for line in outcome.stdout.splitlines()} == {"/dev/null", "pipe:"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns devices")
async def test_the_modes_of_devices_are_as_before(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    await run(sandbox, "chmod 600 /dev/full", tmp_path)

    assert os.stat("/dev/full").st_mode & 0o777 == 0o666


async def test_the_network_is_off_and_the_loopback_is_its_own(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = [f": < /dev/tcp/127.0.0.1/{port}", ": < /dev/tcp/192.0.2.1/80", ": < /dev/udp/192.0.2.1/53"]

        assert await works(sandbox, tries, tmp_path) == []


SERVE_AND_CONNECT = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].sendall(b"hello")
print(client.recv(5).decode())
"""


async def test_a_server_inside_can_be_reached_inside(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    assert await python(sandbox, SERVE_AND_CONNECT, tmp_path) == ["hello"]


async def test_no_process_of_the_host_can_be_seen_or_signalled(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    tries = [f"kill -9 {bystander.pid}", f"test -e /proc/{bystander.pid}", "kill -9 1 && ! test -e /proc/1"]
    found = await works(sandbox, tries, tmp_path)
    seen = await run(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", tmp_path)
    bystander.kill()

    assert await bystander.wait() == -9
    assert found == []
    assert "sleep" not in seen.stdout


async def test_privileges_are_dropped_for_good(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(sandbox, "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status", tmp_path)

    words = dict(line.split() for line in outcome.stdout.splitlines())
    assert words.pop("NoNewPrivs:") == "1"
    assert words.pop("Seccomp:") == "2"
    assert set(words.values()) == {"0000000000000000"}


async def test_there_is_no_terminal_and_nothing_to_read(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    assert await works(sandbox, ["tty", ": < /dev/tty", "read line"], tmp_path) == []


async def test_other_users_of_the_host_see_no_variables_and_no_paths_in_the_command_line(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    seen: list[bytes] = []
    looked = asyncio.Event()

    def look(stream: OutputStream, chunk: bytes) -> None:
        pids = process_tree.list_descendants(os.getpid())
        seen.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
        looked.set()

    command = a_command("echo up; read line < <(sleep 1000)", tmp_path, environment={"A_TOKEN": "swordfish"})
    running = await sandbox.start(command, look)
    await asyncio.wait_for(looked.wait(), HANG_SECONDS)
    await running.wait(0)

    assert any(b"--args" in line for line in seen)
    assert b"swordfish" not in b"".join(seen)
    assert str(tmp_path).encode() not in b"".join(seen)


async def test_limits_hold_for_what_a_program_of_ours_starts(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(sandbox, ("bash", "-c", "ulimit -n"), tmp_path, limits=CommandLimits(open_files=99))

    assert outcome.stdout == "99\n"


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)


def test_of_an_environment_only_the_python_is_shown_and_not_what_else_lies_in_it() -> None:
    for folder in {sys.prefix, sys.base_prefix}:
        assert folder not in python_folders()
        assert os.path.join(folder, ".cache") not in python_folders()


async def test_a_home_in_the_environment_of_the_python_does_not_hinder_commands(
    sandbox: BubblewrapSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", os.path.join(sys.prefix, ".cache", "home"))

    outcome = await run(sandbox, (sys.executable, "-c", "print('ran')"), tmp_path, readable=python_folders())

    assert outcome.stdout == "ran\n"
