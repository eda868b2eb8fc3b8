"""read_file: lines with their numbers, how to go on, and what the run remembers of them."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import SqliteLog, ToolRuntime
from interlock.domain.errors import PreconditionError
from interlock.domain.outcome import NextTool, OutputSize
from interlock.domain.tool import ToolDefinition
from interlock.sandbox.workspace.refusals import PathRefusedError
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.files.baseline import FileBaseline, load_baseline
from interlock.tools.files.file_content import MAX_FILE_BYTES
from interlock.tools.files.numbered_lines import MAX_TEXT_CHARS, number_lines
from interlock.tools.files.read_file import ReadResult, read_file_tool
from interlock.tools.files.text_file import TextFile
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user
from tests.support import call
from tests.tools.file_runs import FileRun, context, names, run, socket_at, text_of

__all__ = ["run"]

SECRET = "sk-" + "ant-" + "api03-" + "Qz7Wx3Lk9" * 5


def numbered(first: int, last: int) -> str:
    return "\n".join(f"{number}\tline {number}" for number in range(first, last + 1))


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.requirement("R229", "R241")
async def test_a_text_is_shown_with_line_numbers_and_a_person_reads_one_line(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one\n\n  three")
    read = await run.read("a.txt")

    assert text_of(read) == "1\tone\n2\t\n3\t  three"
    assert read.summary == "a.txt: lines 1-3 of 3"
    assert read.user_text == "Read a.txt (lines 1-3 of 3)"
    assert (read.side_effects, read.size, read.next_hint, read.next_tool) == ((), None, "", None)


@pytest.mark.requirement("R250", "R251")
async def test_the_first_2000_lines_are_shown_and_how_to_read_the_next(run: FileRun) -> None:
    (run.root / "a.txt").write_text(lines(5_000))
    read = await run.read("a.txt")

    assert text_of(read) == numbered(1, 2_000)
    assert read.next_hint == "lines 1-2,000 of 5,000; next: offset=2001 limit=2000"
    assert read.next_tool == NextTool(tool="read_file", input_hint={"path": "a.txt", "offset": 2_001, "limit": 2_000})
    shown = len(lines(2_000))
    assert read.size == OutputSize(produced=len(lines(5_000)), kept=0, shown=shown, omitted=len(lines(5_000)) - shown)


@pytest.mark.requirement("R251")
async def test_following_the_hints_reads_everything_once(run: FileRun) -> None:
    (run.root / "a.txt").write_text(lines(4_500))
    read = await run.read("a.txt")
    texts = [text_of(read)]
    while read.next_tool is not None:
        read = await run.do(read.next_tool.tool, **read.next_tool.input_hint)
        texts.append(text_of(read))

    assert "\n".join(texts) == numbered(1, 4_500)
    assert len(texts) == 3


@pytest.mark.requirement("R235")
def test_the_raw_result_has_bytes_encoding_time_truncation_offset_and_limit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    with Workspace(tmp_path) as workspace:
        read = read_file_tool(workspace).handler(context=context("read_file"), path="a.txt", offset=2, limit=1)

    assert isinstance(read, ReadResult)
    assert read.file.content == b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"
    assert (read.encoding, read.line_endings) == ("utf-8-bom", "crlf")
    assert read.file.mtime_ns == (tmp_path / "a.txt").stat().st_mtime_ns
    assert (read.text, read.is_truncated, read.offset, read.limit) == ("2\ttwo", True, 2, 1)
    assert read.size == OutputSize(produced=12, kept=0, shown=5, omitted=7)


@pytest.mark.requirement("R252")
async def test_lines_of_the_same_version_are_not_shown_again(run: FileRun) -> None:
    (run.root / "a.txt").write_text(lines(100))
    await run.read("a.txt", offset=1, limit=50)
    again = await run.read("a.txt", offset=10, limit=20)
    more = await run.read("a.txt", offset=40, limit=20)

    assert again.content is None
    assert again.summary.startswith("file_unchanged: a.txt is as it was")
    assert again.facts["code"] == "file_unchanged"
    assert text_of(more) == numbered(40, 59)
    assert (await run.read("a.txt", limit=59)).facts["code"] == "file_unchanged"
    assert text_of(await run.read("a.txt", limit=2, again=True)) == numbered(1, 2)


@pytest.mark.requirement("R252")
async def test_another_version_is_shown_even_with_the_same_time_and_size(run: FileRun) -> None:
    file = run.root / "a.txt"
    file.write_text("one\n")
    await run.read("a.txt")
    before = file.stat()
    file.write_text("two\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert text_of(await run.read("a.txt")) == "1\ttwo"


@pytest.mark.requirement("R272")
async def test_a_read_records_version_time_and_lines_for_later_and_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/a.txt").write_text(lines(30))
    log = SqliteLog(tmp_path / "runs.db")
    first = FileRun(tmp_path / "ws", log=log)
    read = await first.read("a.txt", offset=11, limit=10)
    first.workspace.close()

    second = FileRun(tmp_path / "ws", log=log, run_id=first.runtime.run_id, first_call=2)
    again = await second.do("read_file", path="a.txt", offset=12, limit=3)
    second.workspace.close()
    await log.close()

    status = (tmp_path / "ws/a.txt").stat()
    assert load_baseline(read.state, "a.txt") == FileBaseline(
        sha256=read.facts["sha256"],
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        encoding="utf-8",
        lines=30,
        ranges=((11, 20),),
    )
    assert again.facts["code"] == "file_unchanged"


@pytest.mark.requirement("R219", "R220")
async def test_three_reads_of_one_batch_run_at_the_same_time(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def wait_in_handlers(_path: str, _writing: bool) -> bool:
        """Asked about every file that is opened; it comes back when all three are being opened."""
        if threading.current_thread() is not threading.main_thread():
            together.wait(HANG_SECONDS)
        return False

    for name in "abc":
        (tmp_path / name).write_text(f"{name}\n")
    with Workspace(tmp_path, extra_hidden=wait_in_handlers) as workspace:
        runtime = ToolRuntime(tools=[read_file_tool(workspace)], workspace=tmp_path)
        result = await runtime.execute([call(f"c{name}", "read_file", path=name) for name in "abc"])

    assert [text_of(read) for read in result.observations] == ["1\ta", "1\tb", "1\tc"]


async def test_reads_side_by_side_do_not_forget_each_other(run: FileRun) -> None:
    (run.root / "a.txt").write_text(lines(30))
    reads = [("read_file", {"path": "a.txt", "offset": first, "limit": 10}) for first in (1, 11, 21)]
    await run.batch(*reads)

    assert (await run.read("a.txt")).facts["code"] == "file_unchanged"


@pytest.mark.requirement("R219")
def test_reading_is_declared_as_reading_that_may_be_repeated_beside_others(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        tool = read_file_tool(workspace)

    assert (tool.concurrency, tool.risk, tool.read_only, tool.idempotent) == ("safe", {"read"}, True, True)


async def test_a_long_line_is_cut_and_its_bytes_are_counted(run: FileRun) -> None:
    (run.root / "a.txt").write_text("x" * 1_999 + "é" * 500 + "\nend\n")
    read = await run.read("a.txt")

    first, second = text_of(read).split("\n")
    assert first == "1\t" + "x" * 1_999 + "é [... 998 bytes of this line omitted ...]"
    assert second == "2\tend"
    assert read.summary == "a.txt: lines 1-2 of 2; 1 of them cut after 2,000 characters"
    assert read.size == OutputSize(produced=3_004, kept=0, shown=2_006, omitted=998)
    assert (await run.read("a.txt")).facts["code"] == "file_unchanged"


async def test_no_more_is_shown_than_there_is_room_for(run: FileRun) -> None:
    (run.root / "a.txt").write_text(("y" * 1_000 + "\n") * 500)
    read = await run.read("a.txt")

    assert MAX_TEXT_CHARS - 1_100 < len(text_of(read)) <= MAX_TEXT_CHARS
    assert read.next_hint == "lines 1-119 of 500; next: offset=120 limit=2000"
    assert read.artifacts == ()


@settings(database=None)
@given(
    st.text(st.sampled_from("ab\n\ré🎉"), max_size=80),
    st.integers(1, 8),
    st.sampled_from(["utf-8", "utf-16-le"]),
)
def test_what_is_shown_and_omitted_adds_up_for_any_text(text: str, limit: int, encoding: str) -> None:
    file = TextFile(text, "utf-16-le" if encoding == "utf-16-le" else "utf-8")
    offset, shown = 1, list[str]()
    while True:
        found = number_lines(file, offset, limit)
        shown += [line.partition("\t")[2] for line in found.text.split("\n")] if found.shown else []
        if found.size is None:
            break
        rest = "\n".join(text.split("\n")[offset - 1 :])
        assert found.size.produced == len(rest.encode(encoding)) == found.size.shown + found.size.omitted
        offset += found.shown

    assert "\n".join(shown) == text.replace("\r\n", "\n").removesuffix("\n").removesuffix("\r" * text.endswith("\r"))


async def test_an_empty_file_is_said_to_be_empty(run: FileRun) -> None:
    (run.root / "a.txt").touch()
    read = await run.read("a.txt")

    assert (read.summary, read.content) == ("a.txt: the file is empty", None)
    assert (await run.read("a.txt")).facts["code"] == "file_unchanged"


async def test_an_offset_after_the_end_cannot_be_read(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one\n")
    for _ in range(2):
        beyond = await run.do("read_file", path="a.txt", offset=3)
        assert beyond.code == "runtime_precondition_failed"
        assert beyond.summary.startswith("a.txt has 1 lines, so there is none from offset 3 on.")
        await run.read("a.txt", again=True)


@pytest.mark.requirement("R229", "R239")
async def test_a_binary_file_is_told_of_and_not_shown(run: FileRun) -> None:
    (run.root / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR")
    for _ in range(2):
        read = await run.read("logo.png")
        assert read.summary == "logo.png is a binary file (png, 16 bytes); its content is not shown"
        assert (read.content, read.facts["binary"], read.facts["kind"]) == (None, True, "png")


async def test_bytes_that_are_no_utf8_are_shown_as_escapes(run: FileRun) -> None:
    (run.root / "a.txt").write_bytes("café\r\n".encode("latin-1"))

    assert text_of(await run.read("a.txt")) == "1\tcaf\\xe9"


@pytest.mark.requirement("R229")
async def test_a_huge_file_is_not_read_and_the_way_out_is_named(run: FileRun) -> None:
    with (run.root / "huge.log").open("wb") as file:
        file.truncate(1 << 40)
    read = await run.do("read_file", path="huge.log")

    assert read.code == "runtime_precondition_failed"
    assert f"up to {MAX_FILE_BYTES:,}. Look for what you need with grep" in read.summary


@pytest.mark.requirement("R198", "R199", "R200", "R201", "R205", "R229")
@pytest.mark.parametrize("path", ["missing.txt", "folder", "pipe", "socket", "file.txt/x", "folder/../missing"])
async def test_what_is_no_file_to_read_is_a_failed_precondition(run: FileRun, path: str) -> None:
    (run.root / "folder").mkdir()
    (run.root / "file.txt").touch()
    os.mkfifo(run.root / "pipe")
    with socket_at(run.root / "socket"):
        read = await run.do("read_file", path=path)

    assert read.failure is not None
    assert (read.code, read.failure.phase, read.side_effects) == ("runtime_precondition_failed", "validate", ())
    assert read.summary.endswith("Nothing was executed.")


@pytest.mark.requirement("R229", "R239")
@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../outside.txt", "link", "/proc/self/environ", "/dev/zero", ".env", "keys/id_rsa", "~/x"),
        *("file:///etc/passwd", "a\0b", "", "x" * 5_000, "/proc/self/root/etc/passwd"),
    ],
)
async def test_what_is_not_to_be_read_is_refused_at_the_gate(run: FileRun, path: str) -> None:
    (run.root.parent / "outside.txt").write_text("outside")
    (run.root / "link").symlink_to(run.root.parent / "outside.txt")
    (run.root / ".env").write_text("KEY=value")
    read = await run.do("read_file", path=path)

    assert (read.code, read.side_effects, read.content) == ("policy_denied", (), None)
    assert read.failure is not None
    assert read.failure.details["layer"] == "path boundary"


async def test_a_link_inside_the_workspace_is_the_file_it_leads_to(run: FileRun) -> None:
    (run.root / "real.txt").write_text("one\n")
    (run.root / "alias").symlink_to("real.txt")
    read = await run.read("alias")

    assert read.summary == "real.txt: lines 1-1 of 1"
    assert (await run.read("real.txt")).facts["code"] == "file_unchanged"


async def test_a_folder_whose_name_is_no_text_does_not_stop_anything(run: FileRun) -> None:
    folder = os.fsdecode(b"b\xff")
    (run.root / folder).mkdir()
    (run.root / folder / "a.txt").write_text("one\n")
    (run.root / "alias").symlink_to(folder)

    assert (await run.read("alias/a.txt")).summary == "b\\udcff/a.txt: lines 1-1 of 1"
    assert (await run.do("edit_file", path="alias/a.txt", old_string="one", new_string="two")).ok


@pytest.mark.requirement("R239")
async def test_secrets_are_not_shown(run: FileRun) -> None:
    (run.root / "config.py").write_text(f'API_KEY = "{SECRET}"\n')

    assert text_of(await run.read("config.py")) == '1\tAPI_KEY = "[redacted:anthropic_key]"'


async def test_in_a_workspace_that_was_deleted_nothing_is_read_or_made(run: FileRun) -> None:
    run.root.rmdir()
    read = await run.do("read_file", path="a.txt")
    written = await run.do("write_file", path="a.txt", content="x")

    assert (read.ok, written.ok, written.side_effects) == (False, False, ())
    assert names(run.root.parent) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; the next test runs this one as somebody else")
async def test_a_file_without_the_right_to_read_it_is_said_to_be_so(run: FileRun) -> None:
    (run.root / "a.txt").write_text("one\n")
    (run.root / "a.txt").chmod(0)
    read = await run.do("read_file", path="a.txt")

    assert read.code == "runtime_precondition_failed"
    assert "cannot be opened" in read.summary


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are run by an ordinary user already")
@pytest.mark.parametrize("file", ["test_read_file.py", "test_write_file.py", "test_edit_file.py"])
def test_all_is_the_same_for_an_ordinary_user(file: str) -> None:
    pytest_as_ordinary_user(str(Path(__file__).with_name(file)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolDefinition]:
    root = tmp_path_factory.mktemp("small")
    (root / "a").write_text("one\ntwo\n")
    with Workspace(root) as workspace:
        yield read_file_tool(workspace)


@settings(database=None)
@given(st.text(max_size=20) | st.just("a"), st.integers(1, 5) | st.just(2**53 - 1), st.integers(1, 20_000))
def test_any_path_and_range_is_read_or_refused_in_words(
    small: ToolDefinition, path: str, first: int, limit: int
) -> None:
    assert small.check is not None
    problem = small.check({"path": path, "offset": first, "limit": limit, "again": False}, context("read_file"))
    try:
        small.handler(context=context("read_file"), path=path, offset=first, limit=limit)
    except (PreconditionError, PathRefusedError):
        return
    assert problem is None
