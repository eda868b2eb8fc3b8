"""Scripts that are read to the end: which words, folders and files they give."""

import pytest

from interlock.policy.shell.bash import parse_argv, parse_script
from interlock.policy.shell.command import Redirect, Script, SimpleCommand
from tests.each import each


def words(text: str) -> list[tuple[str, ...]]:
    script = parse_script(text)
    assert script.opaque == ""
    return [command.argv for command in script.commands]


def folders(text: str) -> list[tuple[str, ...]]:
    script = parse_script(text)
    assert script.opaque == ""
    return [command.bases for command in script.commands if command.argv[0] != "cd"]


@each(
    ("text", "argv"),
    [
        ("npm test", ("npm", "test")),
        ("a 'x y' \"x y\" x\\ y", ("a", "x y", "x y", "x y")),
        ("a 'it'\\''s' \"say \\\"hi\\\"\"", ("a", "it's", 'say "hi"')),
        ('a "\\$HOME" \\$HOME \'$HOME\' "\\x"', ("a", "$HOME", "$HOME", "$HOME", "\\x")),
        ("a $'\\x41\\n\\'\\101'", ("a", "A\n'A")),
        ("\\r\\m r\"m\" 'r'm", ("rm", "rm", "rm")),
        ("a '' \"\"", ("a", "", "")),
        ("a b#c # a comment; rm x", ("a", "b#c")),
        ("a \\\n  b", ("a", "b")),
        ("find . -name x -o {} ! -type d", ("find", ".", "-name", "x", "-o", "{}", "!", "-type", "d")),
        ("git show 'HEAD@{1}' stash@{0}", ("git", "show", "HEAD@{1}", "stash@{0}")),
        ("[ -f 'a b' -a x != y ]", ("[", "-f", "a b", "-a", "x", "!=", "y", "]")),
        ("a é\u00a0b", ("a", "é\u00a0b")),
        ("ls > f x", ("ls", "x")),
        ("2>f ls -l", ("ls", "-l")),
        ("time -p ls", ("ls",)),
    ],
)
def test_words_are_what_bash_hands_to_the_program(text: str, argv: tuple[str, ...]) -> None:
    assert words(text) == [argv]


@each(
    "text",
    [
        "a; b",
        "a && b",
        "a||b",
        "a | b",
        "a |& b",
        "a\nb",
        "a & b &",
        "(a; b)",
        "{ a; b; }",
        "! a; b",
        "a # x\nb",
        "a;\n\nb",
    ],
)
def test_every_command_of_a_list_is_found(text: str) -> None:
    assert words(text) == [("a",), ("b",)]


def test_wildcards_are_named_and_quoted_ones_are_not() -> None:
    (command,) = parse_script("ls *.py '*.c' \\*.h \"[x]\" a[bc]d ?").commands
    assert command.argv == ("ls", "*.py", "*.c", "*.h", "[x]", "a[bc]d", "?")
    assert command.globs == ("*.py", "a[bc]d", "?")


def test_quotes_beside_a_wildcard_are_read() -> None:
    (command,) = parse_script("ls 'app/[id]'/*.py app/\\[id\\]/? 'a-b'* '[[:alpha:]]' [^a]").commands
    assert command.argv[1:] == ("app/[id]/*.py", "app/[id]/?", "a-b*", "[[:alpha:]]", "[^a]")
    assert command.globs == ("app/[id]/*.py", "app/[id]/?", "a-b*", "[^a]")


def test_variables_before_a_command_stand_beside_it() -> None:
    (command,) = parse_script("A=1 B='x y' C= make all D=2").commands
    assert command == SimpleCommand(argv=("make", "all", "D=2"), assignments=(("A", "1"), ("B", "x y"), ("C", "")))


def test_redirects_say_which_files_the_shell_opens() -> None:
    script = parse_script("a < in > out 2>> err; b >| f; c &> g; d >& h; e 2>&1 >/dev/null <&3 >&- &>> /dev/null")
    assert script.opaque == ""
    assert [(redirect.path, redirect.writes) for redirect in script.redirects] == [
        ("in", False),
        ("out", True),
        ("err", True),
        ("f", True),
        ("g", True),
        ("h", True),
    ]


def test_a_redirect_alone_writes_and_runs_nothing() -> None:
    assert parse_script("> out") == Script(redirects=(Redirect(path="out", writes=True),))


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("cat <<'EOF'\nrm -rf $x `y`\nEOF", [("cat",)]),
        ("cat <<'EOF' > out\nx\nEOF\nls", [("cat",), ("ls",)]),
        ("cat <<\\E | grep x\n'\nE\nls", [("cat",), ("grep", "x"), ("ls",)]),
        ('cat <<-"E"\n\tx\n\tE\n', [("cat",)]),
        ("cat <<< 'x; rm y' -", [("cat", "-")]),
    ],
)
def test_text_that_is_fed_to_a_reader_is_no_command(text: str, argv: list[tuple[str, ...]]) -> None:
    assert words(text) == argv


@each(
    ("text", "bases"),
    [
        ("cd src && a && b", [("src",), ("src",)]),
        ("cd src; a", [("", "src")]),
        ("cd src || a", [("", "src")]),
        ("cd src && a; b", [("src",), ("", "src")]),
        ("! cd src && a", [("", "src")]),
        ("(cd src; a); b", [("", "src"), ("",)]),
        ("{ cd src; a; }; b", [("", "src"), ("", "src")]),
        ("cd src | a; b", [("",), ("",)]),
        ("cd -- /etc && a", [("/etc",)]),
        ("cd a && cd b && c", [("a/b",)]),
        ("cd link && cd .. && c", [("link/..", ".")]),
        ("cd src & a", [("", "src")]),
        ("command cd src && a", [("", "src")]),
        ("builtin cd src; a", [("", "src")]),
        ("time -p cd src && a", [("", "src")]),
        ("time command cd -- src && a", [("", "src")]),
        ("env cd src && a", [("",)]),
        ("bash -c 'cd src && a'; b", [("src",), ("",)]),
    ],
)
def test_a_changed_folder_holds_for_what_may_run_in_it(text: str, bases: list[tuple[str, ...]]) -> None:
    assert folders(text) == bases


def test_a_redirect_starts_from_the_folder_of_its_command() -> None:
    assert parse_script("cd src && cat < ../x").redirects == (Redirect(path="../x", writes=False, bases=("src",)),)


def test_an_empty_script_runs_nothing() -> None:
    assert [parse_script(text) for text in ("", " \n\t", "# only a comment")] == [Script(), Script(), Script()]


def test_a_list_of_words_is_no_script() -> None:
    script = parse_argv(["rm", "$(x)", "*", "a;b", "~"])
    assert script == Script(commands=(SimpleCommand(argv=("rm", "$(x)", "*", "a;b", "~")),))


def test_a_list_of_words_may_start_a_shell() -> None:
    assert [command.argv for command in parse_argv(["bash", "-lc", "a && b"]).commands] == [("a",), ("b",)]


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["a", "x" * 100_000], ["bash"], ["xargs", "rm"]])
def test_words_that_prove_nothing_are_opaque(argv: list[str]) -> None:
    assert parse_argv(argv).opaque != ""
