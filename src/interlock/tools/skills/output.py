"""What a skill's tool says: the instructions with the list of files, or one file. Cut where it must be, and said so."""

import os
from hashlib import sha256

import msgspec

from ...domain.tool import Normalized
from ..files.text_file import Binary, TextFile, read_text
from ..search.output import shown_name
from .folder import MAX_FILE_BYTES, FileList, ListedFile, SkillFile
from .text import SkillText

MAX_LIST_CHARS = 20_000


class Instructions(msgspec.Struct, frozen=True):
    skill: SkillText
    tool_name: str
    listed: FileList


def normalized(found: Instructions | SkillFile) -> Normalized:
    match found:
        case Instructions():
            return _normalized_instructions(found)
        case SkillFile():
            return _normalized_file(found)


def _normalized_instructions(found: Instructions) -> Normalized:
    skill, listed = found.skill, found.listed
    at_least = "" if listed.complete else "at least "
    files = f"{at_least}{len(listed.files):,} file{'' if len(listed.files) == 1 else 's'}"
    parts = [skill.instructions, _file_list(found.tool_name, listed)]
    return Normalized(
        summary=f"instructions of the skill {skill.name}; {files} beside them",
        text="\n\n".join(part for part in parts if part),
        user_text=f"Loaded the skill {skill.name}",
        side_effects=(),
        facts={
            "skill": skill.name,
            "sha256": skill.sha256,
            "files": len(listed.files),
            "complete": listed.complete,
        },
    )


def _file_list(name: str, listed: FileList) -> str:
    if not listed.files:
        return ""
    lines, room = [f"Files of this skill, for {name}(file=...):"], MAX_LIST_CHARS
    for file in listed.files:
        line = _listed_line(file)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    left = len(listed.files) + 1 - len(lines)
    if left or not listed.complete:
        lines.append(f"[{left:,} more not listed]" if listed.complete else "[there are more, which are not listed]")
    return "\n".join(lines)


def _listed_line(listed: ListedFile) -> str:
    return f"- {shown_name(os.fsencode(listed.file))} ({listed.size_bytes:,} bytes)"


def _normalized_file(found: SkillFile) -> Normalized:
    match read_text(found.content):
        case Binary(kind=kind):
            summary = f"{found.file} is a binary file ({kind or 'unknown kind'}, {found.size_bytes:,} bytes); not shown"
            text = ""
        case TextFile() as file:
            summary, text = _text_of(found, file)
    return Normalized(
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


def _text_of(found: SkillFile, file: TextFile) -> tuple[str, str]:
    if not found.cut:
        return f"{found.file}, {found.size_bytes:,} bytes", file.shown
    said = f"the first {len(found.content):,} of {found.size_bytes:,} bytes"
    why = f"no more than {MAX_FILE_BYTES:,} bytes of a file are read"
    return f"{found.file}, {said}; {why}", f"{file.shown}\n[{said}; {why}]"
