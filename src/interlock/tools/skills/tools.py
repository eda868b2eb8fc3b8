"""`skills`: every folder with a `SKILL.md` becomes a tool that loads its instructions, and its files, on demand.

    runtime = ToolRuntime(tools=[*skills("skills"), ...])

A model is told each skill's name and description, and loads the rest when it needs it. Nothing of a skill is executed
by that, and nothing is granted: what is loaded is the output of a tool, shown as such, and each call that a model then
proposes goes to the gate like every other. `allowed-tools` in a skill is therefore advice like the rest of it.

The instructions are those that were there when the skills were loaded, and their digest is the tool's version: a run
that may write in the folder cannot rewrite what it is told. Files beside them are read when they are asked for.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from os.path import join
from stat import S_ISDIR

from ...domain.decision import Decision, Verdict
from ...domain.errors import ConfigurationError
from ...domain.rendering import neutralize
from ...domain.tool import JsonObject, Problem, Reach, Situation, ToolContext, ToolDefinition
from ...registry.decorator import tool
from ...sandbox.workspace.workspace import Entry, PathRefused, Workspace
from ..files.boundary import LAYER
from ..files.file_content import not_now
from .folder import REFUSED, SKILL_FILE, SkillFile, SkillFolder, is_hidden
from .output import MAX_LIST_CHARS, Instructions, normalized
from .text import SkillText, parse_skill, unloadable

PREFIX = "skill_"
#: All of it is shown at once, so it has to fit into one observation.
MAX_SKILL_BYTES = 100_000
#: In the folder of the skills, with those that are none.
MAX_FOLDER_NAMES = 500
_MAX_TOOL_NAME_CHARS = 64
#: What is shown for a secret may be longer than the secret.
_MAX_OUTPUT_CHARS = MAX_SKILL_BYTES + MAX_LIST_CHARS + 10_000
_FORBIDDEN = frozenset({"outside", "secret", "hidden", "link", "malformed"})
_REACH = Reach(sandbox="skill", profile="read-only")


def skills(folder: str | os.PathLike[str], *, trusted: Mapping[str, str] | None = None) -> list[ToolDefinition]:
    """A tool `skill_<name>` for each direct subfolder that has a `SKILL.md`, by name.

    With `trusted`, SHA-256 by path from the folder on, a file that has no such digest is not read, now or later.
    `ConfigurationError` names the file of a skill that cannot be loaded. The folder stays open as long as the tools.
    """
    workspace = _opened(folder)
    try:
        entries = _entries(workspace)
        named = [entry.name for entry in entries if _may_be_skill(workspace, entry)]
        folders = [SkillFolder(workspace, name, trusted) for name in named]
        found = [(each, text) for each in folders if (text := _loaded(workspace, each)) is not None]
        if not found and any(entry.name == SKILL_FILE for entry in entries):
            raise ConfigurationError(
                f"{workspace.root!r} is a skill itself. `skills` takes the folder above, which may hold many."
            )
        return [_skill_tool(each, text) for each, text in found]
    except BaseException:
        workspace.close()
        raise


def tool_name(skill: str) -> str:
    """A skill may have a longer name than a tool may."""
    if len(PREFIX) + len(skill) <= _MAX_TOOL_NAME_CHARS:
        return PREFIX + skill
    digest = sha256(skill.encode()).hexdigest()[:8]
    return f"{PREFIX}{skill[: _MAX_TOOL_NAME_CHARS - len(PREFIX) - 9]}-{digest}"


def _opened(folder: str | os.PathLike[str]) -> Workspace:
    try:
        return Workspace(folder, extra_hidden=is_hidden)
    except ConfigurationError as error:
        raise ConfigurationError(f"The skills in {os.fspath(folder)!r} cannot be loaded: {error}") from error


def _entries(workspace: Workspace) -> tuple[Entry, ...]:
    listing = workspace.entries(".", limit=MAX_FOLDER_NAMES)
    if listing.found > MAX_FOLDER_NAMES:
        raise ConfigurationError(
            f"The skills in {workspace.root!r} cannot be loaded: the folder holds more than {MAX_FOLDER_NAMES} names."
        )
    return listing.entries


def _may_be_skill(workspace: Workspace, entry: Entry) -> bool:
    if is_hidden(entry.name):
        return False
    path = join(workspace.root, entry.name)
    if entry.kind == "link" and _leads_to_folder(path):
        raise unloadable(
            path, "it is a link, and those are not followed. Copy the folder, or load the one it leads to."
        )
    return entry.kind == "folder"


def _leads_to_folder(path: str) -> bool:
    try:
        return S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False


def _loaded(workspace: Workspace, folder: SkillFolder) -> SkillText | None:
    """None for a folder without a `SKILL.md`."""
    path = join(workspace.root, folder.name, SKILL_FILE)
    try:
        folder.look(SKILL_FILE)
        file = folder.read(SKILL_FILE, MAX_SKILL_BYTES)
    except PathRefused as refused:
        if refused.kind == "not_found":
            return None
        raise unloadable(path, f"it {REFUSED[refused.kind]}.") from refused
    if file.cut:
        most = f"it has {file.size_bytes:,} bytes, and {MAX_SKILL_BYTES:,} are the most."
        raise unloadable(path, f"{most} Move parts of it to files beside it, which are read on demand.")
    text = parse_skill(file.content, path)
    if text.name != folder.name:
        raise unloadable(path, f"it is called {text.name!r}, which has to be the name of its folder.")
    return text


def _skill_tool(folder: SkillFolder, text: SkillText) -> ToolDefinition:
    name = tool_name(text.name)

    def check(arguments: JsonObject, context: ToolContext) -> Problem | None:
        return _problem(folder, arguments.get("file", ""))

    def authorize(arguments: JsonObject, situation: Situation) -> Decision | None:
        return _opinion(folder, arguments.get("file", ""))

    def handler(file: str = "") -> Instructions | SkillFile:
        """
        Args:
            file: Empty loads the instructions and the list of files. Else a file of the skill, as they name it.
        """
        if not file:
            return Instructions(text, name, folder.files())
        with not_now():
            return folder.read(file)

    return tool(
        handler,
        name=name,
        # It stands among the tools, where nothing is quoted.
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
        reach=_reach,
        normalize=normalized,
    )


def _reach(arguments: JsonObject, situation: Situation) -> Reach:
    return _REACH


def _problem(folder: SkillFolder, file: str) -> Problem | None:
    """Why it cannot be read now. What may not be read is for the gate to say."""
    refused = _refused(folder, file)
    return Problem(message=str(refused)) if refused and refused.kind not in _FORBIDDEN else None


def _opinion(folder: SkillFolder, file: str) -> Decision | None:
    refused = _refused(folder, file)
    if refused is None or refused.kind not in _FORBIDDEN:
        return None
    rule = f"skill:{refused.kind}"
    return Decision(verdict=Verdict.DENY, reason=str(refused), rule_ids=(rule,), layer=LAYER)


def _refused(folder: SkillFolder, file: str) -> PathRefused | None:
    try:
        if file:
            folder.look(file)
    except PathRefused as refused:
        return refused
    return None
