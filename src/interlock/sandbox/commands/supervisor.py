"""The process between Interlock and a command where there is no namespace that would end with it.

Run as `python -I -S supervisor.py name=value ... -- program word ...`; it imports nothing but the standard library, and
little of that, so that it starts fast. Its environment is the command's.

    parent    who started it: when that process is gone, so is the command
    status    descriptor for JSON lines: `child-pid`, then `started` and `exit-code`, or `setup-error`
    silent    `started` is not reported: the command reports it itself
    cwd       where the command starts
    folder    a descriptor of that folder, where it is given: the command starts there, whatever has the name by then
    given     descriptors for the command alone, with commas between them
    ruleset   descriptors of Landlock rulesets
    filter    descriptors of seccomp filters
    remove    a folder to remove at the end
    unset     a variable that the command does not get
    names of `LIMITS`: limits of each process

Orphans of the command come to this process (it is their subreaper), so all that the command started is below it for as
long as it lives: when the command has ended, or SIGTERM comes, every descendant is killed before this process exits. A
command must not be able to kill this process: Landlock keeps its signals inside. Should it be killed all the same, the
kernel kills the command, but not what the command started.
"""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress

LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "memory_bytes": resource.RLIMIT_DATA,
    "core_bytes": resource.RLIMIT_CORE,
    # Counts all threads of the user, not those of the command.
    "processes": resource.RLIMIT_NPROC,
}

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_RESTRICT_SELF = 446
_INSTRUCTION_BYTES = 8
_MAX_FILTER_BYTES = 4096 * _INSTRUCTION_BYTES

_REMOVAL_SECONDS = 2.0

_TERMINATION_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_AWAITED_SIGNALS = {*_TERMINATION_SIGNALS, signal.SIGCHLD}


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def main(words: list[str]) -> None:
    """Supervise a command: the options precede `--`, the command follows it."""
    split = words.index("--")
    options = dict(word.split("=", 1) for word in words[:split])
    # Signals stay pending until asked for, so nothing is interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED_SIGNALS)
    status = int(options["status"])
    os.set_inheritable(status, False)
    try:
        if _bind_to_parent(int(options["parent"])):
            _supervise(options, words[split + 1 :], status)
    except OSError as error:
        _write_status(status, "setup-error", _quote_json(f"the command cannot be started: {error}"))
    finally:
        _kill_descendants()
        if folder := options.get("remove"):
            _remove(folder)


