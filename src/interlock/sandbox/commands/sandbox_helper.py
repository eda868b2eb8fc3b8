"""Completes a sandbox that waits at its gate: a small separate process that uses no path of the host.

Run as `python -I -S sandbox_helper.py FD TABLE`; it imports little of the standard library, so that it starts fast. FD
is a socket. Each message on it brings three descriptors: a namespace of the sandbox, a plan, and a pipe or socket for
the reply. A fork of this process, made before it is needed, joins that namespace, does what the plan says, replies `ok`
or what went wrong, and exits. When the other end of the socket is closed, the process kills what is left of the
launches in TABLE, a shared file, and ends. A row is up to two processes: number and start time of the launched one,
which leads its session, and of the first one inside.

A process is needed because a process with threads cannot join a user namespace. It is no child of the one that uses it,
which may wait for children it knows. It joins the namespace that owns the
mounts, so it may mount in the sandbox and nowhere else.

Every target is reached from the root of the sandbox one name at a time, without following links, and held open from
then on: it is compared with what was planned, and the mount is made on that very descriptor. So a name that another
command exchanges meanwhile leads to a refusal, never to a mount, a file or a folder elsewhere.

A plan is words that end with NUL: the root (where the sandbox is still under construction), the path of an empty file
in it, then four words for each mount: kind, path, device and inode number; or -1 and the time of the last change of
status, for a file that is seen through an overlay.

    hidden      show an empty file or folder instead
    read_only   show it as it is, but it cannot be written
    pinned      show it as it is, but it cannot be moved

Or it is `listen` and a port: then the namespace is that of the network, and the reply comes with a socket that listens
at that port of its loopback.
"""

import _socket
import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys
import time

#: What a request brings: the namespace, the plan, the pipe or socket for the reply.
DESCRIPTORS = 3
OK = b"ok"
LISTEN = "listen"
#: Of one launch in the table.
ROW_BYTES = 128

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_NS_GET_USERNS = 0xB701
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND, _MS_REC = 1, 2, 4, 8, 32, 4096, 16384
_MS_RELATIME = 1 << 21
#: Flags of a mount as `statvfs` reports them, where the number is the same for `mount`.
_KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048
_ST_RELATIME = 4096
_OPENAT2, _MOUNT_SETATTR = 437, 442
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 4, 8
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_WORDS_PER_MOUNT = 4
#: The exit status of a fork that found the socket closed.
_CLOSED = 3
_FD_BYTES = 4
#: Where the start time is in `/proc/PID/stat`, after the name; a zombie, dead.
_START_TIME = 19
_DEAD = (b"Z", b"X")
#: A killed process ends within milliseconds, unless the kernel holds it, for example in a file system that is gone.
_KILL_ROUNDS, _KILL_PAUSE_SECONDS = 1000, 0.01


class MountRefusedError(Exception):
    """A mount that was not made, with a message for people."""


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


def main(channel_fd: int, table_fd: int) -> None:
    """Serve mount requests from a child process, which is replaced when it ends. At the end kill what is left."""
    if os.fork() != 0:
        return
    os.setsid()
    channel = _socket.socket(fileno=channel_fd)
    is_open = True
    while is_open:
        child = os.fork()
        if child == 0:
            os._exit(_serve(channel))
        is_open = os.waitpid(child, 0)[1] != _CLOSED << 8
    launches = _read_launches(table_fd)
    for _ in range(_KILL_ROUNDS):
        if not _kill_left(launches):
            break
        time.sleep(_KILL_PAUSE_SECONDS)


def identify(stat_line: bytes) -> tuple[str, str]:
    """Return the number and the start time of a process, from its `/proc/PID/stat`: no other has both."""
    # The name before the bracket may hold anything.
    number, _, rest = stat_line.partition(b" ")
    return number.decode(), rest.rpartition(b")")[2].split()[_START_TIME].decode()


def _read_launches(table_fd: int) -> dict[str, str]:
    """Return the start times of launched and inner processes by their numbers."""
    words = os.pread(table_fd, os.fstat(table_fd).st_size, 0).replace(b"\0", b" ").decode().split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _kill_left(launches: dict[str, str]) -> bool:
    """Kill the noted processes and all of their sessions. Return whether any was left."""
    found: list[tuple[str, str, str]] = []
    for name in filter(str.isdecimal, os.listdir("/proc") if launches else ()):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                line = file.read()
        except OSError:
            continue
        state, _, _, session, *_ = line.rpartition(b")")[2].split()
        if state not in _DEAD:
            found.append((*identify(line), session.decode()))
    # A number is not given again while it is the number of a session.
    reused = {number for number, started, _ in found if launches.get(number, started) != started}
    left = [
        number
        for number, _, session in found
        if (number in launches and number not in reused) or (session in launches and session not in reused)
    ]
    for number in left:
        try:
            os.kill(int(number), signal.SIGKILL)
        except OSError:
            continue
    return bool(left)


def _serve(channel: _socket.socket) -> int:
    """Wait for one request, and do it. Return the exit status."""
    message, ancillary, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(DESCRIPTORS * _FD_BYTES))
    if not message:
        return _CLOSED
    _handle_request(*(fd for _, _, data in ancillary for fd in memoryview(data).cast("i")))
    return 0


