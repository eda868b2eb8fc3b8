"""Which backends a host allows, why not the others, and which one is taken."""

import os
import subprocess
import sys

import msgspec
import pytest

from interlock.domain.errors import ConfigurationError
from interlock.sandbox.commands import probe
from interlock.sandbox.commands.probe import explain_failure
from interlock.sandbox.host.host_info import HostInfo, read_host_info
from interlock.sandbox.interface import CAPABILITIES
from tests.each import each

from .ordinary_user import run_as_ordinary_user

ORDINARY = HostInfo(
    system="Linux",
    kernel="6.8.0",
    machine="x86_64",
    user_id=1000,
    container=False,
    settings={"user.max_user_namespaces": "60000"},
    openat2=True,
    landlock_abi=4,
    seccomp=True,
    cgroup="v2",
)
#: A host where bubblewrap was taken away.
WITHOUT_BUBBLEWRAP = """
from interlock.sandbox.commands import probe
from interlock.sandbox.host import programs
programs.find_bwrap = lambda: None
found = probe.probe_backends()
print(probe.choose_sandbox().confinement.backend, "|", found[0].why_not, "|", found[1].why_not)
"""


def test_every_backend_works_or_says_why_not() -> None:
    found = probe.probe_backends()

    assert [finding.backend for finding in found] == ["bubblewrap", "landlock", "none"]
    for finding in found:
        assert finding.works != bool(finding.why_not)
        assert finding.works == bool(finding.capabilities)
        assert set(finding.capabilities) <= set(CAPABILITIES)


async def test_it_can_be_asked_within_an_event_loop_and_is_done_once() -> None:
    first, second = probe.probe_backends(), probe.probe_backends()

    assert all(one is other for one, other in zip(first, second, strict=True))


def test_the_best_that_works_is_chosen() -> None:
    best = next(finding for finding in probe.probe_backends() if finding.works)

    assert probe.choose_sandbox().confinement.backend == best.backend


def test_without_bubblewrap_root_has_no_sandbox_and_is_told_so() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    ended = subprocess.run([sys.executable, "-c", WITHOUT_BUBBLEWRAP], capture_output=True, text=True, check=True)

    expected = "none | bubblewrap 0.8 or newer is not installed | Landlock does not hold root\n"
    assert ended.stdout == expected


@pytest.mark.skipif(read_host_info().landlock_abi < 3, reason="this kernel has no Landlock that is new enough")
def test_without_bubblewrap_an_ordinary_user_has_landlock() -> None:
    ended = run_as_ordinary_user("-c", WITHOUT_BUBBLEWRAP)

    assert (ended.stdout, ended.stderr) == ("landlock | bubblewrap 0.8 or newer is not installed | \n", "")


def test_a_backend_that_does_not_work_is_not_replaced_in_silence() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a backend that does not work: Landlock for root")
    with pytest.raises(
        ConfigurationError, match=r"'landlock' does not work here: .* Run Interlock as an ordinary user\."
    ):
        probe.choose_sandbox("landlock")


@each(
    ("said", "host", "why", "advice"),
    [
        (
            "bwrap: setting up uid map: Permission denied",
            {"settings": {"kernel.apparmor_restrict_unprivileged_userns": "1"}},
            "AppArmor gives user namespaces only to programs that it knows",
            "/usr/bin/bwrap",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            {"settings": {"kernel.apparmor_restrict_unprivileged_userns": "1"}, "container": True},
            "AppArmor",
            "/usr/bin/bwrap",
        ),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged "
            "user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.",
            {"settings": {"kernel.unprivileged_userns_clone": "0"}},
            "user namespaces are for root only",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            {"settings": {"user.max_user_namespaces": "0"}},
            "user namespaces are switched off",
            "user.max_user_namespaces=",
        ),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged "
            "user namespaces.",
            {"container": True},
            "most likely by the profile of a container",
            "--security-opt seccomp=",
        ),
        (
            "bwrap: Failed to make / slave: Permission denied",
            {"settings": {"kernel.apparmor_restrict_unprivileged_userns": "1"}, "container": True},
            "the container's AppArmor profile forbids mounts",
            "--security-opt",
        ),
        (
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            {"container": True},
            "the container forbids to mount /proc",
            "systempaths=unconfined",
        ),
        (
            "bwrap: Creating new namespace failed: Invalid argument",
            {},
            "this kernel has no user namespaces",
            "CONFIG_USER_NS",
        ),
    ],
)
def test_what_bubblewrap_says_is_put_in_words_to_act_on(
    said: str, host: dict[str, object], why: str, advice: str
) -> None:
    problem = f"The command could not be started in its sandbox: {said}. Nothing was executed."

    found_why, found_advice = explain_failure(problem, msgspec.structs.replace(ORDINARY, **host))

    assert why in found_why
    assert advice in found_advice


def test_words_that_nobody_knows_are_passed_on() -> None:
    problem = "The command could not be started in its sandbox: bwrap: What now?. Nothing was executed."

    assert explain_failure(problem, ORDINARY) == ("bwrap: What now?", "")
