"""Which names are secrets, which are guarded, and that no spelling of them passes."""

from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.sandbox.workspace.protected_names import EntryKind, find_guard, is_guarded, is_secret
from tests.each import each

SECRETS = [
    ".env", ".env.local", ".env.production", ".env.example.local", "app/.env", ".netrc", "_netrc", ".pypirc", ".npmrc",
    ".git-credentials", ".ssh", ".ssh/config", "home/.ssh/keys/mine", ".aws/credentials", ".gnupg/x", ".kube/config",
    ".docker/config.json", ".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".cargo/credentials.toml",
    "id_rsa", "keys/id_ed25519", "id_ecdsa_sk", "server.p12", "a/b/store.jks", "release.keystore", "x.pfx", "my.kdbx",
    ".pgpass", ".vault-token", ".local/share/keyrings/login.keyring", ".bash_history",
]  # fmt: skip
OPEN = [
    ".", "README.md", ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.local.example", "env",
    ".environment", ".envrc", ".env/bin/activate", "id_rsa.pub", "id_rsa_test.py", "config.json", "docker/config.json",
    ".config/app.toml", "gcloud/x", "ssh/config", "keystore.py", "p12.md", ".gitignore", ".git/config", "tests/x.pem",
    "src/env.py", ".docker/Dockerfile", "credentials.toml", "aws/credentials.py",
]  # fmt: skip
GUARDED = [
    ".git", ".git/config", ".git/hooks/pre-commit", "vendor/x/.git", ".hg/hgrc", ".interlock/policy.yaml", ".agent/x",
    ".agents/x", ".claude/settings.json", ".codex/config.toml", ".gemini/x", ".cursor/rules/x", ".mcp.json",
    ".vscode/tasks.json", ".idea/x.xml", ".husky/pre-commit", ".envrc", ".devcontainer/devcontainer.json", ".bashrc",
    "x/.mcp.json", "all.code-workspace", "bare/HEAD", "git~1/config",
]  # fmt: skip
WRITABLE = [
    ".", ".gitignore", ".gitattributes", ".gitkeep", ".github/workflows/ci.yml", "Makefile", "package.json", "setup.py",
    "CLAUDE.md", "AGENTS.md", "git/x.py", "claude/x.py", "vscode.md", "mcp.json", ".dockerignore", ".editorconfig",
    ".pre-commit-config.yaml", "conftest.py", "HEAD.md", "headers.h", "husky/x",
]  # fmt: skip

pytestmark = pytest.mark.requirement("R229")


@each("path", SECRETS)
def test_what_holds_credentials_by_convention_is_a_secret(path: str) -> None:
    assert is_secret(path)


@each("path", OPEN)
def test_what_a_developer_works_with_is_no_secret(path: str) -> None:
    assert not is_secret(path)


@each("path", GUARDED)
def test_what_other_programs_obey_is_guarded(path: str) -> None:
    assert is_guarded(path)


@each("path", WRITABLE)
def test_what_a_developer_writes_is_not_guarded(path: str) -> None:
    assert not is_guarded(path)


@each(
    "alias",
    [
        ".GIT/x",
        ".gIt/x",
        ".git./x",
        ".git /x",
        ".git . . /x",
        ".git::$INDEX_ALLOCATION/x",
        ".g\u200cit/x",
        "\ufeff.git/x",
        ".git\u2069/x",
        ".gi\ufe0ft/x",
        ".g\u034fit/x",
        ".git\U000e0020/x",
        ".\uff27\uff29\uff34/x",
        "\uff0egit/x",
        ".g\u2170t/x",
        ".git\\x",
        ".git\\/x",
    ],
)
def test_an_alias_on_some_file_system_counts_as_the_name(alias: str) -> None:
    assert is_guarded(alias)


@pytest.mark.parametrize(
    "alias", [".\u017fsh/x", ".\u017f\u017fh/x", ".ENV", ".env (deleted)", ".env. ", ".\u212aube/config"]
)
def test_letters_that_fold_to_others_count_as_those(alias: str) -> None:
    assert is_secret(alias)


