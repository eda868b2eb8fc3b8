"""For every file: it is refused in words or gives a policy, and that is never milder than the original."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.policy.files.policy_files import load_policy
from interlock.policy.importers.claude import import_claude, narrow_glob, widen_glob
from interlock.policy.importers.codex import import_codex
from interlock.policy.importers.gemini import import_gemini
from interlock.policy.importers.policy_draft import ImportResult
from interlock.policy.patterns import PatternSet, fold_text, path_glob_to_regexes
from tests.policy.import_support import policy, verdict

IMPORTERS = [import_claude, import_codex, import_gemini]

#: Fragments that the importers treat in ways of their own.
SIGNS = [
    "*",
    "**",
    "?",
    "[",
    "]",
    "(",
    ")",
    ":",
    ":*",
    " *",
    "/",
    "//",
    "./",
    "~",
    "..",
    "\\",
    "!",
    "#",
    "'",
    '"',
    "$",
    "\0",
    "\n",
]
NAMES = [
    "git",
    "push",
    "rm",
    "-rf",
    "A=1",
    "/bin/ls",
    "a",
    "domain:",
    "mcp__",
    "mcp_",
    "__",
    "_",
    "",
    " ",
    "\u202e",
    "é",
    "\ud800",
]
texts = st.lists(st.sampled_from(SIGNS + NAMES), max_size=8).map("".join)
TOOLS = ["Bash", "Read", "Edit", "Write", "WebFetch", "mcp__a_b__c", "mcp__*", "Task", "Skill", "x*", "Odd.x"]


def entry(tool: str, specifier: str | None) -> str:
    return tool if specifier is None else f"{tool}({specifier})"


entries = st.builds(entry, st.sampled_from(TOOLS) | texts, st.none() | texts)
gemini_fields = st.fixed_dictionaries(
    {"decision": st.sampled_from(["allow", "ask_user", "deny"]), "priority": st.integers(0, 999)},
    optional={
        "toolName": st.sampled_from(["run_shell_command", "*", "glob"]) | texts | st.lists(texts, max_size=3),
        "mcpName": texts,
        "subagent": texts,
        "argsPattern": texts,
        "commandPrefix": texts | st.lists(texts, max_size=3),
        "commandRegex": texts,
        "modes": st.lists(st.sampled_from(["default", "yolo", "plan"]), max_size=2),
        "interactive": st.booleans(),
    },
)


def imported_or_refused(importer: Callable[[str], ImportResult], text: str) -> ImportResult | None:
    try:
        return importer(text)
    except ConfigurationError:
        return None


def check_document(imported: ImportResult | None) -> None:
    """It can be written down, and the engine takes all of its rules."""
    if imported is not None:
        json.dumps(imported.document)
        "".join(imported.notes).encode()
        assert imported.document.keys() == {"version", "default", "rules"}
        assert all(rule["tools"] and rule["reason"] for rule in imported.document["rules"])
        policy(imported)


@pytest.mark.parametrize("importer", IMPORTERS)
@given(text=st.text() | texts)
@example(text="prefix_rule(")
@example(text="[[rule]]")
@example(text="{")
def test_any_text_is_imported_or_refused_in_words(importer: Callable[[str], ImportResult], text: str) -> None:
    check_document(imported_or_refused(importer, text))


@given(
    st.dictionaries(
        st.sampled_from(["allow", "ask", "deny", "defaultMode", "x"]), st.lists(entries) | texts | st.none()
    )
)
def test_any_permission_lists_are_imported_or_refused_in_words(permissions: dict[str, Any]) -> None:
    check_document(imported_or_refused(import_claude, json.dumps({"permissions": permissions}, ensure_ascii=False)))


@given(
    st.lists(st.lists(texts | st.lists(texts, max_size=3), max_size=4)),
    st.sampled_from(["allow", "prompt", "forbidden"]),
)
def test_any_patterns_are_imported_or_refused_in_words(patterns: list[list[Any]], decision: str) -> None:
    calls = [f"prefix_rule({pattern!r}, {decision!r}, [{pattern[:1]!r}])" for pattern in patterns]

    check_document(imported_or_refused(import_codex, "\n".join(calls)))


@given(st.lists(gemini_fields, max_size=4))
def test_any_gemini_rules_are_imported_or_refused_in_words(fields: list[dict[str, Any]]) -> None:
    # TOML writes texts, lists, numbers and booleans as JSON does.
    tables = [
        "\n".join(["[[rule]]", *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in rule.items())])
        for rule in fields
    ]

    check_document(imported_or_refused(import_gemini, "\n".join(tables)))


@pytest.mark.parametrize(
    ("importer", "name"),
    [(import_claude, "settings.json"), (import_codex, "default.rules"), (import_gemini, "policy.toml")],
)
def test_an_imported_policy_loads_with_its_examples(
    tmp_path: Path, importer: Callable[[str], ImportResult], name: str
) -> None:
    imported = importer((Path(__file__).parent / "imports" / name).read_text())
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(imported.document))

    assert {rule.id for rule in load_policy(file).rules} == {rule["id"] for rule in imported.document["rules"]}


WORDS = st.sampled_from(["git", "push", "pull", "-f", "main", "gitx"])


def claude_matches(specifier: str, command: str) -> bool:
    """As Claude Code documents it: `*` is anything, and at the end behind a space or colon a word may end there."""
    if specifier.endswith(":*"):
        specifier = specifier[:-2] + " *"
    if specifier.endswith(" *") and specifier.count("*") == 1:
        return command == specifier[:-2] or command.startswith(specifier[:-1])
    return re.fullmatch(".*".join(map(re.escape, specifier.split("*"))), command, re.DOTALL) is not None


def joined(parts: list[str], end: str) -> str:
    return " ".join(parts) + end


specifiers = st.builds(
    joined,
    st.lists(st.sampled_from(["git", "push", "pull", "-f", "main", "*", "gi*", "*n"]), min_size=1, max_size=4),
    st.sampled_from(["", ":*", " *", "*"]),
)


@given(specifiers, st.sampled_from(["", "x", "push", "push -f main"]))
def test_a_command_that_claude_code_would_refuse_is_refused(specifier: str, anything: str) -> None:
    command = specifier.replace(":*", " *").replace("*", anything).strip()
    assume(command and claude_matches(specifier, command))

    imported = import_claude(json.dumps({"permissions": {"deny": [f"Bash({specifier})"]}}))

    assert verdict(imported, "bash", command=command) == "deny"


@given(specifiers, st.lists(WORDS, min_size=1, max_size=5))
def test_a_command_that_is_allowed_is_one_that_claude_code_would_allow(specifier: str, words: list[str]) -> None:
    command = shlex.join(words)
    imported = import_claude(json.dumps({"permissions": {"allow": [f"Bash({specifier})"]}}))

    if verdict(imported, "bash", command=command) == "allow":
        assert claude_matches(specifier, command)


def ignored(pattern: str, path: str) -> bool:
    """As in a `.gitignore` at the project's folder: what matches a folder matches all that is in it."""
    is_folder, body = pattern.endswith("/"), pattern.removeprefix("./").strip("/")
    anchored = pattern.startswith("/") or "/" in body
    expression = "" if anchored else "(?:.*/)?"
    for number, part in enumerate(parts := body.split("/")):
        is_last = number == len(parts) - 1
        if part == "**":
            expression += ".+" if is_last else "(?:.*/)?"
        else:
            expression += re.escape(part).replace(r"\*", "[^/]*") + ("" if is_last else "/")
    folders = path.split("/")
    heads = ["/".join(folders[:end]) for end in range(1, len(folders) + (not is_folder))]
    return any(re.fullmatch(expression, head) for head in heads)


PARTS = st.sampled_from(["a", "b", "a*", "*", "**"])


def path_of(start: str, parts: list[str], end: str) -> str:
    return start + "/".join(parts) + end


patterns_of_paths = st.builds(
    path_of, st.sampled_from(["", "/", "./"]), st.lists(PARTS, min_size=1, max_size=4), st.sampled_from(["", "/"])
)
paths = st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=4).map("/".join)


@given(patterns_of_paths, paths)
@example("./a", "b/a")
@example("a/**", "a/b")
def test_a_path_that_claude_code_would_refuse_is_refused(pattern: str, path: str) -> None:
    if ignored(pattern, path):
        assert PatternSet(path_glob_to_regexes(widen_glob(pattern), wide=True)).find_matches(fold_text(f"r:{path}"))


@given(patterns_of_paths, paths)
@example("a/", "a")
@example("**/", "a")
@example("./a", "b/a")
def test_a_path_that_is_allowed_is_one_that_claude_code_would_allow(pattern: str, path: str) -> None:
    glob = narrow_glob(pattern)

    if glob is not None and PatternSet(path_glob_to_regexes(glob, wide=False)).find_matches(f"r:{path}"):
        assert ignored(pattern, path)
