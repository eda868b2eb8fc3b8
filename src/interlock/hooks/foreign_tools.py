"""The built-in tools of coding agents, mapped to ours: names, paths, commands and hosts, so that one policy holds.

`translate` makes of a call of an agent a tool as rules know it, with arguments of our names. What the agent calls
otherwise is renamed; what it leaves out and rules need (the folder, the files of a patch) is added. A tool that is not
in the tables counts as one that may execute anything.
"""

import re
from collections.abc import Callable, Mapping
from os.path import isabs, join, normpath, realpath
from typing import TypeAlias, cast

import msgspec

from ..domain.json import JsonObject
from ..domain.tool import ResourceKind, ToolOrigin, flatten
from .contract import ToolEvent
from .patches import find_patched_files

_MAX_NAME_CHARS = 48
_MAX_URLS = 50
_URL = re.compile(r"https?://[^\s<>\"'`)\]}]+", re.IGNORECASE)
_GLOB_CHARS = re.compile(r"[*?\[{]")

#: Adds what rules need: takes the renamed arguments and the folder of the agent.
Addition: TypeAlias = Callable[[JsonObject, str], JsonObject]


class ForeignTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an agent in our words."""

    #: Our name.
    name: str
    risk: tuple[str, ...]
    #: The agent's names of arguments, and ours.
    fields: Mapping[str, str] = {}
    resources: Mapping[str, ResourceKind] = {}
    origin: ToolOrigin = "local"
    #: The MCP server or skill that it comes from.
    source: str = ""
    add: Addition | None = None


class TranslatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an agent in our words."""

    tool: ForeignTool
    arguments: JsonObject
    #: What the agent gave, and its names of those that were renamed.
    given: JsonObject = {}
    renamed: Mapping[str, str] = {}
    #: The names that were added: they are not the agent's.
    added: frozenset[str] = frozenset()

    def restore(self, arguments: JsonObject) -> JsonObject | None:
        """Return arguments that a person edited in the agent's words. None: they cannot be said there."""
        if any(arguments.get(name) != self.arguments[name] for name in self.added):
            return None
        restored: JsonObject = {}
        for name, value in arguments.items():
            if name not in self.added:
                theirs = self.renamed.get(name, name)
                is_same = theirs in self.given and value == self.arguments.get(name)
                restored[theirs] = self.given[theirs] if is_same else value
        return restored


def translate(client: str, event: ToolEvent, workspace: str = "") -> TranslatedCall:
    """Return the call in our words.

    Args:
        client: The name of the agent.
        event: The call.
        workspace: The real path of the folder that rules start at.
    """
    given = event.input
    if event.server:
        return TranslatedCall(tool=_mcp_tool(event.server, event.server_tool), arguments=dict(given), given=given)
    tool = TOOLS[client].get(event.tool)
    if tool is None:
        return TranslatedCall(tool=_unknown_tool(client, event.tool), arguments=dict(given), given=given)
    arguments = _rename(given, tool.fields)
    renamed = {ours: name for name, ours in tool.fields.items() if name in given}
    added = tool.add(arguments, event.cwd) if tool.add is not None else {}
    if "tool" in added:  # the patch decides which of our tools it is
        tool = cast(ForeignTool, added.pop("tool"))
    folder = {**arguments, **added}.get("cwd")
    if "cwd" in tool.resources and isinstance(folder, str) and realpath(join(event.cwd, folder)) == workspace:
        # A command in the workspace itself is what rules without a folder are about.
        added.pop("cwd", None)
        arguments = {name: "." if name == "cwd" else value for name, value in arguments.items()}
    return TranslatedCall(
        tool=tool, arguments={**arguments, **added}, given=given, renamed=renamed, added=frozenset(added)
    )


def _rename(given: JsonObject, fields: Mapping[str, str]) -> JsonObject:
    """Rename arguments. Where an agent takes two names for one thing, all values are judged."""
    renamed: JsonObject = {}
    for name, ours in fields.items():
        if name in given:
            renamed[ours] = [renamed[ours], given[name]] if ours in renamed else given[name]
    for name, value in given.items():
        if name not in fields:
            renamed[f"{name}_" if name in renamed or name in fields.values() else name] = value
    return renamed


