"""The output of a skill's tool: the instructions with the list of files, or one file. Truncation is marked."""

import os
from hashlib import sha256

import msgspec

from ...domain.tool import NormalizedOutput
from ...rendering.text import pluralize
from ..files.text_file import BinaryContent, TextFile, decode_content
from ..search.search_output import display_name
from .skill_folder import MAX_FILE_BYTES, SkillFile, SkillFileList
from .skill_text import SkillText

MAX_LIST_CHARS = 20_000


class SkillInstructions(msgspec.Struct, frozen=True):
    """The instructions of a skill, with its files."""

    skill: SkillText
    tool_name: str
    listed: SkillFileList


def normalize_skill(found: SkillInstructions | SkillFile) -> NormalizedOutput:
    """Convert a skill or one of its files for the model."""
    match found:
        case SkillInstructions():
            return _normalize_instructions(found)
        case SkillFile():
            return _normalize_file(found)


def _normalize_instructions(found: SkillInstructions) -> NormalizedOutput:
    skill, listed = found.skill, found.listed
    at_least = "" if listed.complete else "at least "
    files = f"{at_least}{pluralize(len(listed.files), 'file')}"
    parts = [skill.instructions, _format_file_list(found.tool_name, listed)]
    return NormalizedOutput(
        summary=f"instructions of the skill {skill.name}; {files} beside them",
        text="\n\n".join(part for part in parts if part),
        user_text=f"Loaded the skill {skill.name}",
        side_effects=(),
        facts={"skill": skill.name, "sha256": skill.sha256, "files": len(listed.files), "complete": listed.complete},
    )


def _format_file_list(name: str, listed: SkillFileList) -> str:
    if not listed.files:
        return ""
    lines, room = [f"Files of this skill, for {name}(file=...):"], MAX_LIST_CHARS
    for file in listed.files:
        line = f"- {display_name(os.fsencode(file.file))} ({file.size_bytes:,} bytes)"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    left = len(listed.files) + 1 - len(lines)
    if left or not listed.complete:
        lines.append(f"[{left:,} more not listed]" if listed.complete else "[there are more, which are not listed]")
    return "\n".join(lines)


def _normalize_file(found: SkillFile) -> NormalizedOutput:
    match decode_content(found.content):
        case BinaryContent(kind=kind):
            summary = f"{found.file} is a binary file ({kind or 'unknown kind'}, {found.size_bytes:,} bytes); not shown"
            text = ""
        case TextFile() as file:
            summary, text = _format_text(found, file)
    return NormalizedOutput(
        summary=f"{found.skill}: {summary}",
        text=text,
        user_text=f"Read {found.file} of the skill {found.skill}",
        side_effects=(),
        facts={
            "skill": found.skill,
            "file": found.file,
            "size_bytes": found.size_bytes,
            "read_bytes": len(found.content),
            "sha256": sha256(found.content).hexdigest(),
        },
    )


def _format_text(found: SkillFile, file: TextFile) -> tuple[str, str]:
    if not found.is_truncated:
        return f"{found.file}, {found.size_bytes:,} bytes", file.display_text
    said = f"the first {len(found.content):,} of {found.size_bytes:,} bytes"
    why = f"no more than {MAX_FILE_BYTES:,} bytes of a file are read"
    return f"{found.file}, {said}; {why}", f"{file.display_text}\n[{said}; {why}]"
