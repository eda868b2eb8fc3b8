"""ripgrep in its sandbox: what it may see, how it ends, and what is made of its end."""

import asyncio
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from unittest.mock import patch

import pytest

from interlock.domain.errors import PreconditionError, SandboxSetupError
from interlock.sandbox.interface import CommandExit, Confinement, EndReason, OutputStream
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.search.ripgrep import (
    STOP_REASONS,
    ClosedPaths,
    EnoughOutputError,
    Ripgrep,
    SearchStatus,
    build_search_options,
)
from interlock.tools.search.search_output import NameReader, find_suspects
from tests.patience import HANG_SECONDS
from tests.tools.search_runs import NOTHING_HOLDS, PlayedSearch, SearchRun, rg, run, sandbox, text_of

__all__ = ["run"]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as workspace:
        yield workspace


async def searched(workspace: Workspace, commands: PlayedSearch, hidden: tuple[str, ...] = ()) -> SearchStatus:
    _, done = await Ripgrep(workspace, commands, rg(), lambda: hidden).run(("--files",), ".", NameReader)
    return done


def ended(reason: EndReason = "exited", exit_code: int | None = 0) -> CommandExit:
    return CommandExit(reason=reason, exit_code=exit_code, duration_seconds=0)


async def test_it_sees_the_workspace_and_itself_and_can_change_nothing(workspace: Workspace) -> None:
    commands = PlayedSearch()
    secret = f"{workspace.root}/.env"
    await Ripgrep(workspace, commands, rg(), lambda: (secret,)).run(("--files",), "src", NameReader)
    (command,) = commands.started
    profile = command.profile

    assert (profile.workspace, profile.readable, profile.hidden) == (workspace.root, command.argv[:1], (secret,))
    assert (profile.writable, profile.system, profile.network) == (False, False, False)
    assert command.argv[0].endswith("/rg")
    assert "--no-config" in command.argv
    assert command.argv[-2:] == ("--", "./src")
    assert not {"-L", "--follow", "--pre"} & {*command.argv}
    assert command.environment == {}


async def test_a_search_counts_only_if_what_is_hidden_was_hidden(workspace: Workspace) -> None:
    """The scan runs beside the search, which is done again with what it finds."""
    old, new = (f"{workspace.root}/.env",), (f"{workspace.root}/.env", f"{workspace.root}/b.pem")
    scans = iter([old, old, new, new])
    commands = PlayedSearch(("stdout", b"./a\0"))
    ripgrep = Ripgrep(workspace, commands, rg(), lambda: next(scans))
    for expected in ([old], [old], [old, new], [new]):
        commands.started.clear()
        reader, _ = await ripgrep.run(("--files",), ".", NameReader)

        assert [command.profile.hidden for command in commands.started] == expected
        assert reader.names == [b"./a"]


async def test_an_error_of_a_search_that_does_not_count_is_dropped(workspace: Workspace) -> None:
    hidden = (f"{workspace.root}/.env",)
    scans = iter([(), hidden, hidden])
    commands = PlayedSearch()
    ripgrep = Ripgrep(workspace, commands, rg(), lambda: next(scans))
    await ripgrep.run(("--files",), ".", NameReader)
    with patch.object(commands, "start", side_effect=[SandboxSetupError("gone"), commands]):
        await ripgrep.run(("--files",), ".", NameReader)
    with (
        patch.object(commands, "start", side_effect=SandboxSetupError("gone")),
        pytest.raises(SandboxSetupError, match="gone"),
    ):
        await ripgrep.run(("--files",), ".", NameReader)


async def test_without_a_sandbox_it_runs_after_a_yes_and_secrets_are_still_left_out(workspace: Workspace) -> None:
    commands = PlayedSearch(confinement=NOTHING_HOLDS)
    await searched(workspace, commands, (f"{workspace.root}/.env",))
    (command,) = commands.started
    options = build_search_options("x", literal=False, multiline=False, case_insensitive=False)

    assert (command.profile.writable, command.profile.hidden) == (True, ())
    assert any(option.startswith("--iglob=!**/{") and ".netrc" in option for option in options)