def _clean_name(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:_MAX_NAME_CHARS] or "unnamed"


def _mcp_tool(server: str, tool: str) -> ForeignTool:
    name = _clean_name(f"{server}_{tool}")
    if name in _OWN_NAMES:
        name = f"mcp_{name}"
    return ForeignTool(name=name, risk=("write", "network"), origin="mcp", source=server)


def _unknown_tool(client: str, tool: str) -> ForeignTool:
    """Return a tool that may do anything. It is never called like one of the tools that rules allow."""
    name = _clean_name(tool)
    if name in _OWN_NAMES or name != tool:
        name = _clean_name(f"{client}_{name}")
    return ForeignTool(name=name, risk=("execute",), origin="extension", source=client)


# What is added


def _add_folder(arguments: JsonObject, cwd: str) -> JsonObject:
    """Add the folder of a command that names none."""
    return {} if arguments.get("cwd") or not cwd else {"cwd": cwd}


def _add_path(arguments: JsonObject, cwd: str) -> JsonObject:
    """Add the folder of a search that names none."""
    return {} if arguments.get("path") or not cwd else {"path": cwd}


def _add_glob_folder(arguments: JsonObject, cwd: str) -> JsonObject:
    """Add where the patterns of a search begin: a pattern may lead out of the folder, or be a file itself."""
    folder = arguments.get("path") or cwd
    start = folder if isinstance(folder, str) else ""
    found: dict[str, None] = {}
    for pattern in flatten(arguments.get("pattern")):
        if isinstance(pattern, str):
            fixed = pattern
            if _GLOB_CHARS.search(pattern):
                fixed = _GLOB_CHARS.split(pattern, maxsplit=1)[0].rpartition("/")[0] or "/" * pattern.startswith("/")
            found[normpath(join(start, fixed))] = None
    return {"searched": list(found) or [start]} if found or start else {}


def _add_urls(arguments: JsonObject, cwd: str) -> JsonObject:
    """Add the addresses in a prompt."""
    prompt = arguments.get("prompt")
    urls = _URL.findall(prompt)[:_MAX_URLS] if isinstance(prompt, str) else []
    return {"url": urls} if urls else {}


def _add_patch(arguments: JsonObject, cwd: str) -> JsonObject:
    """Add the files of a patch. One that cannot be read may change anything."""
    patch = arguments.get("patch")
    found = find_patched_files(patch) if isinstance(patch, str) else None
    if found is None:
        return {"tool": _unreadable_patch}
    paths = [path if isabs(path) or not cwd else normpath(join(cwd, path)) for path in found.paths]
    return {"path": paths, "tool": _write_patch if found.only_new else _edit_patch}


# Rows

_PATH: Mapping[str, ResourceKind] = {"path": "path"}
_COMMAND: Mapping[str, ResourceKind] = {"command": "command", "cwd": "folder"}
_edit_patch = ForeignTool(name="edit_file", risk=("write",), resources=_PATH)
_write_patch = ForeignTool(name="write_file", risk=("write",), resources=_PATH)
_unreadable_patch = ForeignTool(name="apply_patch", risk=("execute",), origin="extension")


def _file(name: str, *fields: str, **more: str) -> ForeignTool:
    """Make a row of a tool that reads or writes the file that one of these arguments names."""
    risk = "read" if name == "read_file" else "write"
    return ForeignTool(name=name, risk=(risk,), fields={**dict.fromkeys(fields, "path"), **more}, resources=_PATH)


def _search(name: str, *fields: str) -> ForeignTool:
    """Make a row of a tool that searches a folder."""
    is_glob = name == "glob"
    return ForeignTool(
        name=name,
        risk=("read",),
        fields=dict.fromkeys(fields, "path"),
        resources={"searched": "path"} if is_glob else _PATH,
        add=_add_glob_folder if is_glob else _add_path,
    )


