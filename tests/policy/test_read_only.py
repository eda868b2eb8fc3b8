"""What passes as reading, and what never does."""

from posixpath import join, normpath

from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.programs import READ_ONLY_PROGRAMS
from interlock.policy.shell.read_only import is_read_only
from tests.corpora import bash_bypass, spellings
from tests.each import each


def inside(path: str, bases: tuple[str, ...]) -> bool:
    """By name alone; links are the business of whoever knows the file system."""
    places = [normpath(join("/work", base, path)) for base in bases]
    return all(place == "/work" or place.startswith("/work/") for place in places)


def passes(text: str) -> bool:
    script = parse_script(text)
    return (
        not script.opaque
        and all(is_read_only(command, inside) for command in script.commands)
        and not any(redirect.writes or not inside(redirect.path, redirect.bases) for redirect in script.redirects)
    )


@each("case", [case for case in bash_bypass.load() if not case.is_benign])
def test_no_bypass_passes(case: bash_bypass.Case) -> None:
    assert not passes(case.command)


@each("case", [case for case in bash_bypass.load() if case.is_benign])
def test_harmless_commands_pass_and_git_does_not(case: bash_bypass.Case) -> None:
    assert passes(case.command) == (case.category != "benign-git")


@each(
    "text",
    spellings.load("read-only"),
)
def test_reading_inside_the_workspace_passes(text: str) -> None:
    assert passes(text)


@each(
    "text",
    spellings.load("not read-only"),
)
def test_anything_else_does_not_pass(text: str) -> None:
    assert not passes(text)


@each("program", sorted(READ_ONLY_PROGRAMS))
def test_long_options_count_in_full_spelling_only(program: str) -> None:
    allowed = {name.rstrip("=@") for name in READ_ONLY_PROGRAMS[program].long}
    for name in allowed:
        for end in range(3, len(name)):
            if name[:end] not in allowed:
                assert not is_read_only(SimpleCommand(argv=(program, name[:end])), inside)


_FILE_READERS = sorted(name for name, table in READ_ONLY_PROGRAMS.items() if table.operands in ("paths", "pattern"))


@given(program=st.sampled_from(_FILE_READERS), operands=st.lists(st.text("abc.12/", min_size=1), max_size=4))
def test_a_reader_of_files_never_passes_with_a_path_outside(program: str, operands: list[str]) -> None:
    assert not is_read_only(SimpleCommand(argv=(program, *operands, "x", "/etc/passwd")), inside)
    assert not is_read_only(SimpleCommand(argv=(program, *operands, "--", "x", "../x")), inside)


@given(argv=st.lists(st.text(), min_size=1).map(tuple), globs=st.lists(st.text(min_size=1)).map(tuple))
def test_no_words_raise(argv: tuple[str, ...], globs: tuple[str, ...]) -> None:
    is_read_only(SimpleCommand(argv=argv, globs=globs), inside)


def test_the_workspace_itself_must_be_inside() -> None:
    assert not is_read_only(SimpleCommand(argv=("ls",), bases=("", "/")), inside)
