"""`skills`: every folder with a `SKILL.md` becomes a tool that loads its instructions, and its files, on demand.

    runtime = ToolRuntime(tools=[*skills("skills"), ...])

A model sees each skill's name and description, and loads the rest when it needs it. Nothing of a skill is executed
by that, and nothing is granted: what is loaded is the output of a tool, shown as such, and each call that a model then
proposes is evaluated like every other. `allowed-tools` in a skill is therefore only advice.

The instructions are those that were there when the skills were loaded, and their digest is the tool's version: a run
that may write in the folder cannot rewrite its instructions. Files beside them are read when they are asked for.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from os.path import isdir, join

from ...domain.decision import Decision, Verdict
from ...domain.errors import ConfigurationError
from ...domain.rendering import neutralize
from ...domain.tool import CallContext, CheckProblem, JsonObject, SandboxScope, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.open_files import FolderEntry
from ...sandbox.workspace.refusals import PathRefusedError
from ...sandbox.workspace.workspace import Workspace
from ..files.file_content import refusals_as_preconditions
from ..files.path_boundary import PATH_BOUNDARY_LAYER
from .skill_folder import REFUSAL_MESSAGES, SKILL_FILE, SkillFile, SkillFolder, is_hidden
from .skill_output import MAX_LIST_CHARS, SkillInstructions, normalize_skill
from .skill_text import SkillText, make_skill_error, parse_skill

PREFIX = "skill_"
#: All of it is shown at once, so it has to fit into one observation.
MAX_SKILL_BYTES = 100_000
#: In the folder of the skills, with those that are none.
MAX_FOLDER_NAMES = 500
_MAX_TOOL_NAME_CHARS = 64
#: What is shown for a secret may be longer than the secret.
_MAX_OUTPUT_CHARS = MAX_SKILL_BYTES + MAX_LIST_CHARS + 10_000
_DENIED_KINDS = frozenset({"outside", "secret", "hidden", "link", "malformed"})
_SCOPE = SandboxScope(sandbox="skill", profile="read-only")


def skills(folder: str | os.PathLike[str], *, trusted: Mapping[str, str] | None = None) -> list[ToolDefinition]:
    """Return a tool `skill_<name>` for each direct subfolder that has a `SKILL.md`, by name.

    With `trusted`, SHA-256 by path from the folder on, a file that has no such digest is not read, now or later.
    `ConfigurationError` names the file of a skill that cannot be loaded. The folder stays open as long as the tools.
    """
    workspace = _open_workspace(folder)
    try:
        entries = _list_entries(workspace)
        named = [entry.name for entry in entries if _can_be_skill(workspace, entry)]
        folders = [SkillFolder(workspace, name, trusted) for name in named]
        found = [(each, text) for each in folders if (text := _load_skill(workspace, each)) is not None]
        if not found and any(entry.name == SKILL_FILE for entry in entries):
            raise ConfigurationError(
                f"{workspace.root!r} is a skill itself. `skills` takes the folder above, which may hold many."
            )
        return [_make_skill_tool(each, text) for each, text in found]
    except BaseException:
        workspace.close()
        raise


def make_tool_name(skill: str) -> str:
    """Return the tool name of a skill, shortened: a skill may have a longer name than a tool."""
    if len(PREFIX) + len(skill) <= _MAX_TOOL_NAME_CHARS:
        return PREFIX + skill
    digest = sha256(skill.encode()).hexdigest()[:8]
    return f"{PREFIX}{skill[: _MAX_TOOL_NAME_CHARS - len(PREFIX) - 9]}-{digest}"


def _open_workspace(folder: str | os.PathLike[str]) -> Workspace:
    try:
        return Workspace(folder, extra_hidden=is_hidden)
    except ConfigurationError as error:
        raise ConfigurationError(f"The skills in {os.fspath(folder)!r} cannot be loaded: {error}") from error


def _list_entries(workspace: Workspace) -> tuple[FolderEntry, ...]:
    listing = workspace.list_entries(".", limit=MAX_FOLDER_NAMES)
    if listing.found > MAX_FOLDER_NAMES:
        raise ConfigurationError(
            f"The skills in {workspace.root!r} cannot be loaded: the folder holds more than {MAX_FOLDER_NAMES} names."
        )
    return listing.entries


def _can_be_skill(workspace: Workspace, entry: FolderEntry) -> bool:
    if is_hidden(entry.name):
        return False
    path = join(workspace.root, entry.name)
    if entry.kind == "link" and isdir(path):
        raise make_skill_error(
            path, "it is a link, and those are not followed. Copy the folder, or load the one it leads to."
        )
    return entry.kind == "folder"


def _load_skill(workspace: Workspace, folder: SkillFolder) -> SkillText | None:
    """Load a skill; None for a folder without a `SKILL.md`."""
    path = join(workspace.root, folder.name, SKILL_FILE)
    try:
        folder.check_file(SKILL_FILE)
        file = folder.read(SKILL_FILE, MAX_SKILL_BYTES)
    except PathRefusedError as refused:
        if refused.kind == "not_found":
            return None
        raise make_skill_error(path, f"it {REFUSAL_MESSAGES[refused.kind]}.") from refused
    if file.is_truncated:
        most = f"it has {file.size_bytes:,} bytes, and {MAX_SKILL_BYTES:,} are the most."
        raise make_skill_error(path, f"{most} Move parts of it to files beside it, which are read on demand.")
    text = parse_skill(file.content, path)
    if text.name != folder.name:
        raise make_skill_error(path, f"it is called {text.name!r}, which has to be the name of its folder.")
    return text


def _make_skill_tool(folder: SkillFolder, text: SkillText) -> ToolDefinition:
    name = make_tool_name(text.name)

    def check(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
        return _find_problem(folder, arguments.get("file", ""))

    def authorize(arguments: JsonObject, situation: CallContext) -> Decision | None:
        return _authorize_file(folder, arguments.get("file", ""))

    def handler(file: str = "") -> SkillInstructions | SkillFile:
        """
        Args:
            file: Empty loads the instructions and the list of files. Else a file of the skill, as they name it.
        """
        if not file:
            return SkillInstructions(text, name, folder.list_files())
        with refusals_as_preconditions():
            return folder.read(file)

    return tool(
        handler,
        name=name,
        # It is shown in the list of tools, where nothing is quoted.
        description=neutralize(text.description),
        version=f"sha256:{text.sha256[:16]}",
        risk="read",
        idempotent=True,
        concurrency="safe",
        max_output_chars=_MAX_OUTPUT_CHARS,
        origin="skill",
        source=folder.name,
        check=check,
        authorize=authorize,
        reach=_describe_scope,
        normalize=normalize_skill,
    )


def _describe_scope(arguments: JsonObject, situation: CallContext) -> SandboxScope:
    return _SCOPE


def _find_problem(folder: SkillFolder, file: str) -> CheckProblem | None:
    """Return why it cannot be read now. Permissions are for policy."""
    refused = _find_refusal(folder, file)
    return CheckProblem(message=str(refused)) if refused and refused.kind not in _DENIED_KINDS else None


def _authorize_file(folder: SkillFolder, file: str) -> Decision | None:
    refused = _find_refusal(folder, file)
    if refused is None or refused.kind not in _DENIED_KINDS:
        return None
    rule = f"skill:{refused.kind}"
    return Decision(verdict=Verdict.DENY, reason=str(refused), rule_ids=(rule,), layer=PATH_BOUNDARY_LAYER)


def _find_refusal(folder: SkillFolder, file: str) -> PathRefusedError | None:
    try:
        if file:
            folder.check_file(file)
    except PathRefusedError as refused:
        return refused
    return None
