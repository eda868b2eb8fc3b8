"""Check the words that people read: messages, help, comments, docstrings, pages. `make check` runs it.

Three things: retired words, which only insiders understand; docstrings of functions, which begin with an imperative;
and commands and options, which are named, described and quoted in one way.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from interlock.cli.main import COMMAND_ENTRIES, app

ROOT = Path(__file__).resolve().parent.parent
#: A retired word, and what to write.
RETIRED = {
    r"anew": "again",
    r"whoever": "the person or process that",
    r"nobody": "no one, or say who: no person, no process",
    r"somebody": "a person",
    r"told|tells?|telling": "recorded, reported, informed",
    r"goes on|gone on with|go on with|going on with": "continues, resumed",
    r"moved on|moves on": "advanced, owned by",
    r"mend(s|ed|ing)?": "fix, repair",
    r"held fast|held back|holds back": "fixed, confined, withheld",
    r"a yes|a no|the yes|the no": "an approval, a rejection",
    r"(answer|that|one|it) stands(?! for| in| alone| above| below| beside| between| before| there)": "counts",
    r"in words": "with a message",
    r"what is there": "say what: the current file, the existing value",
    r"not to be had": "unavailable",
    r"so many at most": "maximum number of",
    r"lately": "recently",
    r"wish(es|ed)?": "request",
    r"errand|deed|hush|retell|knock|crowd|desk|tidy|mover|siblings?": "a word of the field",
}
_RETIRED = re.compile(r"\b(" + "|".join(RETIRED) + r")\b", re.IGNORECASE)
#: A docstring of a function that begins like this does not say what the function does.
_NOT_A_VERB = re.compile(
    r"(an?|the|this|that|these|those|what|which|who|whose|whether|where|when|why|how|if|of|as|in|on|at|by|for|from|with|one|every"
    r"|each|all|some|any|no|not|it|its|is|are|was|were|has|have|had|true|false|none|there|here)\b",
    re.IGNORECASE,
)
#: A name in code, which is not prose: `told`.
_CODE_NAME = re.compile(r"`[\w.]+(\?: \w+)?`")
#: A word alone is a value or a name, such as `unknown_outcome_policy="tell"`.
_VALUE = re.compile(r"[\w.-]*")
#: A command as it is quoted in a text: `interlock runs show --json`.
_QUOTED_COMMAND = re.compile(r"(?:`|^\$ |^)interlock ([a-z-][^`\n|;&]*)", re.MULTILINE)
_OPTION_NAME = re.compile(r"--[a-z]+(-[a-z]+)*")
_SHORT_OPTION = re.compile(r"-[a-z]")
#: Options that mean different things by design: `chat --resume RUN` and `approvals approve --resume`; an agent by its
#: name or by its place in the code; a project by its directory or its policy file.
_TWO_KINDS = {"--resume", "--agent", "--project"}
#: Texts that are recorded in logs: other ones would change the digest of a tool, or what a replay compares.
_RECORDED = re.compile(
    r"Nobody answered in time|The run goes on with|It goes on from here|The run goes on as a fork|cannot be held fast"
    r"|Nobody approved|Nobody gave a value in time"
)
#: Texts that quote others, or are data.
_EXCEPT = ("CHANGELOG.md", "src/interlock/verification/claims.py", "src/interlock/policy/shell/programs.json")


class Finding(NamedTuple):
    """A place, and what is wrong there."""

    path: str
    line: int
    message: str


class Command(NamedTuple):
    """A command as its help describes it: its options, and its subcommands by name."""

    options: dict[str, Any]
    subcommands: dict[str, "Command"]


def check_text(path: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Find retired words in a text."""
    for left_out in (_CODE_NAME, _RECORDED):
        text = left_out.sub(lambda found: " " * len(found[0]), text)
    for match in _RETIRED.finditer(text):
        advice = next(better for pattern, better in RETIRED.items() if re.match(pattern, match[1], re.IGNORECASE))
        line = first_line + text.count("\n", 0, match.start())
        yield Finding(path, line, f"retired word {match[1]!r}; write: {advice}")


