"""Paths and hosts in the words of a command. Conservative: a word that may be a path is one. Wide: a word that may be a
path is one.

A rule that refuses looks at all of them. A rule that allows must hold for all of them, so wide is safe there, too.
"""

import re
from posixpath import basename
from unicodedata import normalize
from urllib.parse import unquote

from .command import SimpleCommand, make_word_set
from .programs import TABLES

#: Placeholders for a path and a host that cannot be determined.
UNKNOWN_PATH = "\0"
UNKNOWN_HOST = "."

_MAX_PIECES = 128
#: What stands before a path inside a word: `--file=x`, `HEAD:x`, `@x`, `type=bind,source=x`.
_PATH_BREAKS = re.compile(r"[=:,@]")
#: A short option may have its value right behind it, and other letters before it.
_SHORT_OPTIONS = re.compile(r"-[A-Za-z0-9#?%+]*")

#: The length of the scheme is bounded, or a long word would be read again from each of its letters.
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]{0,30}:[/\\]{2,}|(?i:https?|ftp|wss?):[/\\])([^/?#\s\"'`<>(){}|;,]*)")
_SCP = re.compile(r"(?:[^@/:\s]+@)?(\[[0-9A-Fa-f:.%]+\]|[^@/:\s\[\]]+):(?!//).*", re.DOTALL)
_BARE = re.compile(
    r"(?:[^@/\s]*@)?(\[[0-9A-Fa-f:.%]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+|[^@/:\s\[\]]+)(?::\d*)?(?:[/?#].*)?", re.DOTALL
)
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")
_SMALL_NUMBER = re.compile(r"\d{1,5}", re.ASCII)
_HOST = re.compile(r"[\w.\-:%]+")
#: They expand braces and brackets in an address by themselves.
_EXPANDING_PROGRAMS = frozenset(("curl", "curlie", "aria2c"))
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*://)?[^/?#]*")
_IPV6 = re.compile(r"\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[\w%.\-]*)?\]")
_REGISTRY = re.compile(r"((?:[\w\-]+\.)+[\w\-]+\.?|[\w\-]+(?=:\d)|localhost)(?::\d+)?(?:([/@:]).*)?", re.DOTALL)
#: Behind these a host may stand alone.
_REGISTRY_ALONE = make_word_set("login logout get install mod")
#: Options of curl and wget whose value is not a host, and those without a value that may stand before them.
_CURL_VALUES = "oHdXAubcFTwmeEK"
_CURL_FLAGS = "sSLfkivgnGIjNOJ#46qa0"


def find_paths(command: SimpleCommand) -> tuple[str, ...]:
    """Return every path that a word of the command may name, as it is written."""
    found = dict[str, None]()
    if "/" in command.argv[0]:
        found[command.argv[0]] = None
    for word in (*command.argv[1:], *(value for _, value in command.assignments)):
        found.update(dict.fromkeys(_split_path_pieces(word)))
    found.pop("", None)
    return tuple(found)


def _split_path_pieces(word: str) -> list[str]:
    pieces = [word]
    if word.startswith("-") and not word.startswith("--"):
        pieces = _short_option_values(word)
    elif word.startswith("--"):
        pieces = []
    ends = [found.end() for found in _PATH_BREAKS.finditer(word)]
    if len(ends) > _MAX_PIECES:
        pieces.append(UNKNOWN_PATH)
    for at in ends[:_MAX_PIECES]:
        rest = word[at:]
        pieces += (rest, _PATH_BREAKS.split(rest, maxsplit=1)[0])
    if ends and not word.startswith("-"):
        pieces.append(word[: ends[0] - 1])
    return pieces + [unquote(piece.removeprefix("//")) for piece in pieces if "%" in piece or piece.startswith("//")]


def _short_option_values(word: str) -> list[str]:
    """Return what may be the value of one of the short options in `-abc`."""
    options = _SHORT_OPTIONS.match(word)
    until = options.end() if options else 2
    if until > _MAX_PIECES:
        return [UNKNOWN_PATH]
    return [word[at:] for at in range(2, max(until, 2) + 1)]


def find_hosts(command: SimpleCommand) -> tuple[str, ...]:
    """Return every host that a word of the command may name, in lower case and without port or user."""
    program = basename(command.argv[0]).lower()
    found = dict[str, None]()
    for word in (*_drop_option_values(program, command.argv[1:]), *(value for _, value in command.assignments)):
        if program in _EXPANDING_PROGRAMS and _has_address_expansion(word):
            found[UNKNOWN_HOST] = None
        for host in _find_hosts_in_word(word, program):
            found[_clean_host(host)] = None
    if program in TABLES.registry_programs:
        found.update(dict.fromkeys(map(_clean_host, _find_registry_hosts(command.argv[1:]))))
    found.pop("", None)
    return tuple(found)


def _has_address_expansion(word: str) -> bool:
    """Return whether the program itself makes several hosts of this address."""
    address = _ADDRESS.match("" if word.startswith("-") else word)
    return address is not None and not frozenset("{[").isdisjoint(_IPV6.sub("", address[0]))


def _find_registry_hosts(words: tuple[str, ...]) -> list[str]:
    alone = not _REGISTRY_ALONE.isdisjoint(words)
    values = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    named = [found for value in values if (found := _REGISTRY.fullmatch(value))]
    return [found[1] for found in named if alone or found[2] == "/"]


def _drop_option_values(program: str, words: tuple[str, ...]) -> list[str]:
    """Return the words without the values of options that are known to name no host."""
    if program not in TABLES.non_host_options:
        return list(words)
    kept, skip = list[str](), False
    for word in words:
        if not skip:
            kept.append(word)
        skip = not skip and _takes_non_host_value(program, word)
    return kept


def _takes_non_host_value(program: str, word: str) -> bool:
    if word in TABLES.non_host_options[program]:
        return True
    if not word.startswith("-") or word.startswith("--"):
        return False
    if program == "wget":
        return word in ("-O", "-o", "-P", "-U")
    return word[-1:] in _CURL_VALUES and all(letter in _CURL_FLAGS for letter in word[1:-1]) and len(word) > 1


def _find_hosts_in_word(word: str, program: str) -> list[str]:
    hosts = [part for found in _URL.finditer(word) for part in _find_authority_hosts(found[1])]
    if hosts:
        return hosts
    value = word
    if word.startswith("-"):
        value = word.partition("=")[2] if word.startswith("--") else _short_option_value(word, program)
    if (named := _SCP.fullmatch(value)) and ("@" in value or program in TABLES.network_programs or program == "git"):
        hosts.append(named[1])
    if program in TABLES.network_programs:
        hosts += [named[1] for part in _split_bare_hosts(value) if (named := _BARE.fullmatch(part))]
    return hosts


def _short_option_value(word: str, program: str) -> str:
    """Return what may be the value behind a short option: no small number, and no letters that are options."""
    if (
        program == "curl"
        and all(letter in _CURL_FLAGS for letter in word[1:-1])
        and word[-1] in _CURL_VALUES + _CURL_FLAGS
    ):
        return ""
    return "" if _SMALL_NUMBER.fullmatch(word[2:]) else word[2:]


def _split_bare_hosts(value: str) -> list[str]:
    """Return the word, and what stands in `TCP:host:80,option`, `@host` or `host:80:other:80`."""
    parts = [value, value.lstrip("@")]
    if "[" not in value:
        parts += re.split(r"[:,]", value)[:_MAX_PIECES]
    return [part for part in parts if part]


def _find_authority_hosts(text: str) -> list[str]:
    """Find the hosts of an authority. Programs disagree about the user part and backslashes: all readings count."""
    readings = list[str]()
    for part in dict.fromkeys((text, *text.split("\\"))):
        place = part.rpartition("@")[2]
        bracketed = re.match(r"\[([^\]]*)\]", place)
        readings.append(bracketed[1] if bracketed else place.partition(":")[0])
    return readings


def _clean_host(host: str) -> str:
    """Return the host as a resolver reads it: other scripts have other dots, and letters that stand for ours."""
    host = normalize("NFKC", unquote(host)).translate(_DOTS).strip("[]").lower().rstrip(".")
    return host if _HOST.fullmatch(host) else ""