IGNORED = st.sampled_from("\u200b\u200c\u200d\u200e\u202e\u2060\ufeff\u00ad\ufe0f\u034f\u180b\U000e0041")


@settings(deadline=None)
@given(st.sampled_from([*SECRETS, *GUARDED]), st.data())
def test_no_spelling_of_a_name_passes(path: str, data: st.DataObject) -> None:
    letters = [
        data.draw(IGNORED, label="ignored") * data.draw(st.integers(0, 1)) + data.draw(st.sampled_from(_forms(letter)))
        for letter in path
    ]
    spelled = "".join(letters) + data.draw(st.sampled_from(["", ".", " ", " .", "/"]))
    assert (is_secret(spelled), is_guarded(spelled)) == (is_secret(path), is_guarded(path))


@settings(deadline=None)
@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert is_secret(text) in (True, False)
    assert is_guarded(text) in (True, False)


def _forms(letter: str) -> list[str]:
    """The letter, in either case, and what a compatibility form makes of it."""
    wide = chr(ord(letter) + 0xFEE0) if letter.isalnum() else letter
    assert normalize("NFKC", wide) == letter
    return [letter, letter.upper(), wide]


@pytest.mark.requirement("P13")
@each(
    "path",
    [
        ".git/hooks/",
        ".git/config",
        ".GIT/Hooks/",
        "sub/.git/config",
        ".git/modules/lib/hooks/",
        ".git/modules/lib/config",
        ".git/modules/libs/tool/config",
        ".git/modules/libs/tool/modules/inner/hooks/",
        ".git/modules/logs/config",
        ".git/config.worktree",
        ".git/commondir",
        ".git/config@",
        ".git/hooks@",
        ".git/info/attributes",
        ".git/worktrees/one/config.worktree",
        ".git/x/y/config",
        ".git/objects/x/config",
        ".git/objects/.git",
        "a/.git/b/.git/config",
        ".git",
        "module/.git",
        ".GIT",
        ".vscode/",
        ".mcp.json",
        "bare/HEAD",
    ],
)
def test_a_command_may_not_change_what_git_and_other_programs_obey(path: str) -> None:
    assert _guard(path) == "hold"


@each(
    "path",
    [
        ".git/",
        ".git/index",
        ".git/objects/",
        ".git/objects/pack/pack-1.idx",
        ".git/refs/heads/main",
        ".git/refs/remotes/origin/HEAD",
        ".git/logs/HEAD",
        ".git/logs/refs/remotes/origin/HEAD",
        ".git/ORIG_HEAD",
        "src/a.py",
        ".git/modules/",
        ".git/modules/lib/",
        ".git/modules/config/",
        "hooks/",
        "config",
        "sub/.git/",
    ],
)
def test_a_command_may_change_what_git_itself_changes(path: str) -> None:
    assert _guard(path) == ""


@each(
    "path",
    [
        ".git/HEAD",
        ".git/modules/lib/HEAD",
        ".git/x/HEAD",
        ".git/objects/x/HEAD",
        ".git/refs/heads/config",
        ".git/refs/heads/hooks/",
        ".git/logs/refs/heads/config",
        ".git/refs/heads/x/HEAD",
        ".git@",
        "a/.git/b/.git@",
    ],
)
def test_what_may_make_a_repository_of_a_folder_is_told_and_not_held(path: str) -> None:
    assert _guard(path) == "notify"


@given(st.text() | st.lists(st.sampled_from([".git", "refs", "heads", "HEAD", "config", "hooks", "logs", "x", ""])))
def test_every_path_has_a_guard(path: str | list[str]) -> None:
    text = path if isinstance(path, str) else "/".join(path)
    kinds: tuple[EntryKind, ...] = ("folder", "link", "other")
    assert {find_guard(text, kind) for kind in kinds} <= {"", "hold", "notify"}


def _guard(path: str) -> str:
    """A folder is written with a slash at its end, a link with an at sign."""
    kind: EntryKind = "folder" if path.endswith("/") else "link" if path.endswith("@") else "other"
    return find_guard(path.rstrip("/@"), kind)
