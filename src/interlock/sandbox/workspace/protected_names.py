"""Protected names: secrets are neither read nor written by tools; files that other programs obey are not written.

A name is compared as the most forgiving file system would: whatever its case, its Unicode form, characters that are
ignored or the dots and spaces at its end. So an alias is refused also where it would be another file, and a name also
before the file exists. Paths are real ones, from the root of the workspace and with no link in them.

The tables are moderate on purpose. A secret is what holds credentials by convention. Guarded is what makes another
program run something when a person only opens the project or enters its folder, and the settings of agents. Build
files, workflows and scripts are a developer's daily work: what runs them is a command, and that is evaluated.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Literal, TypeAlias
from unicodedata import category, normalize

_Paths: TypeAlias = frozenset[tuple[str, ...]]
#: `hold`: a command cannot change it. `notify`: it may, and people are notified when it appears. Empty: neither.
GuardAction: TypeAlias = Literal["", "hold", "notify"]
EntryKind: TypeAlias = Literal["folder", "link", "other"]


def _paths(text: str) -> _Paths:
    return frozenset(tuple(path.split("/")) for path in text.split())


#: Folders with everything in them, wherever they are.
SECRET_FOLDERS = _paths(
    ".ssh .aws .azure .oci .gnupg .kube .password-store .mozilla .chef "
    ".config/gcloud .config/gh .config/glab-cli .config/op .config/doctl .config/rclone .config/sops "
    ".config/google-chrome .config/chromium .config/helm .local/share/keyrings library/keychains"
)
#: Files by their names, wherever they are.
SECRET_FILES = _paths(
    ".env .netrc _netrc .pypirc .git-credentials .npmrc .pgpass .my.cnf .mylogin.cnf .boto .s3cfg .dockercfg .htpasswd "
    ".vault-token .terraformrc .databrickscfg .cargo/credentials .cargo/credentials.toml .gem/credentials "
    ".docker/config.json .config/git/credentials .config/hub .config/containers/auth.json .composer/auth.json "
    ".m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .terraform.d/credentials.tfrc.json "
    ".bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history "
    "id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk"
)
#: Patterns for the names of files.
SECRET_PATTERNS = (".env.*", "*.p12", "*.pfx", "*.keystore", "*.jks", "*.kdbx", "*.ppk", "*.keychain", "*.keychain-db")
#: What shows how a secret file looks, and holds none.
EXAMPLE_PATTERNS = ("*.example", "*.sample", "*.template", "*.dist", "*.tpl")

#: Whole folders. `.git` may be a file as well.
GUARDED_FOLDERS = _paths(
    ".git git~1 .hg .svn .jj .interlock .agent .agents .claude .codex .gemini .cursor .windsurf .continue .roo .cline "
    ".kiro .qwen .opencode .amazonq .augment .vscode .idea .fleet .zed .vs .devcontainer .husky .githooks "
    ".config/fish .config/mise .config/autostart .config/systemd library/launchagents"
)
#: Files. `HEAD` makes a bare repository of its folder, and git obeys the settings in there.
GUARDED_FILES = _paths(
    ".mcp.json .envrc .mise.toml mise.toml .autoenv .aider.conf.yml .dir-locals.el .vimrc .nvimrc .exrc .nvim.lua "
    ".gdbinit .lldbinit .rprofile .gitconfig .config/git/config head "
    ".profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .inputrc"
)
GUARDED_PATTERNS = ("*.code-workspace",)
#: What git obeys in a repository, or what leads it to another one. Modules and worktrees have repositories of their own
#: inside of `.git`, in folders of any name.
_GIT_ACTIVE_PATHS = _paths("hooks config config.worktree commondir info/attributes")
_GIT_FOLDERS = frozenset({"hooks"})
#: `.git` itself. A file leads git to settings elsewhere. So does a link, but to hold it is to hold what it leads to,
#: which may be a repository that is worked in.
_REPOSITORY_GUARD: dict[EntryKind, GuardAction] = {"folder": "", "link": "notify", "other": "hold"}
#: Below these a name is that of a branch or a tag.
_GIT_REFS = frozenset({"heads", "tags", "remotes", "notes"})

#: Not of the category Cf, and ignored all the same where a file system compares without regard to case.
_IGNORED = frozenset(
    chain(
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xE0000, 0xE1000),
    )
)
_SEPARATOR = re.compile(r"[/\\]")
#: What the kernel appends to the name of an open file that is gone.
_DELETED = " (deleted)"
_CACHED_PATHS = 1_024
_CACHED_NAMES = 16_384


def is_secret(relative_path: str) -> bool:
    """Return True if the path holds credentials, by its name."""
    return _is_notable(relative_path) and _is_secret(relative_path)


def is_guarded(relative_path: str) -> bool:
    """Return True if other programs, or this one, obey what is written here."""
    return _is_notable(relative_path) and _is_guarded(relative_path)


def find_guard(relative_path: str, kind: EntryKind) -> GuardAction:
    """Return how something that exists is guarded, so that no command makes other programs obey it.

    What git itself writes in its folder stays writable. A `HEAD` there makes a repository of its folder, so a new one
    is reported; and so is what a repository would obey where the name may also be that of a branch.
    """
    if not _is_notable(relative_path):
        return ""
    names = _fold_path(relative_path)
    if names[-1] == ".git":
        return _REPOSITORY_GUARD[kind]
    if ".git" not in names:
        return "hold" if _is_guarded(relative_path) else ""
    return _find_git_guard(names[len(names) - names[::-1].index(".git") :], kind)


def _find_git_guard(inside: Sequence[str], kind: EntryKind) -> GuardAction:
    if kind == "folder" and inside[-1] not in _GIT_FOLDERS:
        return ""
    may_be_branch = any(pair[0] == "refs" and pair[1] in _GIT_REFS for pair in pairwise(inside[:-1]))
    if _ends_with(inside, _GIT_ACTIVE_PATHS):
        return "notify" if may_be_branch else "hold"
    if inside[-1] != "head" or inside[-2:-1] == ("logs",) or (may_be_branch and inside[-3:-2] == ("remotes",)):
        return ""
    return "notify"


def _is_notable(relative_path: str) -> bool:
    """Return True if any table may have a name of the path. Cheap; most paths have none."""
    return any(map(_is_notable_name, relative_path.split("/")))


@lru_cache(_CACHED_NAMES)
def _is_notable_name(name: str) -> bool:
    if "\\" in name or name.endswith(_DELETED):
        return True
    folded = _fold_name(name)
    return folded in _table_names() or _matches(folded, (*SECRET_PATTERNS, *GUARDED_PATTERNS))


@cache
def _table_names() -> frozenset[str]:
    tables = (SECRET_FOLDERS, SECRET_FILES, GUARDED_FOLDERS, GUARDED_FILES)
    return frozenset(name for table in tables for path in table for name in path)


@lru_cache(_CACHED_PATHS)
def _is_secret(relative_path: str) -> bool:
    names = _fold_path(relative_path)
    if _contains_folder(names, SECRET_FOLDERS) or _ends_with(names, SECRET_FILES):
        return True
    return _matches(names[-1], SECRET_PATTERNS) and not _matches(names[-1], EXAMPLE_PATTERNS)


@lru_cache(_CACHED_PATHS)
def _is_guarded(relative_path: str) -> bool:
    names = _fold_path(relative_path)
    return (
        _contains_folder(names, GUARDED_FOLDERS)
        or _ends_with(names, GUARDED_FILES)
        or _matches(names[-1], GUARDED_PATTERNS)
    )


def _fold_path(relative_path: str) -> tuple[str, ...]:
    return tuple(map(_fold_name, _SEPARATOR.split(relative_path.removesuffix(_DELETED).rstrip("/"))))


def _fold_name(name: str) -> str:
    if not name.isascii():
        name = normalize("NFKC", _drop_ignorable(normalize("NFKC", name)).casefold())
    # A stream of a file is the file: `.env:x`, `.git::$INDEX_ALLOCATION`.
    return name.partition(":")[0].rstrip(" .").casefold()


def _drop_ignorable(name: str) -> str:
    return "".join(letter for letter in name if ord(letter) not in _IGNORED and category(letter) != "Cf")


def _contains_folder(names: Sequence[str], folders: _Paths) -> bool:
    return any(
        tuple(names[start : start + length]) in folders for length in _lengths(folders) for start in range(len(names))
    )


def _ends_with(names: Sequence[str], files: _Paths) -> bool:
    return any(tuple(names[-length:]) in files for length in _lengths(files))


@cache
def _lengths(paths: _Paths) -> tuple[int, ...]:
    return tuple(sorted({len(path) for path in paths}))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