def _command(*folders: str, **fields: str) -> ForeignTool:
    """Make a row of a tool that runs a command, in the folder that one of these arguments names."""
    return ForeignTool(
        name="bash",
        risk=("execute",),
        fields={**dict.fromkeys(folders, "cwd"), **fields},
        resources=_COMMAND,
        add=_add_folder,
    )


def _patch(field: str) -> ForeignTool:
    return ForeignTool(name="edit_file", risk=("write",), fields={field: "patch"}, resources=_PATH, add=_add_patch)


def _quiet(*names: str) -> dict[str, ForeignTool]:
    """Make rows of tools that change nothing outside of the agent's own session."""
    return {name: ForeignTool(name=_clean_name(name), risk=("read",), origin="extension") for name in names}


def _risky(risk: str, *names: str) -> dict[str, ForeignTool]:
    """Make rows of tools that have no counterpart here."""
    return {name: ForeignTool(name=_clean_name(name), risk=(risk,), origin="extension") for name in names}


_FETCH = ForeignTool(name="web_fetch", risk=("network",), resources={"url": "host"})
_WEB_SEARCH = ForeignTool(name="web_search", risk=("network",))
_DELEGATE = ForeignTool(name="agent", risk=("delegate",), origin="extension")
_SKILL = ForeignTool(name="skill", risk=("read",), origin="skill")
_DELETE = ForeignTool(
    name="delete_file", risk=("write",), fields={"file_path": "path", "target_file": "path"}, resources=_PATH
)

_CLAUDE: Mapping[str, ForeignTool] = {
    "Bash": _command(),
    "Monitor": _command(),
    "Read": _file("read_file", "file_path"),
    "Write": _file("write_file", "file_path"),
    "Edit": _file("edit_file", "file_path"),
    "MultiEdit": _file("edit_file", "file_path"),
    "NotebookRead": _file("read_file", "notebook_path"),
    "NotebookEdit": _file("edit_file", "notebook_path"),
    "LSP": _file("read_file", "filePath", "file_path"),
    "Glob": _search("glob"),
    "Grep": _search("grep"),
    "LS": _search("list_dir"),
    "WebFetch": _FETCH,
    "WebSearch": _WEB_SEARCH,
    **dict.fromkeys(("Agent", "Task", "Workflow"), _DELEGATE),
    **dict.fromkeys(("Skill", "SlashCommand"), _SKILL),
    **_quiet("AskUserQuestion", "TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskOutput"),
    **_quiet("TaskStop", "BashOutput", "KillShell", "EnterPlanMode", "ExitPlanMode", "ToolSearch", "ListAgents"),
    **_quiet("CronList", "ReadNotifications", "ReportFindings", "ProposeGoal", "WaitForMcpServers"),
    **_quiet("ListMcpResourcesTool", "SendUserMessage", "SubagentHandback", "EndConversation"),
    **_risky("network", "ReadMcpResourceTool", "ReadMcpResourceDirTool", "SendFeedback", "PushNotification"),
    **_risky("network", "SendUserFile", "Artifact", "Projects", "ShareOnboardingGuide", "ClaudeDesign"),
    **_risky("delegate", "SendMessage", "RemoteTrigger", "CronCreate", "CronDelete", "ScheduleWakeup"),
    **_risky("write", "EnterWorktree", "ExitWorktree"),
}

_CODEX: Mapping[str, ForeignTool] = {
    **dict.fromkeys(("Bash", "shell", "shell_command", "local_shell"), _command("workdir")),
    "exec_command": _command("workdir", cmd="command"),
    "apply_patch": _patch("command"),
    "view_image": _file("read_file", "path"),
    "read_file": _file("read_file", "file_path"),
    "list_dir": _search("list_dir", "dir_path"),
    "grep_files": _search("grep"),
    "web_search": _WEB_SEARCH,
    "spawn_agent": _DELEGATE,
    **_quiet("update_plan", "request_user_input", "tool_search", "list_mcp_resources", "wait", "wait_agent"),
    **_quiet("list_mcp_resource_templates", "close_agent", "get_goal", "create_goal", "update_goal"),
    **_risky("network", "read_mcp_resource", "image_generation"),
    **_risky("delegate", "send_input", "resume_agent"),
}

