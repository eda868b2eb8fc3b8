r"""The well-known forms of secrets, as a table.

A form is looked for only where one of its lower-case words stands in the text, so a text without any of them costs
one search for all of them. A pattern starts at such a word, or a few characters before it, and is tried only there; it
either has bounded parts or takes along what it has read, so a search is linear in the text, whatever the text is.

Keyed values (`password = ...`) are the uncertain ones. A value counts when it does not look like code, prose, a path
or a placeholder: `token = get_token()`, `token=token,`, "the token count is 5", `secret: ${SECRET}` and `tokens=1024`
are left alone; `password=hunter2`, `"api_key": "q8Zr41"` and `DB_PASSWORD=swordfish` are not. A bare word after a
colon or a spaced `=` (`password: swordfish`) cannot be distinguished from prose and stays: declare such a secret.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from .. import lazy_pattern


class SecretMatch(NamedTuple):
    """A secret found in a text."""

    start: int
    end: int
    name: str


class SecretPattern(NamedTuple):
    """A pattern of a well-known secret."""

    name: str
    words: tuple[str, ...]
    #: Group `secret` is what is redacted; without it, all that matched.
    pattern: str
    check: Callable[[re.Match[str]], bool] | None = None
    #: How far before one of its words a match begins at most. None: it is not known, and the whole text is searched.
    lead: int | None = 0


def build_prefix_pattern(words: Iterable[str]) -> str:
    """Return a pattern for any of the words that branches by their first letters: much faster than `a|b|c`."""
    branches: dict[str, list[str]] = {}
    for word in sorted(words):
        if not word:
            return ""
        branches.setdefault(word[0], []).append(word[1:])
    return "(?:" + "|".join(re.escape(letter) + build_prefix_pattern(rest) for letter, rest in branches.items()) + ")"


def _pattern(
    name: str,
    words: str,
    pattern: str,
    check: Callable[[re.Match[str]], bool] | None = None,
    lead: int | None = 0,
) -> SecretPattern:
    return SecretPattern(name, tuple(words.split()), pattern, check, lead)


_MIN_STRONG_CHARS = 6
_MIN_MIXED_CASE_CHARS = 16

_has_digit = lazy_pattern(r"\d").search
_has_letter = lazy_pattern(r"[A-Za-z]").search
_has_space = lazy_pattern(r"\s").search
_has_symbol = lazy_pattern(r"[^\w.\-]").search
_is_placeholder = lazy_pattern(
    r"[$<{%*].*|x{3,}|\.{3,}|\[redacted:.*|(?:your|my|some|the|example)[-_ ].*|os\.environ.*|process\.env.*"
    r"|none|null|nil|true|false|undefined|required|optional|string|bytes|password|passwd|secret|token|\w+://.*",
    re.IGNORECASE | re.DOTALL,
).fullmatch
#: `self.token`, `Settings.api_key`: code that names the value.
_is_reference = lazy_pattern(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+|\w*_?passw\w*_\w*|\w+_passw\w*").fullmatch
#: `token_v2`, `prod-db-2`: a name of something in code or configuration.
_is_name = lazy_pattern(r"[a-z][a-z_-]*\d{0,2}").fullmatch
#: The end of what an earlier redaction wrote.
_is_redaction_mark = lazy_pattern(r"\[redacted:[^\]\s]*\]$").search
_is_path = lazy_pattern(r"~?(?:/[\w.-]+){2,}/?|[/~.]").fullmatch


def _is_strong(value: str) -> bool:
    """Return True if a value is more than words: letters with digits or symbols, or long and in mixed case."""
    if len(value) < _MIN_STRONG_CHARS or not _has_letter(value):
        return False
    if _has_digit(value):
        return True
    if _has_space(value):
        return False
    mixed = value.isalnum() and value not in (value.lower(), value.upper())
    return _has_symbol(value) is not None or (mixed and len(value) >= _MIN_MIXED_CASE_CHARS)


def _match_has_digit(match: re.Match[str]) -> bool:
    return _has_digit(match[0]) is not None


def _is_jwt(match: re.Match[str]) -> bool:
    header, *rest = match[0].split(".")
    return len(rest) > 1 and len(header) >= 12 and len(rest[0]) >= 4  # noqa: PLR2004 - `{"alg":""}` is the shortest


def _match_has_key(match: re.Match[str]) -> bool:
    """Return True if there is a key: a mention of its first line alone is none."""
    return len(match["body"]) > len(match["head"])


def _is_aws_secret(match: re.Match[str]) -> bool:
    secret = match["secret"]
    return _has_digit(secret) is not None and secret not in (secret.lower(), secret.upper())


def _is_credential(match: re.Match[str]) -> bool:
    secret = match["secret"]
    return not _is_placeholder(secret) and (match["scheme"] is not None or _is_strong(secret))


def _is_not_placeholder(match: re.Match[str]) -> bool:
    return not _is_placeholder(match["secret"])


def _is_option_value(match: re.Match[str]) -> bool:
    return _is_strong(match["secret"]) and not _is_name(match["secret"])


def _is_keyed_secret(match: re.Match[str]) -> bool:
    value = match["secret"]
    key = match["key"].lower()
    is_password = key.startswith(("passw", "passp", "pwd"))
    if _is_placeholder(value) or _is_redaction_mark(match.string[max(0, match.start() - 64) : match.end("key") + 1]):
        return False
    if match["quote"]:
        return (is_password and not _has_space(value)) or _is_strong(value)
    after = match.string[match.end() : match.end() + 1]
    if (after and after in "([{") or _is_path(value) or (key == "pwd" and value[0] in "/~."):
        return False
    if match["separator"] == "=" and not (after and after in ",)]}"):
        return not _is_reference(value) and (is_password or (_is_strong(value) and not _is_name(value)))
    if is_password:
        return _has_digit(value) is not None and not _is_reference(value)
    return _is_strong(value) and not _is_name(value) and not _is_reference(value)


#: Not inside a word, where `\n` in JSON and `%3D` in a URL are not letters.
_WORD_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_KEYS = (
    r"(?i:passw(?:or)?d|passphrase|pwd|secret(?:[_-]?access)?(?:[_-]?key)?|token|api[_-]?key"
    r"|(?:access|account|auth|encryption|master|private|shared|signing)[_-]?key|credentials?)"
)
_KEYED = (
    rf"(?P<key>{_KEYS})_?\d{{0,2}}[\"'\\\]]{{0,4}}"
    r"(?:[ \t]{0,2}:[ \t]{0,2}\w[\w\[\]|. ]{0,30}?(?=[ \t]?=))?"  # a type between name and value
    r"(?P<separator>[ \t]{0,8}(?:=>|:=|={1,3}|!=|:)[ \t]{0,8})"
    r"(?:[bfru]{0,2}\\{0,3}(?P<quote>[\"'`]))?"
    rf"(?!{_KEYS}[\"'\\]{{0,3}}\s{{0,3}}[:=])"
    r"(?P<secret>(?(quote)(?:(?!(?P=quote))[^\\\r\n]|\\[^\"'`]){4,512}|[^\s\"'`,;&<>(){}\[\]|\\]{4,512}))"
)

SECRET_PATTERNS = (
    _pattern("aws_access_key_id", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    _pattern("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _pattern("github_token", "github_pat_", r"github_pat_\w{22,255}"),
    _pattern("gitlab_token", "glpat- glptt- gldt- glrt- glcbt-", r"gl(?:pat|ptt|dt|rt|cbt)-[\w.-]{20,255}"),
    _pattern("slack_token", "xox xapp-", r"xox[abceoprs]-[\w-]{10,255}|xapp-\d-[\w-]{10,255}"),
    _pattern("slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/[a-z]{1,20}/(?P<secret>[\w/]{20,255})"),
    _pattern("stripe_key", "k_live_ k_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}", lead=1),
    _pattern("webhook_secret", "whsec_", r"whsec_[A-Za-z0-9+/]{24,255}"),
    _pattern("anthropic_key", "sk-ant-", r"sk-ant-[\w-]{20,255}"),
    _pattern("openai_key", "sk-", rf"{_WORD_START}sk-[\w-]{{20,255}}", _match_has_digit),
    _pattern("google_api_key", "aiza", r"AIza[\w-]{35}"),
    _pattern("google_token", "ya29. gocspx-", r"ya29\.[\w-]{20,512}|GOCSPX-[\w-]{20,64}"),
    _pattern("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _pattern("pypi_token", "pypi-", r"pypi-[\w-]{50,512}"),
    _pattern("huggingface_token", "hf_", rf"{_WORD_START}hf_[A-Za-z0-9]{{30,64}}"),
    _pattern("sendgrid_key", "sg.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _pattern("docker_token", "dckr_pat_", r"dckr_pat_[\w-]{20,64}"),
    _pattern("digitalocean_token", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _pattern("vault_token", "hvs. hvb.", rf"{_WORD_START}hv[sb]\.[\w-]{{24,255}}"),
    _pattern("age_key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,64}"),
    _pattern("jwt", "eyj", r"eyJ[\w-]*(?:\.[\w-]*){0,4}", _is_jwt),
    _pattern(
        "private_key",
        "-----begin",
        r"(?P<head>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
        r"(?P<body>(?:[A-Za-z0-9+/=\s\\:,.]|-(?!----))*)(?:-----END [A-Z0-9 ]{0,60}-----)?",
        _match_has_key,
    ),
    _pattern(
        "aws_secret_access_key",
        "akia asia",
        r"A[KS]IA[A-Z0-9]{16}[^A-Za-z0-9/+](?s:.{0,120}?)(?<![A-Za-z0-9/+])"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        _is_aws_secret,
    ),
    _pattern(
        "authorization",
        "authorization",
        r"(?i:authorization)[\"'\\\]]{0,4}[ \t]{0,3}[:=,][ \t]{0,3}[\"'\\]{0,3}"
        r"(?P<scheme>(?i:bearer|basic|token|digest|negotiate|apikey|key|aws4-hmac-sha256)[ \t]{1,3})?"
        r"(?P<secret>[^\s\"'\\]{8,4096}(?:,[ \t]{0,2}[\w-]{1,40}=[^\s\"'\\]{1,512}){0,8})",
        _is_credential,
    ),
    _pattern("bearer_token", "bearer", r"(?i:bearer)\s{1,3}(?P<secret>[\w.~+/-]{16,4096}={0,2})", _match_has_digit),
    _pattern(
        "url_password",
        "://",
        r"://[^\s/@:\"'<>\[]{0,128}:(?P<secret>[^\s/?#\"'<>]{1,256}(?=@)|(?!\d{1,5}[/?#])[^\s@\"'<>]{1,64}(?=@))",
        _is_not_placeholder,
    ),
    _pattern(
        "cookie",
        "cookie",
        r"(?i:cookie)[\"'\\\]]{0,4}\s{0,3}[:=,]\s{0,3}[\"'\\]{0,3}"
        r"(?P<secret>[\w.-]{1,64}=[^\s\"'\\][^\r\n\"'\\]{5,8192})",
    ),
    _pattern(
        "option_value",
        "--",
        rf"(?<!-)--(?:\w|-(?!-)){{0,30}}?{_KEYS}[ \t]{{1,2}}[\"']?(?P<secret>[^\s\"'`<>(){{}}\[\]$]{{6,512}})",
        _is_option_value,
    ),
    _pattern(
        "element_value",
        "</",
        rf"<[\w:.-]{{0,40}}?{_KEYS}>(?P<secret>[^<\s][^<\n]{{3,512}})</",
        _is_not_placeholder,
        lead=None,
    ),
    _pattern(
        "keyed_value",
        "passw passphrase pwd secret token credential _key -key apikey accesskey accountkey authkey privatekey "
        "encryptionkey masterkey sharedkey signingkey",
        _KEYED,
        _is_keyed_secret,
        lead=len("encryption"),
    ),
)


#: Letters and signs by how seldom they are in what programs print.
_RARE_FIRST = "zjqxkvwbygpcfmduhl_:<sr-.ianote"


@cache
def _keyword_pattern() -> re.Pattern[str]:
    return re.compile(build_rare_first_pattern({word for form in SECRET_PATTERNS for word in form.words}))


@cache
def compile_keyword_search() -> Callable[[str], re.Match[str] | None]:
    """Return a search for keywords in a lower-case text."""
    return _keyword_pattern().search


#: Letters beyond ASCII that a pattern takes for one of its own, or that are longer in lower case.
_LOOSE_CASE = "\u0130\u0131\u017f\u212a"
#: From so many characters on, another search is faster.
LONG_TEXT_CHARS = 4_096


def has_keyword(text: str) -> bool:
    """Return True if a long text has a keyword, in any case."""
    search = _compile_long_search()
    if search is None or (not text.isascii() and any(letter in text for letter in _LOOSE_CASE)):
        return compile_keyword_search()(text.lower()) is not None
    return search(text.encode("ascii", "replace").lower()) is not None


@cache
def _compile_long_search() -> Callable[[bytes], object] | None:
    """Return a search for keywords in lower-case bytes, by RE2 where it is installed."""
    try:
        library: Any = import_module("re2")
    except ImportError:
        return None
    words = sorted({re.escape(word) for form in SECRET_PATTERNS for word in form.words})
    return library.compile("|".join(words).encode()).search


def build_rare_first_pattern(words: Iterable[str]) -> str:
    """Return a pattern for any of the words that looks for a seldom letter of each, then at what follows and stands
    before.

    It passes most of a text faster than a pattern that begins with the words' first letters.
    """
    branches: dict[str, list[str]] = {}
    for word in sorted(words):
        at = _find_rare_letter(word)
        before = f"(?<={re.escape(word)})" if at else ""
        branches.setdefault(word[at], []).append(re.escape(word[at + 1 :]) + before)
    return "|".join(f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in branches.items())


def _find_rare_letter(word: str) -> int:
    return min(range(len(word) - 1), key=lambda at: (_RARE_FIRST + word).index(word[at]))


class _Word(NamedTuple):
    """A keyword, where its seldom letter is, and the forms that it is of, by number."""

    text: str
    at: int
    forms: tuple[int, ...]


@cache
def _words_by_letter() -> dict[str, tuple[_Word, ...]]:
    """Return the keywords by the letter that `compile_keyword_search` looks for."""
    forms: dict[str, list[int]] = {}
    for number, form in enumerate(SECRET_PATTERNS):
        for word in form.words:
            forms.setdefault(word, []).append(number)
    words = [_Word(word, _find_rare_letter(word), tuple(numbers)) for word, numbers in forms.items()]
    return {
        word.text[word.at]: tuple(each for each in words if each.text[each.at] == word.text[word.at]) for word in words
    }


#: Of a text with more keywords than one in so many characters, each form is searched for as a whole.
_CHARS_PER_KEYWORD = 64


def find_patterns(text: str) -> list[SecretMatch]:
    """Return everything that looks like a secret, the surer forms first."""
    if text[LONG_TEXT_CHARS:] and not has_keyword(text):
        return []
    lowered = text.lower()
    if compile_keyword_search()(lowered) is None:
        return []
    places = _find_keywords(text, lowered)
    return [
        found
        for number, form in enumerate(SECRET_PATTERNS)
        for found in _find_matches(form, text, lowered, None if places is None else places.get(number, ()))
    ]


def _find_keywords(text: str, lowered: str) -> dict[int, list[int]] | None:
    """Return where the keywords of each form are, by its number, in order; None: there are too many, or lower case does
    not say where.
    """
    if not text.isascii() and any(letter in text for letter in _LOOSE_CASE):
        return None
    search, by_letter, left = _keyword_pattern().search, _words_by_letter(), len(text) // _CHARS_PER_KEYWORD + 16
    places: dict[int, list[int]] = {}
    match = search(lowered)
    while match is not None:
        at = match.start()
        for word in by_letter[lowered[at]]:
            if at >= word.at and lowered.startswith(word.text, at - word.at):
                for number in word.forms:
                    places.setdefault(number, []).append(at - word.at)
        left -= 1
        if not left:
            return None
        match = search(lowered, at + 1)
    return {number: sorted(found) for number, found in places.items()}


def _find_matches(form: SecretPattern, text: str, lowered: str, places: Sequence[int] | None) -> Iterator[SecretMatch]:
    if not places and places is not None and form.lead is not None:
        return
    pattern = re.compile(form.pattern)
    group = "secret" if "secret" in pattern.groupindex else 0
    if form.lead is not None and places is not None:
        matches = _match_near(pattern, text, places, form.lead)
    elif any(word in lowered for word in form.words):
        matches = pattern.finditer(text)
    else:
        return
    for match in matches:
        if form.check is None or form.check(match):
            name = match["key"].lower().replace("-", "_") if "key" in pattern.groupindex else form.name
            yield SecretMatch(*match.span(group), name)


def _match_near(pattern: re.Pattern[str], text: str, places: Sequence[int], lead: int) -> Iterator[re.Match[str]]:
    """Yield what `finditer` would, where every match begins at most `lead` characters before one of the places."""
    at = 0
    for place in places:
        at = max(at, place - lead)
        while at <= place:
            match = pattern.match(text, at)
            if match is None:
                at += 1
            else:
                yield match
                at = match.end()
