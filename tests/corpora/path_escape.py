"""Paths that must not lead out of a workspace, and harmless ones: `path_escape_corpus.jsonl`, and more of its kinds.

`{WS}` and `{OUT}` are the workspace and a folder beside it. A set-up step is a word and its operands: `file`, `dir`,
`symlink` (target, name), `hardlink` (target, name), `fifo`, `socket`; `file_out` makes a file outside.
"""

import json
import os
import socket
from pathlib import Path
from typing import NamedTuple

CANARY = "TOPSECRET"


class Case(NamedTuple):
    id: str
    op: str
    path: str
    allowed: bool
    category: str
    setup: tuple[tuple[str, ...], ...]


def load() -> list[Case]:
    text = Path(__file__).with_name("path_escape_corpus.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.split("\n") if line]
    return [
        Case(
            line["id"],
            line["op"],
            line["path"],
            line["expected"] == "allow",
            line["category"],
            tuple(tuple(step) for step in line["setup"]),
        )
        for line in lines
    ]


class Scene:
    """A workspace and what lies around it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace, self.outside = folder, folder / "ws", folder / "out"
        for name in ("ws", "out", "ws-evil"):
            (folder / name).mkdir()
        for place in (folder, self.outside, folder / "ws-evil"):
            (place / "secret.txt").write_text(CANARY)

    def set_up(self, case: Case) -> str:
        """Make what the case needs, and give its path."""
        for word, *operands in case.setup:
            self._step(word, [self._named(operand) for operand in operands])
        return self._named(case.path)

    def around(self) -> dict[str, str]:
        """Everything outside the workspace, with its content."""
        found = (path for path in self.folder.rglob("*") if not path.is_relative_to(self.workspace))
        return {str(path): path.read_text() if path.is_file() else "folder" for path in found}

    def _named(self, text: str) -> str:
        return text.replace("{WS}", str(self.workspace)).replace("{OUT}", str(self.outside))

    def _step(self, word: str, operands: list[str]) -> None:
        place = (self.outside if word == "file_out" else self.workspace) / operands[-1 if "link" in word else 0]
        place.parent.mkdir(parents=True, exist_ok=True)
        match word:
            case "file" | "file_out":
                place.write_text(operands[1])
            case "dir":
                place.mkdir(parents=True, exist_ok=True)
            case "symlink":
                place.symlink_to(operands[0])
            case "hardlink":
                place.hardlink_to(operands[0])
            case "fifo":
                os.mkfifo(place)
            case "socket":
                _bind(place)
            case _:
                raise AssertionError(f"no such step: {word}")


def _bind(place: Path) -> None:
    """By a short name: the address of a socket holds no long path."""
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{folder}/{place.name}")
    finally:
        os.close(folder)


_OK = ("file", "ok.txt", "x")
_GIT = ("dir", ".git/hooks")


def _cases(op: str, category: str, allowed: bool, *paths: str | tuple[str, tuple[str, ...]]) -> list[Case]:
    """A path, or a path and one step of its set-up. Every scene has `ok.txt`, `a/b/f.txt` and `.git/hooks`."""
    common = (_OK, ("file", "a/b/f.txt", "x"), _GIT)
    pairs = [(path, ()) if isinstance(path, str) else (path[0], (path[1],)) for path in paths]
    return [
        Case(f"{category}-{op}-{number}", op, path, allowed, category, (*common, *setup))
        for number, (path, setup) in enumerate(pairs)
    ]


def _link(target: str, name: str) -> tuple[str, ...]:
    return ("symlink", target, name)


def _file(name: str) -> tuple[str, ...]:
    return ("file", name, CANARY)


MORE = [
    *_cases(
        "read", "dotdot", False, "..", "../", "./../secret.txt", "a/./../../secret.txt", "a/b/../../../out/secret.txt"
    ),
    *_cases("read", "dotdot", False, "missing/../../secret.txt", "../ws-evil/secret.txt", "ok.txt/../../secret.txt"),
    *_cases(
        "read",
        "absolute",
        False,
        "/",
        "/etc/hostname",
        "/proc/self/environ",
        "/dev/zero",
        "/dev/stdin",
        "/proc/1/root/etc",
    ),
    *_cases(
        "read", "absolute", False, "{WS}-evil/secret.txt", "/{OUT}/secret.txt", "{WS}/..", "{WS}/a/../../secret.txt"
    ),
    *_cases("read", "absolute", False, "{OUT}/../ws/ok.txt", "/proc/self/cwd/ok.txt", "{WS}secret.txt"),
    *_cases(
        "read",
        "spelling",
        False,
        "~",
        "~/ok.txt",
        "~root/.profile",
        "FILE:///etc/passwd",
        "file:ok.txt",
        "https://x/ok.txt",
    ),
    *_cases(
        "read",
        "spelling",
        False,
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "..\\secret.txt",
        "..;/secret.txt",
        "a/..\\../secret.txt",
    ),
    *_cases(
        "read",
        "unicode",
        False,
        "\uff0e\uff0e/secret.txt",
        "..\uff0fsecret.txt",
        "\u2024\u2024/secret.txt",
        ".\u200b./secret.txt",
    ),
    *_cases(
        "read", "malformed", False, "\0", "ok.txt\0", ".\0./secret.txt", "\ud800", "ok.txt\udc80", "x" * 256, "é" * 130
    ),
    *_cases("read", "malformed", False, "/" * 5_000 + "etc/passwd", "../" * 2_000, "a/" * 300 + "f", "x" * 1_000_000),
    *_cases(
        "read",
        "symlink",
        False,
        ("l", _link("../out/secret.txt", "l")),
        ("l/out/secret.txt", _link("..", "l")),
        ("l/etc/hostname", _link("/", "l")),
        ("a/b/l/../out/secret.txt", _link("../../..", "a/b/l")),
        ("here/../secret.txt", _link(".", "here")),
        ("deep/../../../secret.txt", _link("a/b", "deep")),
        ("loop", _link("loop", "loop")),
        ("l/secret.txt", _link("a/../../out", "l")),
        ("l", _link("/dev/zero", "l")),
        ("l", _link("/proc/self/environ", "l")),
        ("l/0", _link("/proc/self/fd", "l")),
        ("l", _link("{WS}/../secret.txt", "l")),
        ("a/l", _link("../../secret.txt", "a/l")),
        ("a/b/../l", _link("../../secret.txt", "a/l")),
        ("l\n", _link("../secret.txt", "l\n")),
    ),
    *_cases(
        "write",
        "symlink",
        False,
        ("d/new.txt", _link("../out", "d")),
        ("d/x/y/new.txt", _link("../out", "d")),
        ("dangling", _link("../out/created.txt", "dangling")),
        ("gone/new.txt", _link("{OUT}/made", "gone")),
        ("gone/new.txt", _link("../out/made", "gone")),
        ("alias", _link("ok.txt", "alias")),
        ("alias", _link("not/yet.txt", "alias")),
        ("loop/new.txt", _link("loop", "loop")),
        ("d/../../../secret.txt", _link("a/b", "d")),
        ("l", _link("/dev/null", "l")),
    ),
    *_cases(
        "write",
        "dotdot",
        False,
        "a/../../out/x",
        "new/../../out/x",
        "new/../x",
        "{WS}/../out/x",
        "..",
        "../x",
        "{OUT}/x",
    ),
    *_cases(
        "write",
        "no file",
        False,
        "",
        ".",
        "a",
        "a/",
        "new/",
        "a/..",
        "ok.txt/x",
        ("pipe", ("fifo", "pipe")),
        ("s", ("socket", "s")),
    ),
    *_cases("read", "special", False, "a", ".", ("p/pipe", ("fifo", "p/pipe")), ("pipe/", ("fifo", "pipe"))),
    *_cases(
        "write",
        "guarded",
        False,
        *(
            ".git",
            ".git/config",
            "vendor/lib/.git/config",
            ".Git/config",
            ".git /hooks/x",
            ".git./hooks/x",
            ".git.. /x",
        ),
        *(
            ".git::$INDEX_ALLOCATION/x",
            "git~1/config",
            ".g\u00adit/x",
            ".gi\ufe00t/x",
            ".\uff47\uff49\uff54/x",
            "\u2024git/x",
        ),
        *("a/../.git/config", "./.git/config", "{WS}/.git/config", ".git\\config", ".hg/hgrc", "sub/HEAD"),
        *(
            ".interlock/policy.yaml",
            ".INTERLOCK/policy.yaml",
            ".claude/settings.json",
            ".codex/config.toml",
            ".cursor/mcp.json",
        ),
        *(
            ".mcp.json",
            ".MCP.JSON",
            ".vscode/tasks.json",
            ".idea/workspace.xml",
            ".envrc",
            "sub/.envrc",
            ".husky/pre-commit",
        ),
        ("l/hooks/new/x", _link(".git", "l")),
        ("here/.git/config", _link(".", "here")),
        ("l/x", _link("a/../.git/hooks", "l")),
        ("l/x", _link(".vscode", "l")),
    ),
    *_cases(
        "read",
        "secret",
        False,
        *(
            (name, _file(name))
            for name in (".env", "sub/.env.local", ".env.production", "x/.ENV", ".env ", ".\u200benv")
        ),
        *(
            (name, _file(name))
            for name in (".ssh/config", "keys/id_rsa", "id_ed25519", "keys/server.P12", ".aws/credentials")
        ),
        *(
            (name, _file(name))
            for name in (".netrc", ".npmrc", ".docker/config.json", ".kube/config", ".config/gcloud/x.db")
        ),
        ("plain", _link(".env", "plain")),
        (".env", _link("ok.txt", ".env")),
        ("keys/known_hosts", _link(".ssh", "keys")),
    ),
    *_cases(
        "write",
        "secret",
        False,
        ".env",
        ".env.production",
        ".ssh/authorized_keys",
        ".SSH/rc",
        "a/.netrc",
        ".aws/new/credentials",
    ),
    *_cases(
        "list",
        "folder",
        False,
        "..",
        "/",
        "{OUT}",
        "ok.txt",
        "missing",
        ".ssh",
        "~",
        ("l", _link("..", "l")),
        ("l/a", _link("{OUT}", "l")),
    ),
    *_cases("list", "folder", False, ("k", _link(".ssh", "k")), ("pipe", ("fifo", "pipe"))),
    *_cases("list", "benign", True, ".", "a", "a/", "./a/b", "{WS}", "{WS}/a/b/..", ".git", ("l", _link("a/b", "l"))),
    *_cases(
        "read",
        "benign",
        True,
        "./ok.txt",
        "a/../ok.txt",
        "a//b/f.txt",
        "a/./b/f.txt",
        "{WS}//ok.txt",
        "{WS}/./ok.txt",
        "/{WS}/ok.txt",
    ),
    *_cases(
        "read",
        "benign",
        True,
        *(
            (name, ("file", name, "x"))
            for name in ("...", "..x", "a b.txt", "naïve.txt", "-", "./~x", "..\\x", "%2e%2e/x", "x:y")
        ),
        *(
            (name, ("file", name, "x"))
            for name in (".env.example", ".gitignore", "id_rsa.pub", ".git/description", ".envrc")
        ),
        ("l", _link("a/b/f.txt", "l")),
        ("a/l", _link("../ok.txt", "a/l")),
        ("a/b/l/ok.txt", _link("../..", "a/b/l")),
    ),
    *_cases(
        "write",
        "benign",
        True,
        *(
            "ok.txt",
            "new.txt",
            "a/b/c/d/new.txt",
            "{WS}/new.txt",
            "./~x",
            ".gitignore",
            ".github/workflows/ci.yml",
            ".env.example",
        ),
        *("env.py", "docker/config.json", "src/git/x.py", "a/../new.txt", "ssh/config", "id_rsa.pub", "headers.py"),
        ("l/new.txt", _link("a/b", "l")),
        ("hard", ("hardlink", "{OUT}/secret.txt", "hard")),
    ),
]
