"""What passes as reading, and what never does."""

from posixpath import join, normpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.programs import READ_ONLY_PROGRAMS
from interlock.policy.shell.read_only import is_read_only
from tests.corpora import bash_bypass


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


@pytest.mark.parametrize("case", [case for case in bash_bypass.load() if not case.is_benign], ids=lambda case: case.id)
def test_no_bypass_passes(case: bash_bypass.Case) -> None:
    assert not passes(case.command)


@pytest.mark.parametrize("case", [case for case in bash_bypass.load() if case.is_benign], ids=lambda case: case.id)
def test_harmless_commands_pass_and_git_does_not(case: bash_bypass.Case) -> None:
    assert passes(case.command) == (case.category != "benign-git")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ls",
            "ls -la src/*.py",
            "ls --color=auto -1 ./*",
            "cat -n a b",
            "cat < a",
            "head -5 a",
            "head -n 5 a",
            "tail -n +3 a",
        ),
        *(
            "grep -rn --include='*.py' -e x -A3 src",
            "grep -c x a | sort -rn | head",
            "egrep 'a|b' f",
            "grep -- -x f",
            "grep -f pats a",
        ),
        *(
            "rg -n -i -g '*.py' x src",
            "rg -e x --hidden",
            "rg --files src",
            "find . -maxdepth 2 -name '*.py' -not -path './x/*' -print0",
        ),
        *(
            "find src \\( -name a -o -name b \\) -type f",
            "find",
            "find . -size +1k -printf '%p'",
            "sed -n 1,20p a",
            "sed -n '/a/,/b/p;$=' a",
        ),
        *(
            "sed -n -E '/x+/p' a",
            "sort -t, -k2,2n a",
            "uniq -c a",
            "cut -d: -f1 a",
            "tr -d '\\n' < a",
            "wc -l a b",
            "stat -c %s a",
        ),
        *(
            "file -b a",
            "du -sh --max-depth=1 .",
            "df -h .",
            "pwd",
            "echo a 'b > c' -x",
            "printf '%s' a",
            "true",
            "test -f a",
            "[ a = b ]",
        ),
        *(
            "[ 1 -eq 2 ] || [ -d src -a -f a ]",
            "date",
            "date -u '+%F %T'",
            "whoami",
            "id -un",
            "uname -a",
            "which git",
            "type -a ls",
        ),
        *(
            "command -v git",
            "dirname a/b",
            "basename -s .py a.py",
            "realpath a",
            "readlink -f a",
            "md5sum a",
            "sha256sum a b",
            "cksum a",
        ),
        *(
            "od -An -tx1 a",
            "hexdump -C -n 16 a",
            "xxd -p a",
            "nl -ba a",
            "tac a",
            "rev a",
            "comm -12 a b",
            "diff -u a b",
            "cmp -s a b",
        ),
        *(
            "column -t -s, a",
            "fold -w 80 -s a",
            "paste -d, a b",
            "join -t, a b",
            "expand -t 4 a",
            "tree -L 2 -I x",
            "seq 1 3",
        ),
        *(
            "cd src && ls ../lib",
            "cd src && cat ../a",
            "time ls",
            "timeout 5 cat a",
            "nice -n 5 wc a",
            "command ls",
            "ls 2>&1 | cat",
        ),
        *(
            "cat a 2>/dev/null || true",
            "(cd src; ls)",
            "{ ls; pwd; }",
            "! grep -q x a",
            "cat <<'E'\nx\nE",
            "wc -l <<< 'a b'",
            "cat -",
            "ls -- -x",
        ),
    ],
)
def test_reading_inside_the_workspace_passes(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        # Other places.
        *(
            "cat /etc/passwd",
            "ls ..",
            "cat ../x",
            "cat src/../../x",
            "grep x /etc/passwd",
            "grep -f /etc/passwd a",
            "grep -r x /",
        ),
        *(
            "grep -f/etc/passwd a",
            "grep --file=/etc/passwd a",
            "grep --exclude-from=../x y a",
            "rg -f../x a",
            "find / -name x",
        ),
        *(
            "find . -newer /etc/passwd",
            "cd .. && ls",
            "cd /etc; cat a",
            "cd src; cat ../../a",
            "cat < /etc/passwd",
            "test -f /etc/passwd",
        ),
        *(
            "[ a -nt /etc/passwd ]",
            "diff a /etc/passwd",
            "realpath --relative-to=/etc a",
            "ls -w /etc",
            "head -n /etc/passwd a",
            "cd src; cd ..; ls ../a",
        ),
        # Options that write, run, follow links or read names from a file.
        *(
            "sort -o x a",
            "sort -ox a",
            "sort --output=x a",
            "sort --outp=x a",
            "sort --compress-program=x a",
            "sort --compress-prog=x a",
            "sort -T x a",
        ),
        *(
            "sort --files0-from=a",
            "uniq a b",
            "uniq -c a b",
            "uniq a*",
            "tree -o x",
            "tree -R",
            "tree -l",
            "tree --fromfile a",
            "xxd -r a b",
        ),
        *(
            "xxd a b",
            "xxd -ps a b",
            "xxd a*",
            "date -s x",
            "date 01010000",
            "date -f a",
            "file -C",
            "file -f a",
            "file -z a",
            "wc --files0-from=a",
        ),
        *(
            "du --files0-from=a",
            "du -L",
            "ls -L",
            "ls -H x",
            "grep -R x",
            "rg -L x",
            "rg --follow x",
            "rg --pre x y",
            "rg --pre=x y",
            "rg --pr x y",
        ),
        *(
            "rg -z x",
            "rg --search-zip x",
            "rg --hostname-bin x y",
            "find -L .",
            "find . -follow",
            "find . -delete",
            "find . -fls x",
            "find . -fprint x",
        ),
        *(
            "find . -fprint0 x",
            "find . -exec a ;",
            "find . -files0-from a",
            "find . -name",
            "tail -f a",
            "tail --follow a",
            "md5sum -c a",
            "sha256sum --check a",
        ),
        *(
            "diff -r a b",
            "diff -l a b",
            "diff --from-file=a b",
            "hexdump -f a b",
            "od --width a",
            "stat -L a",
            "printf -v a b",
            "printf -- a",
        ),
        # sed.
        *(
            "sed p a",
            "sed -n p -i a",
            "sed -n -i p a",
            "sed -ni p a",
            "sed -n 'w x' a",
            "sed -n '1w x' a",
            "sed -n '1e x' a",
            "sed -n 's/a/b/p' a",
        ),
        *(
            "sed -n 's/a/b/w x' a",
            "sed -n 's/a/b/e' a",
            "sed -n '1r x' a",
            "sed -n -f x a",
            "sed -n -e p a",
            "sed -n",
            "sed -n '1p\ne x' a",
            "sed --quiet --in-place p a",
        ),
        # Words that may become options.
        *("ls *", "cat *.py", "grep x ?", "cat [-]x", "cat a/*/../../../x", "ls -*"),
        # Not the program, or not it alone.
        *(
            "./cat a",
            "/bin/cat a",
            "/usr/bin/ls",
            "A=1 ls",
            "PATH=. ls",
            "env ls",
            "env",
            "printenv",
            "sudo ls",
            "nohup ls",
            "bash -c ls",
            "./time ls",
        ),
        *(
            "builtin pwd",
            "exec ls",
            "git status",
            "git log",
            "awk 1 a",
            "python3 -V",
            "node -v",
            "man ls",
            "make -n",
            "npm ls",
            "ps aux",
            "less a",
            "more a",
        ),
        *(
            "vi a",
            "tee a",
            "cp a b",
            "mv a b",
            "rm a",
            "touch a",
            "mkdir a",
            "ln a b",
            "chmod 1 a",
            "dd if=a",
            "split a",
            "csplit a 1",
            "curl x",
            "ping x",
        ),
        *(
            "dig x",
            "host x",
            "nc x 1",
            "tar tf a",
            "unzip -l a",
            "gzip -l a",
            "xargs ls",
            "jq . a",
            "jq env",
            "yarn --version",
            "ld.so ls",
            "LS",
            "Cat a",
        ),
        *(
            "ls > x",
            "ls >> x",
            "ls &> x",
            "> x",
            "ls; rm a",
            "ls & rm a",
            "ls | tee x",
            "(ls; rm a)",
            "which ./x",
            "type /bin/ls",
            "pwd x",
            "uname x",
            "whoami x",
        ),
    ],
)
def test_anything_else_does_not_pass(text: str) -> None:
    assert not passes(text)


@pytest.mark.parametrize("program", sorted(READ_ONLY_PROGRAMS))
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
