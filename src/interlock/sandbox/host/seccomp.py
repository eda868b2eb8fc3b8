"""The seccomp filter of commands: the system calls that they may not make.

The filter is a classic BPF program: a list of 8-byte instructions that looks at one call (its number, the machine it
is for, halves of its arguments) and returns what to do with it. Here it is written as `FilterStep`s with labels to
jump to, which `_assemble` turns into distances.

A list of what is refused, not of what is allowed: a sandbox of namespaces already keeps files, processes and the
network apart. Refused is what reaches around namespaces (keys, other socket families, other machines' call tables),
what undoes them (mounts, new namespaces), what looks into other processes, and what is rarely needed and often broken.
System V segments are limited in size.

Files of a command are ours on the host as well. So none can be made a program that runs with the rights of its owner or
group: a mode with one of these bits is refused.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

#: The number that the kernel knows a machine by.
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Call numbers from here on are the x32 table's, on x86_64 only.
_X32 = 0x40000000

#: By name: number on x86_64, number on aarch64. None where there is no such call.
_Calls: TypeAlias = Mapping[str, tuple[int | None, int | None]]
_CallsByArgument: TypeAlias = Mapping[int, _Calls]

#: Refused with EPERM.
_REFUSED: _Calls = {
    # Looks into other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    # Belongs to no namespace.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    # Large, new, and a way around this filter.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    # Undoes the view of files.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "setns": (308, 268),
    "unshare": (272, 97),
    # Is for the machine as a whole.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}

#: Their flags and modes are in memory, where a filter cannot look: `clone3`, `openat2`. As they do not exist, programs
#: take `clone` and `openat`.
_UNIMPLEMENTED = (435, 437)
_CLONE = {"x86_64": 56, "aarch64": 220}
#: Every flag of `clone` that makes a namespace: user, mount, pid, network, host name, ipc, cgroup, time.
_NEW_NAMESPACE = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x4000000 | 0x8000000 | 0x2000000 | 0x80

_IOCTL = {"x86_64": 16, "aarch64": 29}
#: Types into a terminal for its reader: TIOCSTI, TIOCLINUX.
_REFUSED_IOCTLS = (0x5412, 0x541C)

#: Calls that give a file its mode, by the place of the mode among the arguments, from 0 on.
#: Folders are made by calls that leave these bits out anyway.
_MODE_CALLS: _CallsByArgument = {
    1: {"chmod": (90, None), "fchmod": (91, 52), "creat": (85, None), "mknod": (133, None)},
    2: {"fchmodat": (268, 53), "fchmodat2": (452, 452), "mknodat": (259, 33)},
}
#: As well, when its flags, one place before, say that a file is created: O_CREAT, O_TMPFILE.
_OPEN_CALLS: _CallsByArgument = {2: {"open": (2, None)}, 3: {"openat": (257, 56)}}
_CREATES = 0o100 | 0o20000000
#: Runs as its owner, runs as its group.
_SET_ID = 0o6000

_SHMGET = {"x86_64": 29, "aarch64": 194}
#: A System V segment counts as memory of no process unless it is mapped. A small one is enough for PostgreSQL; the
#: kernel's limit of 4096 segments bounds the rest.
MAX_SEGMENT_BYTES = 1 << 16

_SOCKET = {"x86_64": 41, "aarch64": 198}
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
#: What programs need to talk among themselves; others (AF_VSOCK, AF_ALG, ...) reach around a network namespace.
FAMILIES = (UNIX, INET, INET6, NETLINK)

MACHINES = tuple(_AUDIT_ARCHITECTURES)


class FilterStep(NamedTuple):
    """One instruction. Jump targets are labels; empty is the next step."""

    code: int
    value: int
    yes: str = ""
    no: str = ""
    #: The name of this place.
    at: str = ""


#: So many numbers are compared one after the other.
_MAX_LEAF = 4

#: Loads a number, jumps by comparing it, returns.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: What can be loaded: places in the kernel's record of a call.
_NUMBER, _MACHINE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ARGUMENT_BYTES = 8
#: Both machines are little-endian.
_HIGH_HALF = 4
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def build_filter(machine: str, families: Iterable[int] = FAMILIES) -> bytes:
    """Build the filter for `bwrap --seccomp` and for prctl. Raise `KeyError` for a machine that is not in
    `MACHINES`.
    """
    return _assemble([*_build_steps(machine, tuple(families))])


def _build_steps(machine: str, families: tuple[int, ...]) -> Iterator[FilterStep]:
    yield FilterStep(_LOAD, _MACHINE)
    yield FilterStep(_EQUAL, _AUDIT_ARCHITECTURES[machine], no="refused")
    yield FilterStep(_LOAD, _NUMBER)
    if machine == "x86_64":
        yield FilterStep(_AT_LEAST, _X32, yes="missing")
    yield from _build_search(sorted(_list_targets(machine).items()))

    yield FilterStep(_LOAD, _FIRST_ARGUMENT, at="clone")
    yield FilterStep(_ANY_BIT, _NEW_NAMESPACE, yes="refused", no="allowed")

    yield FilterStep(_LOAD, _SECOND_ARGUMENT, at="ioctl")
    for request in _REFUSED_IOCTLS:
        yield FilterStep(_EQUAL, request, yes="refused")
    yield FilterStep(_RETURN, _ALLOW)

    yield FilterStep(_LOAD, _SECOND_ARGUMENT + _HIGH_HALF, at="shmget")
    yield FilterStep(_AT_LEAST, 1, yes="too large")
    yield FilterStep(_LOAD, _SECOND_ARGUMENT)
    yield FilterStep(_AT_LEAST, MAX_SEGMENT_BYTES + 1, yes="too large", no="allowed")

    yield FilterStep(_LOAD, _FIRST_ARGUMENT, at="socket")
    for family in families:
        yield FilterStep(_EQUAL, family, yes="allowed")
    yield FilterStep(_RETURN, _ERROR | errno.EAFNOSUPPORT)

    yield from _build_mode_checks()

    yield FilterStep(_RETURN, _ALLOW, at="allowed")
    yield FilterStep(_RETURN, _ERROR | errno.EPERM, at="refused")
    yield FilterStep(_RETURN, _ERROR | errno.ENOSYS, at="missing")
    # As for a size above the kernel's own limit.
    yield FilterStep(_RETURN, _ERROR | errno.EINVAL, at="too large")


def _list_targets(machine: str) -> dict[int, str]:
    """Return where each system call leads that is not simply allowed."""
    return {
        **{_CLONE[machine]: "clone", _IOCTL[machine]: "ioctl", _SHMGET[machine]: "shmget", _SOCKET[machine]: "socket"},
        **{
            number: f"{what} {place}"
            for what, calls in (("open", _OPEN_CALLS), ("mode", _MODE_CALLS))
            for place, named in calls.items()
            for number in _numbers(named, machine)
        },
        **dict.fromkeys(_UNIMPLEMENTED, "missing"),
        **dict.fromkeys(list_refused_numbers(machine), "refused"),
    }


def _build_search(targets: list[tuple[int, str]], at: str = "") -> Iterator[FilterStep]:
    """Yield a binary search for the number: the kernel tries a filter with every number when it is installed."""
    if len(targets) <= _MAX_LEAF:
        for number, name in targets:
            is_last = number == targets[-1][0]
            yield FilterStep(_EQUAL, number, yes=name, no="allowed" if is_last else "", at=at)
            at = ""
        return
    half = len(targets) // 2
    above = f"from {targets[half][0]}"
    yield FilterStep(_AT_LEAST, targets[half][0], yes=above, at=at)
    yield from _build_search(targets[:half])
    yield from _build_search(targets[half:], above)


def _build_mode_checks() -> Iterator[FilterStep]:
    for place in _OPEN_CALLS:
        yield FilterStep(_LOAD, _argument_offset(place - 1), at=f"open {place}")
        yield FilterStep(_ANY_BIT, _CREATES, yes=f"mode {place}", no="allowed")
    for place in sorted({*_MODE_CALLS, *_OPEN_CALLS}):
        yield FilterStep(_LOAD, _argument_offset(place), at=f"mode {place}")
        yield FilterStep(_ANY_BIT, _SET_ID, yes="refused", no="allowed")


def list_refused_numbers(machine: str) -> list[int]:
    """Return the numbers of the system calls that are refused."""
    return _numbers(_REFUSED, machine)


def _numbers(calls: _Calls, machine: str) -> list[int]:
    column = MACHINES.index(machine)
    return [number for row in calls.values() if (number := row[column]) is not None]


def _argument_offset(place: int) -> int:
    """Return the offset of the low half of an argument; the first one is number 0."""
    return _FIRST_ARGUMENT + place * _ARGUMENT_BYTES


def _assemble(steps: list[FilterStep]) -> bytes:
    places = {step.at: index for index, step in enumerate(steps) if step.at}

    def distance(name: str, index: int) -> int:
        return places[name] - index - 1 if name else 0

    return b"".join(
        struct.pack("=HBBI", step.code, distance(step.yes, index), distance(step.no, index), step.value)
        for index, step in enumerate(steps)
    )