@pytest.mark.parametrize("reason", ["timeout", "memory_limit", "output_limit"])
async def test_a_search_that_is_ended_has_found_something_and_is_not_complete(
    workspace: Workspace, reason: EndReason
) -> None:
    commands = PlayedSearch(("stdout", b"./a\0./b"), ended=ended(reason, None))
    reader, done = await Ripgrep(workspace, commands, rg(), lambda: ()).run(("--files",), ".", NameReader)

    assert (done.stopped, reader.names) == (reason, [b"./a"])
    assert STOP_REASONS[reason]


@pytest.mark.parametrize("how", [ended(exit_code=None), ended("process_limit", None), ended("stopped", None)])
async def test_an_unexpected_end_is_not_complete_either(workspace: Workspace, how: CommandExit) -> None:
    assert (await searched(workspace, PlayedSearch(ended=how))).stopped == "crashed"


async def test_a_reader_that_has_enough_ends_the_search(run: SearchRun) -> None:
    run.write("a", "x\n" * 2_000_000)
    ripgrep = Ripgrep(run.workspace, sandbox(), rg(), lambda: ())

    async with asyncio.timeout(HANG_SECONDS):
        reader, done = await ripgrep.run(("--regexp=x",), ".", _Sated)

    assert done.stopped == "enough"
    assert len(reader.chunks) == 1