def _handle_request(namespace: int, plan: int, reply: int) -> None:
    words = os.pread(plan, os.fstat(plan).st_size, 0).decode("utf-8", "surrogateescape").split("\0")[:-1]
    try:
        if words[0] == LISTEN:
            _listen(namespace, int(words[1]), reply)
            return
        _mount_all(namespace, *words)
        answer = OK
    except (OSError, MountRefusedError) as error:
        answer = str(error).encode(errors="replace")[:1000]
    os.write(reply, answer)


def _listen(namespace: int, port: int, reply: int) -> None:
    _join_namespace(namespace, "net", _CLONE_NEWNET)
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    rights = listener.fileno().to_bytes(_FD_BYTES, sys.byteorder)
    channel = _socket.socket(fileno=reply)
    channel.sendmsg([OK], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def _mount_all(namespace: int, root: str, empty: str, *words: str) -> None:
    # Of the host, because targets are named by it, and the sandbox's own does not know this process.
    descriptors = os.open(f"/proc/{os.getpid()}/fd", os.O_RDONLY | os.O_DIRECTORY)
    _join_namespace(namespace, "mnt", _CLONE_NEWNS)
    os.fchdir(descriptors)
    top = os.open(root or "/", os.O_PATH | os.O_DIRECTORY)
    for start in range(0, len(words), _WORDS_PER_MOUNT):
        kind, path, device, inode = words[start : start + _WORDS_PER_MOUNT]
        try:
            _mount_one(top, kind, path, (int(device), int(inode)), empty)
        except OSError as error:
            raise MountRefusedError(f"{path} was moved while it was being protected ({error.strerror})") from None


def _join_namespace(namespace: int, name: str, kind: int) -> None:
    if os.fstat(namespace).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
        what = "mounts" if kind == _CLONE_NEWNS else "network"
        raise MountRefusedError(f"the sandbox has no {what} separate from the host's")
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _check_result(_libc.setns(owner, _CLONE_NEWUSER), "joining its user namespace")
    _check_result(_libc.setns(namespace, kind), f"joining its {name} namespace")


def _mount_one(top: int, kind: str, path: str, identity: tuple[int, int], empty: str) -> None:
    target = _open_in_sandbox(top, path)
    found = os.fstat(target)
    if identity not in ((found.st_dev, found.st_ino), (-1, found.st_ctime_ns)):
        raise MountRefusedError(f"{path} was moved while it was being protected")
    is_folder = stat.S_ISDIR(found.st_mode)
    if kind == "hidden" and is_folder:
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _mount("tmpfs", target, "tmpfs", flags, "size=4096,mode=0555")
    elif kind == "pinned":
        _mount(str(target), target, "", _MS_BIND | _MS_REC)
    else:
        source = target if kind == "read_only" else _open_in_sandbox(top, empty)
        _bind_read_only(source, target, top, path)
        if source != target:
            os.close(source)
    os.close(target)


def _open_in_sandbox(top: int, path: str) -> int:
    """Open a path from the root of the sandbox, mounts crossed and no link followed."""
    here = _openat2(top, path.lstrip("/")) if _has_openat2 else _walk(top, path)
    if stat.S_ISLNK(os.fstat(here).st_mode):
        raise MountRefusedError(f"{path} became a link while it was being protected")
    return here


def _openat2(top: int, path: str) -> int:
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    words = (top, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    fd = _libc.syscall(ctypes.c_long(_OPENAT2), *words)
    _check_result(min(fd, 0), "opening")
    return fd


def _walk(top: int, path: str) -> int:
    here = os.dup(top)
    names = [name for name in path.split("/") if name]
    for number, name in enumerate(names, 1):
        flags = os.O_PATH | os.O_NOFOLLOW | (os.O_DIRECTORY if number < len(names) else 0)
        below = os.open(name, flags, dir_fd=here)
        os.close(here)
        here = below
    return here


def _bind_read_only(source: int, target: int, top: int, path: str) -> None:
    attributes = _MountAttributes(_MS_RDONLY, 0, 0, 0)
    # Without the newer call, mounts below cannot be made read-only with it: binding fails where there are any.
    _mount(str(source), target, "", _MS_BIND | (_MS_REC if _has_mount_setattr else 0))
    mounted = _open_in_sandbox(top, path)
    if _has_mount_setattr:
        flags = _AT_EMPTY_PATH | _AT_RECURSIVE
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        result = _libc.syscall(ctypes.c_long(_MOUNT_SETATTR), mounted, b"", flags, ctypes.byref(attributes), size)
        _check_result(result, "making it read-only")
    else:
        known = os.fstatvfs(mounted).f_flag
        kept = known & _KEPT_FLAGS | (_MS_RELATIME if known & _ST_RELATIME else 0)
        _mount("none", mounted, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)
    if not os.fstatvfs(mounted).f_flag & os.ST_RDONLY:
        raise MountRefusedError(f"{path} was moved while it was being protected")
    os.close(mounted)


def _mount(source: str, target: int, kind: str, flags: int, data: str = "") -> None:
    """Mount on an open file or folder: the current folder lists this process's descriptors by their numbers."""
    result = _libc.mount(
        source.encode(), str(target).encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check_result(result, "mounting")


def _check_result(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _probe(number: int) -> bool:
    """Return whether the kernel has a system call, and a container does not refuse it."""
    _libc.syscall(ctypes.c_long(number), -1, b"", 0, None, ctypes.c_size_t(0))
    return ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


_libc = ctypes.CDLL(None, use_errno=True)
_has_mount_setattr = _probe(_MOUNT_SETATTR)
_has_openat2 = _probe(_OPENAT2)

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
