"""Patterns of paths and texts, compiled to RE2: matching time is linear in the text.

A path glob is read as in a `.gitignore`: a name without a slash is that name at any depth; with a slash it starts at
the workspace; `/` is absolute and `~/` the home folder; `*` stays in one folder, `**` does not. Paths are matched as
texts `r:src/a.py` (from the workspace) and `a:/work/src/a.py` (absolute), see `paths.py`.

Wide patterns (for rules that refuse or ask) ignore case and compatibility forms, and a folder means all that is in it.
Narrow ones (for rules that allow) mean what they say, and a name means one in the workspace.
"""

import re
from collections.abc import Sequence
from os.path import expanduser, realpath
from typing import Any
from unicodedata import normalize

from ..domain.errors import ConfigurationError

try:
    import re2  # pyright: ignore[reportMissingTypeStubs]
except ImportError:  # The extra `policy` is not installed.
    re2 = None

_MAX_PATTERN_CHARS = 2_000
_MAX_MEMORY_BYTES = 64 << 20


def compile_regex(pattern: str) -> Any:
    """Compile an RE2 pattern. Raise `ConfigurationError` with the reason."""
    library = _require_re2()
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ConfigurationError(f"a pattern has at most {_MAX_PATTERN_CHARS} characters, this one {len(pattern)}")
    try:
        return library.compile(pattern, _re2_options(library))
    except library.error as error:
        raise ConfigurationError(f"{pattern!r} is no RE2 pattern: {_error_text(error)}") from None


class PatternSet:
    """Many patterns matched in one pass: returns those that match the whole text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        library = _require_re2()
        self._set: Any = library.Set.FullMatchSet(_re2_options(library))
        for pattern in patterns:
            self._set.Add(pattern)
        try:
            self._set.Compile()
            self._set.Match(b"r:")
        except library.error as error:
            fault = f"the {len(patterns):,} patterns are too large together: {_error_text(error)}"
            raise ConfigurationError(fault) from None

    def find_matches(self, text: str) -> Sequence[int]:
        """Return the indexes of the patterns that match."""
        return self._set.Match(text.encode("utf-8", "surrogatepass")) or ()


def fold_text(text: str) -> str:
    """Return a text in folded form: texts that a file system may treat as equal become equal."""
    return normalize("NFKC", normalize("NFKC", text).casefold())


def path_glob_to_regexes(glob: str, *, wide: bool) -> tuple[str, ...]:
    """Return a path glob as regular expressions over `r:` and `a:` texts: one fits when the glob does.

    A wide one is read as it is written and as it is folded, and from where it really leads when it is absolute.
    """
    if not glob.strip() or "\0" in glob or len(glob) > _MAX_PATTERN_CHARS:
        raise ConfigurationError(f"{glob[:80]!r} is no pattern of paths")
    if ".." in glob.split("/"):
        raise ConfigurationError(f"{glob!r} goes up a folder; write where it leads instead")
    written = expanduser(glob) if glob == "~" or glob.startswith("~/") else glob
    if not wide:
        return (_path_glob_to_regex(written, wide=False),)
    spellings = dict.fromkeys(
        spelling for place in (written, _resolve_glob(written)) for spelling in (place, fold_text(place))
    )
    return tuple(_path_glob_to_regex(spelling, wide=True) for spelling in spellings)


def _path_glob_to_regex(pattern: str, *, wide: bool) -> str:
    while pattern.startswith("./"):
        pattern = pattern[2:]
    is_folder = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    below = "(?:/.*)?" if wide or is_folder else ""
    if pattern in ("", "."):  # a whole tree: of the file system for `/`, else of the workspace
        return f"{'a' if is_folder and not pattern else 'r'}:{'.*' if below else '[./]?'}"
    if pattern.startswith("/"):
        return f"a:{_translate_glob(pattern)}{below}"
    if "/" not in pattern:
        anywhere = "(?:a:/|r:)" if wide else "r:"
        return f"{anywhere}(?:.*/)?{_translate_glob(pattern)}{below}"
    return f"r:{_translate_glob(pattern)}{below}"


def _resolve_glob(glob: str) -> str:
    """Return an absolute glob with the links in front of its first wildcard followed."""
    wildcard = _WILDCARD.search(glob)
    literal = glob[: wildcard.start()] if wildcard else glob
    folder, slash, rest = literal.rpartition("/") if wildcard else (literal, "", "")
    if not glob.startswith("/") or not folder:
        return glob
    return realpath(folder) + slash + rest + (glob[wildcard.start() :] if wildcard else "")


_WILDCARD = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"/\*\*/|/\*\*$|^\*\*/|\*+|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def _translate_glob(glob: str) -> str:
    pieces = [match.group() for match in _TOKEN.finditer(glob)]
    if "[" in pieces:
        raise ConfigurationError(f"{glob!r} has a [ without its ]; write [[] for the character itself")
    translated = "".join(map(_translate_token, pieces))
    compile_regex(translated)
    return translated


_TOKEN_REGEXES = {"/**/": "/(?:.*/)?", "/**": "(?:/.*)?", "**/": "(?:.*/)?", "?": "[^/]", "*": "[^/]*"}


def _translate_token(token: str) -> str:
    if token in _TOKEN_REGEXES:
        return _TOKEN_REGEXES[token]
    if token.startswith("**"):
        return ".*"
    return _translate_class(token) if len(token) > 1 else re.escape(token)


def _translate_class(token: str) -> str:
    """Translate `[abc]` or `[!abc]`. Only `-` and the final `]` are special in them."""
    negated = token[1] == "!"
    members = "".join("\\" + char if char in "\\^[]" else char for char in token[1 + negated : -1])
    return f"[^/{members}]" if negated else f"[{members}]"


def glob_to_regex(glob: str) -> str:
    """Return a glob over a whole text, where a slash is a character like any other."""
    return "".join(
        _translate_token(token).replace("[^/", "[^").replace("[^]", ".") for token in _TEXT_TOKEN.findall(glob)
    )


_TEXT_TOKEN = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


def _require_re2() -> Any:
    if re2 is None:
        raise ConfigurationError("Patterns of paths and texts need RE2: install interlock[policy].")
    return re2


def _re2_options(library: Any) -> Any:
    options = library.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    options.dot_nl = True
    return options


def _error_text(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
