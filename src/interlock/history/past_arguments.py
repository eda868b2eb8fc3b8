"""What a model wrote for a call, as far as the log has it."""

import re
from hashlib import sha256
from typing import Any

from ..domain.event import CallProposed
from ..domain.json import BadJson, encode, encode_sorted, parse
from .recording import PastCall

#: How half of a surrogate pair is written into a log; a model may also have written just that.
_surrogate = re.compile(r"\\ud[89a-f][0-9a-f]{2}").search


def past_arguments(fact: CallProposed, known: PastCall | None, kept: bytes | None) -> tuple[str, str]:
    """As JSON text, and why they are not what the model wrote. `kept`: what the artifact holds, where there is one."""
    if not fact.raw_bytes and known is not None:
        return _repeated(fact, known)
    raw: Any = fact.raw_input
    if fact.raw_artifact_id:
        if kept is None:
            return "{}", "its arguments are too large for the log"
        raw = kept.decode(errors="replace")
    text: str = raw if isinstance(raw, str) else encode(raw).decode()
    if fact.digest in ("", _digest(fact.tool, text)):
        return text, ""
    if fact.digest != _digest_of_text(fact.tool, text):
        return text, "its arguments were redacted or cut"
    return text, "its arguments may hold half of a surrogate pair, which no log has" if _surrogate(text) else ""


def _repeated(fact: CallProposed, known: PastCall) -> tuple[str, str]:
    """The same call again; or its id for another one, whose arguments nobody kept: any others stand for them."""
    digests = (_digest(known.tool, known.arguments), _digest_of_text(known.tool, known.arguments), "")
    same = known.lost or fact.digest in digests
    return (known.arguments if same else encode({"other": fact.digest}).decode()), ""


def _digest(tool: str, arguments: str) -> str:
    """Of a call that was accepted."""
    try:
        return sha256(encode_sorted((tool, parse(arguments)))).hexdigest()
    except (BadJson, UnicodeError):
        return ""


def _digest_of_text(tool: str, text: str) -> str:
    """Of one that was not."""
    return sha256(f"{tool}\n{text}".encode(errors="backslashreplace")).hexdigest()
