r"""ArcSight's Common Event Format: a header between pipes, then `key=value`, one line for each event.

A backslash is written twice everywhere; a pipe is escaped in the header, an equals sign and line breaks behind it. What
else could end a line or move a cursor is written as `\uXXXX`. The whole event is `rawEvent`, which is the last one.
"""

import re

from ... import __version__
from .kinds import Severity
from .siem import PRODUCT
from .times import sane
from .told import Told

_SEVERITIES = {Severity.INFORMATIONAL: 2, Severity.LOW: 4, Severity.MEDIUM: 6, Severity.HIGH: 8}
_NANOSECONDS_PER_MS = 1_000_000
_invisible = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").sub


def cef(told: Told) -> bytes:
    header = ("CEF:0", PRODUCT, PRODUCT, __version__, told.type, told.kind.title, str(_SEVERITIES[told.severity]))
    extension = {
        "rt": str(sane(told.at) // _NANOSECONDS_PER_MS),
        "externalId": told.uid,
        "act": told.type,
        "outcome": told.outcome,
        "dvchost": told.host,
        "suser": told.actor,
        "msg": told.message,
        "cn1Label": "seq",
        "cn1": str(told.seq),
        **_labelled("cs1", "runId", told.run_id),
        **_labelled("cs2", "hash", told.hash),
        **_labelled("cs3", "tool", told.tool),
        **_labelled("cs4", "agent", told.agent),
        **_labelled("cs5", "callId", told.call_id),
        **_labelled("cs6", "actionId", told.action_id),
        "rawEvent": told.event.decode(errors="backslashreplace"),
    }
    said = " ".join(f"{key}={_value(text)}" for key, text in extension.items() if text)
    return f"{'|'.join(map(_field, header))}|{said}".encode()


def _labelled(key: str, label: str, text: str) -> dict[str, str]:
    return {f"{key}Label": label, key: text} if text else {}


def _field(text: str) -> str:
    """Of the header, where no line break can be written."""
    return _plain(text).replace("|", "\\|").replace("\n", " ").replace("\r", " ")


def _value(text: str) -> str:
    return _plain(text).replace("=", "\\=").replace("\n", "\\n").replace("\r", "\\r")


def _plain(text: str) -> str:
    return _invisible(_written, text).replace("\\", "\\\\")


def _written(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