def check_source(path: str, source: str) -> Iterator[Finding]:
    """Find retired words in comments and strings, and docstrings that do not begin with a verb."""
    tree = ast.parse(source)
    if _RETIRED.search(source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield from check_text(path, token.string, token.start[0])
        for line, text in _iterate_strings(tree):
            yield from check_text(path, text, line)
    for node in _iterate_functions(tree):
        if not _is_described_by_a_noun(node):
            docstring = ast.get_docstring(node)
            if docstring and _NOT_A_VERB.match(docstring):
                message = f"docstring of {node.name} does not begin with a verb: {docstring.splitlines()[0][:60]!r}"
                yield Finding(path, node.lineno, message)


def _iterate_strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _VALUE.fullmatch(node.value):
            yield node.lineno, node.value


def _iterate_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Find functions without looking into expressions, which are most of a tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        if isinstance(node, ast.stmt):
            yield from _iterate_functions(node)


def _is_described_by_a_noun(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return "property" in decorators or "callback" in decorators


def load_commands() -> Command:
    """Return the `interlock` command with everything below it."""
    group: Any = get_command(app)
    root = _read_command(group)
    for name, entry in COMMAND_ENTRIES.items():
        module = __import__(f"interlock.cli.{entry.module}", fromlist=["app"])
        root.subcommands[name] = _read_command(get_command(module.app))
    return root


def _read_command(command: Any) -> Command:
    options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    inner = getattr(command, "commands", {})
    return Command(options, {name: _read_command(part) for name, part in inner.items()})


def check_commands(root: Command) -> Iterator[Finding]:
    """Find names that are not spelled like the others, help that is no sentence, and options of two kinds."""
    kinds: dict[str, tuple[str, str]] = {}
    for place, command in _walk(root, "interlock"):
        for name, option in command.options.items():
            where = f"{place} {name}"
            text = option.help or ""
            if name.startswith("-") and not (_OPTION_NAME.fullmatch(name) or _SHORT_OPTION.fullmatch(name)):
                yield Finding("cli", 0, f"{where}: write options as --lower-case-words")
            if not text.endswith(".") or not (text[0].isupper() or text[0] in "`("):
                yield Finding("cli", 0, f"{where}: help is not a sentence: {text!r}")
            kind = "flag" if getattr(option, "is_flag", False) else option.metavar or option.type.name
            first, known = kinds.setdefault(name, (where, kind))
            if name.startswith("--") and known != kind and name not in _TWO_KINDS:
                yield Finding("cli", 0, f"{where} takes {kind}, but {first} takes {known}")


def _walk(command: Command, place: str) -> Iterator[tuple[str, Command]]:
    yield place, command
    for name, inner in command.subcommands.items():
        yield from _walk(inner, f"{place} {name}")


def check_quoted_commands(path: str, text: str, root: Command, first_line: int = 1) -> Iterator[Finding]:
    """Find commands and options that a text names and that do not exist."""
    for match in _QUOTED_COMMAND.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        command, words = root, match[1].split()
        while words and words[0] in command.subcommands:
            command = command.subcommands[words.pop(0)]
        if command.subcommands and words and re.fullmatch("[a-z][a-z-]*", words[0]):
            yield Finding(path, line, f"no command `interlock {match[1]}`")
        for option in _OPTION_NAME.finditer(" ".join(words).split(" -- ")[0]):
            if option[0] not in command.options and option[0] != "--help":
                yield Finding(path, line, f"`interlock {match[1]}` has no option {option[0]}")


def find() -> Iterator[Finding]:
    """Check the package, the pages, the templates and scripts of the browser, and the commands."""
    root = load_commands()
    yield from check_commands(root)
    texts = (path for ending in ("py", "html", "js", "json") for path in (ROOT / "src").rglob(f"*.{ending}"))
    for path in sorted(texts):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if name in _EXCEPT:
            continue
        if path.suffix == ".py":
            yield from check_source(name, text)
        else:
            yield from check_text(name, text)
        if "`interlock " in text:
            yield from check_quoted_commands(name, text, root)
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if name not in _EXCEPT:
            yield from check_text(name, text)
            yield from check_quoted_commands(name, text, root)


def main() -> int:
    """Print every finding. Return 1 if there is one."""
    findings = list(find())
    for path, line, message in findings:
        print(f"{path}:{line}: {message}", file=sys.stderr)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
