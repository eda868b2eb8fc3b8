"""Files of a command are ours on the host: none of them may lend our rights to whoever starts it."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.programs import find_bwrap, python_folders

from .commands import run, works
from .ordinary_user import pytest_as_ordinary_user

LENDS_RIGHTS = 0o6000
#: Every call that gives a file its mode, with each bit.
CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
open('x', 'w').close()
file = os.open('x', os.O_RDWR)
ways = {
    'chmod': lambda mode: os.chmod('x', mode),
    'fchmod': lambda mode: os.fchmod(file, mode),
    'fchmodat': lambda mode: os.chmod('x', mode, dir_fd=os.open('.', os.O_RDONLY)),
    'open': lambda mode: os.open(f'a{mode:o}', os.O_CREAT | os.O_WRONLY, mode),
    'unnamed': lambda mode: os.open('.', os.O_TMPFILE | os.O_WRONLY, mode),
    'mknod': lambda mode: os.mknod(f'b{mode:o}', mode | 0o100000),
    'pipe': lambda mode: os.mkfifo(f'c{mode:o}', mode),
}
for name, way in ways.items():
    for mode in (0o4755, 0o2755, 0o6755, 0o1755, 0o755):
        try:
            way(mode)
            print(name, oct(mode), 'ok')
        except OSError as error:
            print(name, oct(mode), errno.errorcode[error.errno])
"""


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


def lending(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.lstat().st_mode & LENDS_RIGHTS]


async def test_no_call_gives_a_file_such_a_mode_and_all_others_do(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    outcome = await run(sandbox, (sys.executable, "-I", "-c", CALLS), tmp_path, readable=python_folders())

    said = [line.split() for line in outcome.stdout.splitlines()]
    assert len(said) == 35, outcome.stderr
    for name, mode, answer in said:
        # Some file systems have no files without a name.
        expected = {"EPERM"} if int(mode, 8) & LENDS_RIGHTS else {"ok", "EOPNOTSUPP" if name == "unnamed" else "ok"}
        assert answer in expected, (name, mode)
    assert lending(tmp_path) == []


async def test_programs_that_copy_modes_leave_only_these_bits_out(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    program = tmp_path / "lends"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o6755)
    copies = ["cp lends a", "tar cf t.tar lends; mkdir d; tar xf t.tar --no-same-permissions -C d", "install lends e"]

    assert await works(sandbox, copies, tmp_path) == copies
    await run(sandbox, "cp -p lends f; tar xpf t.tar -C /tmp; chmod u+s a; install -m 4755 lends g", tmp_path)

    assert lending(tmp_path) == ["lends"]


WORK = {
    "git": "git init -q r && cd r && git config user.email a@b.c && git config user.name n && echo 1 > f && chmod +x f "
    "&& git add f && git commit -qm one && git checkout -qb two && git clone -q . ../s && test -x ../s/f",
    "tar": "mkdir p && echo 1 > p/f && chmod 1777 p && tar czf p.tgz p && mkdir q && tar xzpf p.tgz -C q "
    "&& test -k q/p",
    "node": "node -e \"const fs = require('fs'); fs.writeFileSync('n', '1', {mode: 0o700}); fs.chmodSync('n', 0o755); "
    "fs.mkdirSync('m/k', {recursive: true}); fs.cpSync('m', 'l', {recursive: true})\"",
    "python3": f"{sys.executable} -I -c \"import shutil, tempfile, os; os.makedirs('v/w'); shutil.copytree('v', 'u'); "
    "tempfile.NamedTemporaryFile(dir='.').close(); os.chmod('u', 0o1777)\"",
    "make": "mkdir k && cd k && printf 'a:\\n\\techo 1 > a\\n' > Makefile && make -s a && test -s a",
}


@pytest.mark.parametrize("program", sorted(WORK))
async def test_programs_do_their_work(sandbox: BubblewrapSandbox, tmp_path: Path, program: str) -> None:
    if not shutil.which(program, path="/usr/bin:/bin"):
        pytest.skip(f"there is no {program}")
    outcome = await run(sandbox, WORK[program], tmp_path, readable=python_folders())

    assert (outcome.ended.exit_code, outcome.stderr) == (0, "")


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
