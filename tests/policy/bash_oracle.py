"""What real bash does with a script: the oracle for the reader, and scripts to try on both.

Every program is replaced by one that writes its words down, every builtin that a script may call by a function that
does the same. Commands run twice, all of them succeeding and all of them failing, so both sides of `&&` and `||` show.
"""

import random
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import Script

_DRIVER = r"""
set -f
exec 200>>"$1/trace" 201<"$1/scripts"
status=$2
# Without newlines bash writes a note in one piece, also when several commands run at the same time.
note() { builtin printf '%s\0' "$number" "$#" "${@//$'\n'/$'\x02'}" >&200; return "$status"; }
command_not_found_handle() { note "$@"; }
for name in echo printf test true false : cd pwd type; do builtin eval "$name() { note $name \"\$@\"; }"; done
function [ { note [ "$@"; }
PATH=/nowhere
number=0
while IFS= builtin read -r -d '' script <&201; do
    ( builtin cd "$1/$number" && builtin eval "$script"; builtin wait ) </dev/null >/dev/null 2>&1
    number=$((number + 1))
done
note end
"""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_WORDS = _split(
    r"""
    a b cat echo ls -x --long=y 1 22 'x y' "x y" "a\"b" 'it'\''s' a\ b $'x\ny' $'\x41b' "" '' x,y {} a=b a#b %@+^-
    "a\$b" "\\" \* "*" \\ a\;b "a;b|c&d" '$x' \$x '`b`' a~ x: é [ ] "!" a! \! . ..
    """
)
_ODD = (
    *_split(
        r"""
    $ $x ${x} $(b) `b` * ? [ab] {a,b} { } ~ ~/x = A=1 a+=1 a[0]=1 ! !x # #c \ ; ;; & && || | |& ( ) < > >> >| >& <&
    2>&1 &> &>> 2> 1> 3>&1 <> >&- 2>f <<< <<E <<'E' <<-'E' E if then fi for do done case esac [[ ]] (( )) time
    function coproc select while , .. a{1..2} $' $" ' " \' \" '' ~a:~b >f >>f 2>/dev/null &>f <f >&2 1>&2 12>f a>f
    \>f {x}>f '2'>f >&-
    """
    ),
    *("\\\n", "\n", " \\\n ", "\n\n", " # c\n", "#\\\n", "\t", " ", "\u00a0", "\u2028", "\r", "\x01"),
    *("<<'E'\nx $y\nE\n", "<<\\E\n'\nE", '<<-"E"\n\tq\n\tE\n', "<<< 'a b'", "a b", "'x y'", '"x y"', "\\ "),
)
_JOINTS = [" ; ", " && ", " || ", " | ", "\n", " & ", ";", "&&", "|", "&", " |& ", " && \n ", "| \\\n"]


class Mismatch(NamedTuple):
    script: str
    read: Script
    #: Commands that bash ran and the reader did not list, or files that it wrote.
    unexpected: list[tuple[str, ...]]


def scripts(seed: int, count: int) -> list[str]:
    """Scripts that are nearly plain, and heaps of fragments."""
    chance = random.Random(seed)
    return [_plain(chance) if chance.random() < 0.75 else _heap(chance) for _ in range(count)]


def mismatches(
    texts: Sequence[str], folder: Path, taken_for: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, list[Mismatch]]:
    """How many scripts were read, and those of them that bash understood in another way.

    `taken_for` reads one text in place of another: a reader that errs.
    """
    read = [(text, script) for text in texts if not (script := parse_script(taken_for.get(text, text))).opaque]
    runs = _ran(read, folder)
    found = [_unexpected(text, script, ran) for (text, script), ran in zip(read, runs, strict=True)]
    return len(read), [mismatch for mismatch in found if mismatch.unexpected]


def _unexpected(text: str, script: Script, runs: list[Counter[tuple[str, ...]]]) -> Mismatch:
    listed = Counter(command.argv for command in script.commands)
    # Behind a redirect `time` is a program, and no word of the shell.
    listed.update((*command.wrappers, *command.argv) for command in script.commands if command.wrappers)
    listed.update(("file", redirect.path) for redirect in script.redirects if redirect.writes)
    return Mismatch(text, script, [words for run in runs for words in run - listed])


def _ran(read: list[tuple[str, Script]], folder: Path) -> list[list[Counter[tuple[str, ...]]]]:
    runs = list[list[Counter[tuple[str, ...]]]]()
    for status in ("0", "1"):
        place = folder / status
        for number in range(len(read)):
            (place / str(number)).mkdir(parents=True)
        (place / "scripts").write_bytes(b"".join(text.encode() + b"\0" for text, _ in read))
        # `-c` and not a file: bash must not read its own script from the descriptor that the loop reads from.
        subprocess.run(["bash", "-c", _DRIVER, "bash", str(place), status], check=False, timeout=300)
        runs.append(_traced(place, len(read)))
    return [list(pair) for pair in zip(*runs, strict=True)]


def _traced(place: Path, count: int) -> list[Counter[tuple[str, ...]]]:
    found = [Counter[tuple[str, ...]]() for _ in range(count + 1)]
    trace = (place / "trace").read_bytes().decode("utf-8", "surrogateescape")
    fields, at = trace.replace("\x02", "\n").split("\0"), 0
    while at < len(fields) - 1:
        number, size = int(fields[at]), int(fields[at + 1])
        found[number][tuple(fields[at + 2 : at + 2 + size])] += 1
        at += 2 + size
    assert found.pop() == Counter([("end",)]), "bash did not come to the end"
    for index, ran in enumerate(found):
        ran.update(("file", path.name) for path in (place / str(index)).iterdir())
    return found


def _plain(chance: random.Random) -> str:
    parts = [_command(chance) for _ in range(chance.randint(1, 4))]
    text = parts[0]
    for part in parts[1:]:
        text += chance.choice(_JOINTS) + part
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(_ODD) + text[at:]
    return text


def _command(chance: random.Random) -> str:
    words = [chance.choice(("a", "b", "cat", "echo", "ls", "'c d'", "e\\f", "[", "test"))]
    for _ in range(chance.randint(0, 4)):
        glue = "" if chance.random() < 0.1 else chance.choice((" ", " ", "  ", "\t", " \\\n"))
        words.append(glue + chance.choice(_WORDS if chance.random() < 0.85 else _ODD))
    text = "".join(words)
    if chance.random() < 0.15:
        text = chance.choice(("( {} )", "{{ {}; }}", "! {}", "({})", "{{ {}\n}}", "A=1 {}", ">f {}", "{} >f x")).format(
            text
        )
    return text


def _heap(chance: random.Random) -> str:
    pieces = [chance.choice(_WORDS if chance.random() < 0.5 else _ODD) for _ in range(chance.randint(1, 8))]
    return "".join(piece + chance.choice(("", " ", " ")) for piece in pieces)