def _bind_to_parent(parent: int) -> bool:
    """Bind this process to its parent. Return False if the parent is gone already."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


def _supervise(options: dict[str, str], argv: list[str], status: int) -> None:
    # The child's end closes when it becomes the program; before, it says what hindered it.
    error_fd, its_end = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _exec_command(options, argv, its_end, parent)
    os.close(its_end)
    _close_passed_fds(options)
    _write_status(status, "child-pid", child)
    error = os.read(error_fd, 4096)
    if error:
        _write_status(status, "setup-error", _quote_json(error.decode(errors="replace")))
        return
    if "silent" not in options:
        _write_status(status, "started", "true")
    exit_code = _wait_for_exit(child)
    if exit_code is not None:
        _write_status(status, "exit-code", exit_code)


def _close_passed_fds(options: dict[str, str]) -> None:
    for name in ("given", "folder", "ruleset", "filter"):
        for number in _parse_numbers(options, name):
            with suppress(OSError):
                os.close(number)


def _parse_numbers(options: dict[str, str], name: str) -> list[int]:
    return [int(number) for number in options.get(name, "").split(",") if number]


def _write_status(status: int, name: str, value: int | str) -> None:
    with suppress(BrokenPipeError):
        os.write(status, f'{{"{name}": {value}}}\n'.encode())


def _quote_json(text: str) -> str:
    """Quote a text as JSON. The json module would take longer to load than everything else."""
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in text) + '"'


def _wait_for_exit(child: int) -> int | None:
    """Wait for the exit code of the command. Return None if a signal ends the wait."""
    while signal.sigwait(_AWAITED_SIGNALS) not in _TERMINATION_SIGNALS:
        for pid, code in _reap_children():
            if pid == child:
                return code
    return None


def _reap_children() -> list[tuple[int, int]]:
    """Collect ended children with the exit codes that a shell would see."""
    ended: list[tuple[int, int]] = []
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(found[1])
            ended.append((found[0], code if code >= 0 else 128 - code))
    return ended


# In the child.


def _exec_command(options: dict[str, str], argv: list[str], error_fd: int, parent: int) -> None:
    step = "started"
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        os.setsid()
        # Also without a sandbox: what has more rights than we have could not be ended.
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        step = "started there"
        _enter_folder(options)
        step = "limited"
        _set_limits(options)
        step = "confined"
        _confine(options)
        step = "started"
        _reset_signals()
        os.umask(0o022)
        os.environ.pop(options.get("unset", ""), None)
        os.execvp(argv[0], argv)  # noqa: S606 - what this process is for
    except Exception as error:
        os.write(error_fd, f"the command cannot be {step}: {error}"[:1000].encode(errors="replace"))
    finally:
        os._exit(127)


def _enter_folder(options: dict[str, str]) -> None:
    for number in _parse_numbers(options, "folder"):
        os.fchdir(number)
        os.close(number)
        return
    os.chdir(options["cwd"])


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _set_limits(options: dict[str, str]) -> None:
    """Set the limits. A lower limit of the host stays."""
    for name, number in LIMITS.items():
        if name in options:
            most = resource.getrlimit(number)[1]
            wanted = int(options[name])
            limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(number, (limit, limit))


def _confine(options: dict[str, str]) -> None:
    for number in _parse_numbers(options, "ruleset"):
        restrict = (ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_int(number), ctypes.c_uint32(0))
        _check_result(ctypes.CDLL(None, use_errno=True).syscall(*restrict), "Landlock")
        os.close(number)
    for number in _parse_numbers(options, "filter"):
        _install_filter(os.pread(number, _MAX_FILTER_BYTES, 0))
        os.close(number)


def _install_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    loaded = _FilterProgram(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    result = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0)
    _check_result(result, "seccomp")


def _prctl(option: int, value: int) -> None:
    _check_result(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0), f"prctl {option}")


def _check_result(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


# At the end.


def _kill_descendants() -> None:
    """Kill all descendants. Return when there are none."""
    while _has_children():
        _stop_descendants()
        for pid in _descendants():
            _send(pid, signal.SIGKILL)
        # An orphan is a child of this process from then on, so none is missed for long.
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _has_children() -> bool:
    _reap_children()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _stop_descendants() -> None:
    """Stop all descendants, which then cannot fork: killing one by one would make room for the next."""
    stopped: set[int] = set()
    while new := _descendants() - stopped:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
        # A process that forks and ends leaves one at each step; they would make the next look slower than its steps.
        _reap_children()


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants() -> set[int]:
    found, below = set[int](), [os.getpid()]
    while below:
        more = _read_children(below.pop()) - found
        found |= more
        below += more
    return found


def _read_children(pid: int) -> set[int]:
    children: set[int] = set()
    with suppress(OSError):  # it has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children.update(map(int, file.read().split()))
    return children


def _remove(folder: str) -> None:
    """Remove a folder in a child process, with a time limit: a command may have left a million files."""
    remover = os.fork()
    if remover == 0:
        try:
            for number in range(3):
                os.close(number)
            _remove_tree(folder)
        finally:
            os._exit(0)
    while not os.waitpid(remover, os.WNOHANG)[0]:
        if signal.sigtimedwait({signal.SIGCHLD}, _REMOVAL_SECONDS) is None:
            return


def _remove_tree(folder: str) -> None:
    """Remove a tree of any depth without following links, by entering each folder."""
    os.chdir(folder)
    above: list[str] = []
    while True:
        if below := _remove_files():
            os.chmod(below, 0o700)
            os.chdir(below)
            above.append(below)
        elif above:
            os.chdir("..")
            os.rmdir(above.pop())
        else:
            break
    os.rmdir(folder)


def _remove_files() -> str:
    with os.scandir() as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name)
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