_GEMINI: Mapping[str, ForeignTool] = {
    "run_shell_command": _command("dir_path", "directory"),
    "read_file": _file("read_file", "file_path", "absolute_path"),
    "write_file": _file("write_file", "file_path"),
    "replace": _file("edit_file", "file_path"),
    "read_many_files": ForeignTool(
        name="glob",
        risk=("read",),
        fields={"include": "pattern", "paths": "pattern"},
        resources={"searched": "path"},
        add=_add_glob_folder,
    ),
    "glob": _search("glob", "dir_path", "path"),
    "grep_search": _search("grep", "dir_path", "path"),
    "search_file_content": _search("grep", "dir_path", "path"),
    "list_directory": _search("list_dir", "dir_path", "path"),
    "web_fetch": ForeignTool(name="web_fetch", risk=("network",), resources={"url": "host"}, add=_add_urls),
    "google_web_search": _WEB_SEARCH,
    "activate_skill": _SKILL,
    **_quiet("ask_user", "write_todos", "get_internal_docs", "enter_plan_mode", "exit_plan_mode", "complete_task"),
    **_quiet("tracker_create_task", "tracker_update_task", "tracker_get_task", "tracker_list_tasks"),
    **_quiet("tracker_add_dependency", "tracker_visualize", "update_topic", "list_mcp_resources"),
    **_risky("network", "read_mcp_resource"),
    **_risky("write", "save_memory"),
}

_OPENCODE: Mapping[str, ForeignTool] = {
    "bash": _command("workdir"),
    "read": _file("read_file", "filePath"),
    "write": _file("write_file", "filePath"),
    "edit": _file("edit_file", "filePath", oldString="old_string", newString="new_string", replaceAll="replace_all"),
    "multiedit": _file("edit_file", "filePath"),
    "patch": _patch("patchText"),
    "apply_patch": _patch("patchText"),
    "glob": _search("glob"),
    "grep": _search("grep"),
    "list": _search("list_dir"),
    "webfetch": _FETCH,
    **dict.fromkeys(("websearch", "codesearch"), _WEB_SEARCH),
    "task": _DELEGATE,
    "skill": _SKILL,
    "lsp": _file("read_file", "filePath"),
    **_quiet("todowrite", "todoread", "question", "plan_enter", "plan_exit", "invalid"),
}

_CURSOR: Mapping[str, ForeignTool] = {
    "Shell": _command("working_directory", "cwd"),
    "Read": _file("read_file", "file_path", "path", "target_file"),
    "Write": _file("write_file", "file_path", "path", "target_file", contents="content"),
    **dict.fromkeys(
        ("Edit", "StrReplace", "MultiEdit", "EditNotebook"), _file("edit_file", "file_path", "path", "target_notebook")
    ),
    "Delete": _DELETE,
    "Glob": _search("glob", "target_directory", "path"),
    "Grep": _search("grep", "path"),
    "LS": _search("list_dir", "target_directory", "path"),
    "WebFetch": _FETCH,
    "WebSearch": _WEB_SEARCH,
    "Task": _DELEGATE,
    **_quiet("TodoWrite", "ReadLints", "AskQuestion", "SwitchMode", "CreatePlan"),
}

#: By the name of the client: its tools by their names there.
TOOLS: Mapping[str, Mapping[str, ForeignTool]] = {
    "claude-code": _CLAUDE,
    "codex": _CODEX,
    "gemini-cli": _GEMINI,
    "opencode": _OPENCODE,
    "cursor": _CURSOR,
}
_OWN_NAMES = frozenset(
    {"bash", "bash_outside", "read_file", "write_file", "edit_file", "glob", "grep", "list_dir", "read_artifact"}
) | frozenset(tool.name for tools in TOOLS.values() for tool in tools.values())
