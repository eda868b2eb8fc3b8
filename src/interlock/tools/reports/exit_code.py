"""Attribution of a script's exit code, from how its commands are joined. From how its commands are joined, nothing is
run or read.

Of commands with only `&&` between them all have succeeded when the script has. A pipeline ends as its last command
does: where that only passes on what tests print, their report must say how they ended. Whatever else joins commands
leaves it open, and so does all that is not understood here.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Literal, TypeAlias

from .program_detection import detect_program

#: What shows how a program ended: the exit code of the script; only its report; nothing that is known for sure.
ExitEvidence: TypeAlias = Literal["exit_code", "report", "none"]

#: A join, or a part of a word: quoted, escaped, a redirection with `&` or `|` in it, or a letter that joins nothing.
_PIECE = re.compile(
    r"""(?P<join>&&|\|&?)|'[^']*'|"(?:[^"\\$`]|\\.|\$\w+|\$\{\w+\})*"|\\.|>&|&>|>\||[^'"\\;&|()`$!#>\n\r]+|>"""
)
#: Words that make a script end or continue in another way. Without `;` most of them cannot even be used.
_CONTROL_WORDS = frozenset(
    ("exit", "exec", "trap", "eval", "return", "logout", "coproc", "if", "while", "until", "for", "case", "{", "[[")
)
#: Commands that print nothing, so that a report is not theirs.
_SILENT_COMMANDS = frozenset(("cd", "export", "set", "unset", "source", ".", "true", "ulimit", "umask"))
_FORWARDING_COMMANDS = frozenset(("tail", "head", "cat", "tee"))
_STDIN_OPTION = re.compile(r"-.*|\+?[0-9]+[a-zA-Z]*|2>.*")
#: Their last lines are conclusive; of the others a first part may look as if all had passed.
_SUMMARY_AT_END = frozenset(("pytest", "unittest", "jest", "vitest", "node", "mypy", "ruff"))
#: They run what a project chose, so any report may be theirs.
_SCRIPT_RUNNERS = frozenset(("npm", "make"))

_Words: TypeAlias = list[str]
_Pipeline: TypeAlias = list[_Words]


def classify_evidence(script: str, argvs: Sequence[Sequence[str]], program: str) -> ExitEvidence:
    """Return what shows how the program ended. `argvs` are the words of all commands in the script."""
    chain = _split_chain(script.replace("\\\n", " ").strip())
    if chain is None:
        return "none"
    ran = [name for argv in argvs if (name := detect_program(argv)) is not None]
    if ran != [name for pipeline in chain if (name := detect_program(pipeline[0])) is not None]:
        return "none"  # one is inside of another command, or reads from one
    tests = [pipeline for pipeline in chain if detect_program(pipeline[0]) == program]
    others = [pipeline for pipeline in chain if detect_program(pipeline[0]) != program]
    if any(not _CONTROL_WORDS.isdisjoint(words) for pipeline in others for words in pipeline):
        return "none"
    if all(len(pipeline) == 1 for pipeline in tests):
        return "exit_code"
    alone = len(tests) == 1 and all(_is_report_excluded(pipeline) for pipeline in others)
    return "report" if alone and _is_output_forwarded(tests[0], program) else "none"


def _split_chain(script: str) -> list[_Pipeline] | None:
    """Return the pipelines of a script with only `&&` between them; None for any other."""
    chain: list[list[str]] = [[]]
    start = at = 0
    while at < len(script):
        if (piece := _PIECE.match(script, at)) is None:
            return None
        if piece["join"]:
            chain[-1].append(script[start:at])
            start = piece.end()
        if piece["join"] == "&&":
            chain.append([])
        at = piece.end()
    chain[-1].append(script[start:])
    try:
        words = [[shlex.split(command) for command in pipeline] for pipeline in chain]
    except ValueError:
        return None
    return words if all(all(pipeline) for pipeline in words) else None


def _is_report_excluded(pipeline: _Pipeline) -> bool:
    words = pipeline[0]
    other = detect_program(words)
    return len(pipeline) == 1 and (words[0] in _SILENT_COMMANDS or (other is not None and other not in _SCRIPT_RUNNERS))


def _is_output_forwarded(pipeline: _Pipeline, program: str) -> bool:
    """Return True if the output of the first command that shows how it ended comes out of the pipeline."""
    test, *others = pipeline
    if any(">" in word and not word.startswith("2>") for word in test):
        return False
    for name, *words in others:
        if name not in _FORWARDING_COMMANDS or (name == "head" and program not in _SUMMARY_AT_END):
            return False
        if not all(_STDIN_OPTION.fullmatch(word) or (name == "tee" and not set("<>") & set(word)) for word in words):
            return False
    return True
