"""Check the words that people read: comments, docstrings, messages, pages. `make check` runs it.

Retired words are a private dialect that readers had to learn; docstrings of functions begin with an imperative.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: A retired word, and what to write.
RETIRED = {
    r"anew": "again",
    r"whoever": "the person or process that",
    r"nobody": "no one, or say who: no person, no process",
    r"somebody": "a person",
    r"told|tells?|telling": "recorded, reported, informed",
    r"goes on|gone on with|go on with|going on with": "continues, resumed",
    r"moved on|moves on": "advanced, driven",
    r"mend(s|ed|ing)?": "fix, repair",
    r"held fast": "kept, fixed",
    r"a yes|a no|the yes|the no": "an approval, a rejection",
    r"in words": "with a message",
    r"lately": "recently",
    r"wish(es|ed)?": "request",
    r"errand|deed|hush|retell|knock|crowd": "a word of the field",
}
_RETIRED = re.compile(r"\b(" + "|".join(RETIRED) + r")\b", re.IGNORECASE)
#: A docstring of a function that begins like this does not say what the function does.
_NOT_A_VERB = re.compile(
    r"(an?|the|this|that|these|those|what|which|who|whose|whether|where|when|why|how|if|of|as|in|on|at|by|for|from|with|one|every"
    r"|each|all|some|any|no|not|it|its|is|are|was|were|has|have|had|true|false|none|there|here)\b",
    re.IGNORECASE,
)
#: Texts that quote others, or are data.
_EXCEPT = ("CHANGELOG.md",)


class Finding(NamedTuple):
    """A place, and what is wrong there."""

    path: str
    line: int
    message: str


def check_text(path: str, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Find retired words in a text."""
    for match in _RETIRED.finditer(text):
        word = match[1].lower()
        advice = next(better for pattern, better in RETIRED.items() if re.fullmatch(pattern, word))
        line = first_line + text.count("\n", 0, match.start())
        yield Finding(path, line, f"retired word {match[1]!r}; write: {advice}")


def check_source(path: str, source: str) -> Iterator[Finding]:
    """Find retired words in comments and strings, and docstrings that do not begin with a verb."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            yield from check_text(path, token.string, token.start[0])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node)
            if said and not _is_property(node) and _NOT_A_VERB.match(said):
                message = f"docstring of {node.name} does not begin with a verb: {said.splitlines()[0][:60]!r}"
                yield Finding(path, node.lineno, message)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def find() -> Iterator[Finding]:
    """Check the package, the pages, the templates and the scripts of the browser."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from check_source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    browser = [path for ending in ("html", "js") for path in (ROOT / "src").rglob(f"*.{ending}")]
    for path in sorted([*pages, *browser]):
        if path.name not in _EXCEPT:
            yield from check_text(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def main() -> int:
    """Print every finding. Return 1 if there is one."""
    findings = list(find())
    for path, line, message in findings:
        print(f"{path}:{line}: {message}", file=sys.stderr)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