class _Sated:
    """A reader that has enough with the first piece."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        raise EnoughOutputError


async def test_its_own_words_say_why_it_cannot(workspace: Workspace) -> None:
    commands = PlayedSearch(("stderr", b"rg: regex parse error:\n    (\n"), ended=ended(exit_code=2))
    with pytest.raises(PreconditionError, match=r"ripgrep says: regex parse error:"):
        await searched(workspace, commands)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"pattern": "a(?=b)"}, "look-behind, is not supported."),
        ({"pattern": r"(a)\1"}, "backreferences are not supported."),
        ({"pattern": r"a\nb"}, "Set multiline=true."),
        ({"pattern": "a\nb", "literal": True}, "Set multiline=true."),
    ],
)
async def test_it_advises_only_what_a_caller_can_do(run: SearchRun, arguments: dict[str, object], advice: str) -> None:
    said = await run.do("grep", **arguments)

    assert not said.ok
    assert said.summary.endswith(f"{advice} Nothing was changed.")
    assert "--" not in said.summary


@pytest.mark.parametrize("how", [ended("timeout", None), ended("memory_limit", None), ended(exit_code=None)])
@pytest.mark.parametrize(("tool", "arguments"), [("grep", {"pattern": "x"}), ("glob", {"pattern": "*"})])
async def test_a_search_that_was_ended_before_it_found_anything_is_no_success(
    tmp_path: Path, how: CommandExit, tool: str, arguments: dict[str, object]
) -> None:
    run = SearchRun(tmp_path, PlayedSearch(ended=how))
    said = await run.do(tool, **arguments)
    run.workspace.close()

    assert not said.ok
    assert said.summary.startswith("The search was not finished: it ")


async def test_a_place_that_cannot_be_read_was_not_searched(workspace: Workspace) -> None:
    said = b"rg: ./d: Permission denied (os error 13)\n"
    ripgrep = Ripgrep(workspace, PlayedSearch(("stderr", said), ended=ended(exit_code=2)), rg())

    with pytest.raises(PreconditionError, match="d cannot be read, so nothing was searched"):
        await ripgrep.run(("--files",), "d", NameReader)
    _, above = await ripgrep.run(("--files",), ".", NameReader)
    assert above.unreadable == 1


async def test_a_workspace_that_is_gone_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    with Workspace(tmp_path / "ws") as workspace:
        (tmp_path / "ws").rmdir()
        commands = PlayedSearch()
        with pytest.raises(SandboxSetupError, match="is gone"):
            await searched(workspace, commands)

    assert commands.started == []


async def test_landlock_is_given_the_open_names_beside_a_hidden_folder(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "d/keys").mkdir(parents=True)
    listing: tuple[OutputStream, bytes] = ("stdout", b"./d/f\0./d/e/g\0./d/e/h\0./d/.env\0./d/keys/k\0./x/y\0./d/half")
    commands = PlayedSearch(listing, confinement=Confinement(backend="landlock", capabilities=(), degraded=True))
    ripgrep = Ripgrep(workspace, commands, rg(), lambda: (f"{root}/d/keys",))
    await ripgrep.run(("--type=wanted", "--regexp=x"), ".", NameReader)
    names, search = commands.started

    assert (names.profile.hidden, search.profile.hidden) == ((), (f"{root}/d/keys",))
    assert {"--files", "--type=wanted"} < {*names.argv}
    assert names.argv[-2:] == ("--", ".")
    assert search.argv[search.argv.index("--") :] == ("--", "./d/e", "./d/f", "./x")


async def test_files_that_cannot_be_read_do_not_fail_a_search(workspace: Workspace) -> None:
    said = b"rg: ./a: Permission denied (os error 13)\nrg: ./b: Permission denied (os error 13)\n"
    done = await searched(workspace, PlayedSearch(("stderr", said), ended=ended(exit_code=2)))

    assert (done.stopped, done.unreadable) == ("", 2)


async def test_what_it_says_is_kept_to_a_bound(workspace: Workspace) -> None:
    words: list[tuple[OutputStream, bytes]] = [("stderr", b"x" * 60_000)] * 50
    commands = PlayedSearch(*words, ended=ended(exit_code=2))
    with pytest.raises(PreconditionError) as refused:
        await searched(workspace, commands)

    assert len(str(refused.value)) < 1_200


def test_closed_paths_are_left_out_with_all_below_them(workspace: Workspace) -> None:
    closed = ClosedPaths(workspace, [f"{workspace.root}/{path}" for path in ("a", "d/e")] + ["/elsewhere/x"])
    paths = [b"./.env", b"./.env.example", b"./a", b"./a/b", b"./ab", b"./d", b"./d/e/f/g", b"./d/ef", b"./id_rsa"]

    assert closed.filter_open(paths, find_suspects(b"\0".join(paths))) == [
        b"./.env.example",
        b"./ab",
        b"./d",
        b"./d/ef",
        b"./id_rsa",
    ]
    assert [path for path in paths if closed.is_closed(path)] == [
        b"./.env",
        b"./a",
        b"./a/b",
        b"./d/e/f/g",
        b"./id_rsa",
    ]
    assert (closed.count_below("."), closed.count_below("d"), closed.count_below("x")) == (2, 1, 0)


async def test_cancelling_a_search_leaves_no_process(run: SearchRun) -> None:
    begun, before = asyncio.Event(), _children()
    run.write("a", "x\n" * 5_000_000)
    ripgrep = Ripgrep(run.workspace, sandbox(), rg(), lambda: ())
    task = asyncio.ensure_future(ripgrep.run(("--regexp=x",), ".", lambda: _Telling(begun)))
    async with asyncio.timeout(HANG_SECONDS):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert _children() <= before


class _Telling:
    """A reader that says when something comes."""

    def __init__(self, begun: asyncio.Event) -> None:
        self._begun = begun

    def feed(self, chunk: bytes) -> None:
        self._begun.set()


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_a_folder_that_is_swapped_while_it_is_searched_shows_nothing_outside(run: SearchRun) -> None:
    outside = run.root.parent / "out"
    outside.mkdir()
    (outside / "secret.txt").write_text("needle TOPSECRET")
    run.write("d/inside.txt", "needle inside")
    (run.root / "l").symlink_to(outside)
    with _flipping(run.root) as flips:
        searched = 0
        while searched < 15 or len(flips) < 100:
            searched += 1
            for tool, arguments in (
                ("grep", {"pattern": "needle", "path": "d"}),
                ("glob", {"pattern": "d/*"}),
                ("list_dir", {"path": "d"}),
            ):
                found = await run.do(tool, **arguments)
                assert "TOPSECRET" not in text_of(found)
                assert "secret.txt" not in text_of(found)

    assert "inside" in text_of(await run.do("grep", pattern="needle", path="d"))


@contextmanager
def _flipping(root: Path) -> Generator[list[None]]:
    """`d` is by turns a folder and a link to outside."""
    over, flips = Event(), list[None]()

    def flip() -> None:
        while not over.is_set():
            for source, target in (("d", "x"), ("l", "d"), ("d", "l"), ("x", "d")):
                os.rename(root / source, root / target)
            flips.append(None)

    thread = Thread(target=flip)
    thread.start()
    try:
        yield flips
    finally:
        over.set()
        thread.join()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    path.symlink_to("pipe")


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("odd", [a_pipe, a_link_to_a_pipe, a_link_to_a_device])
@pytest.mark.parametrize("name", [".gitignore", "sub/.ignore", ".git/info/exclude"])
async def test_an_ignore_file_that_is_no_plain_file_ends_no_search_and_is_told(
    run: SearchRun, name: str, odd: Callable[[Path], None]
) -> None:
    run.write("sub/a.py", "needle")
    run.write("b.py", "needle")
    (run.root / name).parent.mkdir(parents=True, exist_ok=True)
    odd(run.root / name)

    async with asyncio.timeout(HANG_SECONDS):
        found = await run.do("grep", pattern="needle")
        listed = await run.do("glob", pattern="*.py")

    why = "[ignore files were not obeyed, since "
    lines = text_of(found).split("\n")
    assert lines[:2] == ["b.py:1: needle", "sub/a.py:1: needle"]
    assert text_of(listed).split("\n")[:2] == ["b.py", "sub/a.py"]
    # A device that cannot be opened in a sandbox holds nobody up.
    assert [line for line in lines[2:] if not line.startswith(why)] == []
    assert found.facts["ignore_files_obeyed"] == (not lines[2:])
    assert odd is a_link_to_a_device or name in lines[2]


async def test_ignore_files_are_obeyed_again_when_the_odd_one_is_gone_and_waited_for_once(
    run: SearchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write("a.py", "needle")
    run.write("b.log", "needle")
    run.write("sub/.gitignore", "*.log")
    os.mkfifo(run.root / ".gitignore")
    await run.do("grep", pattern="needle")

    monkeypatch.setattr("interlock.tools.search.ripgrep._PATIENCE_SECONDS", 10 * HANG_SECONDS)
    async with asyncio.timeout(HANG_SECONDS):
        again = await run.lines("grep", pattern="needle")
    (run.root / ".gitignore").unlink()
    run.write(".gitignore", "*.log")

    assert again[:2] == ["a.py:1: needle", "b.log:1: needle"]
    assert await run.lines("grep", pattern="needle") == ["a.py:1: needle"]


async def test_a_search_that_crashed_for_another_reason_is_not_done_again(workspace: Workspace) -> None:
    commands = PlayedSearch(ended=ended("memory_limit", None))
    (Path(workspace.root) / ".gitignore").write_text("*.log")
    first = await searched(workspace, commands)
    (Path(workspace.root) / ".gitignore").write_bytes(b"x\n" * (1 << 20))
    then = await searched(workspace, commands)

    assert [("--no-ignore" in command.argv) for command in commands.started] == [False, False, True]
    assert (first.why_all(), "not obeyed" in then.why_all()) == ("", True)
