"""The filter as a program: what it does with every call, on both machines."""

import errno
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.sandbox.host.seccomp import FAMILIES, MACHINES, UNIX, build_filter, list_refused_numbers

ALLOW, ERROR = 0x7FFF0000, 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT, EINVAL = (
    ERROR | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EINVAL)
)
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE, IOCTL, SOCKET, SHMGET = (
    {"x86_64": 56, "aarch64": 220},
    {"x86_64": 16, "aarch64": 29},
    {"x86_64": 41, "aarch64": 198},
    {"x86_64": 29, "aarch64": 194},
)
#: By the place of the mode: number on each machine, where there is such a call.
SETS_MODE: dict[str, list[tuple[int, int]]] = {
    "x86_64": [(90, 1), (91, 1), (85, 1), (133, 1), (268, 2), (452, 2), (259, 2)],
    "aarch64": [(52, 1), (53, 2), (452, 2), (33, 2)],
}
OPENS: dict[str, list[tuple[int, int]]] = {"x86_64": [(2, 2), (257, 3)], "aarch64": [(56, 3)]}
MISSING = (435, 437)
both_machines = pytest.mark.parametrize("machine", MACHINES)


def verdict(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """What the kernel would do: the few instructions that the filter is made of, executed."""
    return execute(program, machine, number, *arguments)[0]


def execute(program: bytes, machine: str, number: int, *arguments: int) -> tuple[int, int]:
    """The verdict, and after how many steps."""
    record = struct.pack("=IIQ6Q", number, AUDIT[machine], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    steps = list(struct.iter_unpack("=HBBI", program))
    index, loaded = 0, 0
    for count in itertools.count(1):
        code, yes, no, value = steps[index]
        index += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("=I", record, value)
            case 0x15:
                index += yes if loaded == value else no
            case 0x35:
                index += yes if loaded >= value else no
            case 0x45:
                index += yes if loaded & value else no
            case 0x06:
                return value, count
            case _:
                raise AssertionError(code)
    raise AssertionError


@both_machines
def test_a_number_is_found_in_few_steps(machine: str) -> None:
    """The kernel tries a filter with every number when a command starts, up to the first look at an argument."""
    program = build_filter(machine)

    assert max(execute(program, machine, number)[1] for number in range(1_000)) <= 18


@both_machines
@given(number=st.integers(0, 0x3FFFFFFF), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_that_is_refused_is_refused_whatever_its_arguments(
    machine: str, number: int, arguments: list[int]
) -> None:
    program = build_filter(machine)
    by_mode = (number for number, _ in SETS_MODE[machine] + OPENS[machine])
    special = {CLONE[machine], IOCTL[machine], SOCKET[machine], SHMGET[machine], *MISSING, *by_mode}

    found = verdict(program, machine, number, *arguments)

    if number not in special:
        assert found == (EPERM if number in list_refused_numbers(machine) else ALLOW)
    for refused in list_refused_numbers(machine):
        assert verdict(program, machine, refused, *arguments) == EPERM


@both_machines
def test_calls_of_another_machine_are_refused(machine: str) -> None:
    other = MACHINES[1 - MACHINES.index(machine)]

    assert verdict(build_filter(machine), other, 0) == EPERM


def test_the_second_table_of_x86_does_not_exist() -> None:
    assert verdict(build_filter("x86_64"), "x86_64", 0x40000000 | 101) == ENOSYS


@both_machines
@pytest.mark.parametrize("bit", [0x10000000, 0x20000, 0x20000000, 0x40000000, 0x4000000, 0x8000000, 0x2000000])
def test_processes_are_made_but_no_namespaces(machine: str, bit: int) -> None:
    program = build_filter(machine)

    assert verdict(program, machine, CLONE[machine], 17) == ALLOW
    assert verdict(program, machine, CLONE[machine], 17 | bit) == EPERM
    assert [verdict(program, machine, number) for number in MISSING] == [ENOSYS, ENOSYS]


@both_machines
@given(mode=st.integers(0, 0o7777), kind=st.sampled_from([0, 0o100000, 0o010000]), high=st.integers(0, 2**32 - 1))
def test_no_file_gets_a_mode_that_lends_the_rights_of_its_owner_or_group(
    machine: str, mode: int, kind: int, high: int
) -> None:
    program = build_filter(machine)
    expected = EPERM if mode & 0o6000 else ALLOW

    for number, place in SETS_MODE[machine]:
        arguments = [0o6000] * place + [high << 32 | kind | mode]
        assert verdict(program, machine, number, *arguments) == expected


@both_machines
@given(mode=st.integers(0, 2**32 - 1), flags=st.integers(0, 2**32 - 1))
def test_the_mode_of_an_open_counts_when_a_file_is_created(machine: str, mode: int, flags: int) -> None:
    program = build_filter(machine)
    creates = 0o100 | 0o20000000

    for number, place in OPENS[machine]:
        for asked in (flags, flags | 0o100, flags & ~creates):
            is_refused = asked & creates and mode & 0o6000
            arguments = [0] * (place - 1) + [asked, mode]
            assert verdict(program, machine, number, *arguments) == (EPERM if is_refused else ALLOW)


@both_machines
@given(high=st.integers(0, 2**32 - 1))
def test_nothing_is_typed_into_a_terminal_also_with_garbage_in_the_upper_half(machine: str, high: int) -> None:
    program = build_filter(machine)

    assert verdict(program, machine, IOCTL[machine], 0, high << 32 | 0x5412) == EPERM
    assert verdict(program, machine, IOCTL[machine], 0, high << 32 | 0x541C) == EPERM
    assert verdict(program, machine, IOCTL[machine], 0, high << 32 | 0x5413) == ALLOW


@both_machines
@given(family=st.integers(0, 2**31))
def test_only_the_named_families_of_sockets_can_be_opened(machine: str, family: int) -> None:
    for families in (FAMILIES, (UNIX,)):
        expected = ALLOW if family in families else EAFNOSUPPORT
        assert verdict(build_filter(machine, families), machine, SOCKET[machine], family) == expected


@both_machines
@given(
    size=st.one_of(st.integers(0, 1 << 17), st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1).map(lambda n: n << 32))
)
def test_large_shared_segments_cannot_be_made(machine: str, size: int) -> None:
    expected = ALLOW if size <= 1 << 16 else EINVAL

    assert verdict(build_filter(machine), machine, SHMGET[machine], 2**64 - 1, size) == expected


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(KeyError):
        build_filter("vax")
