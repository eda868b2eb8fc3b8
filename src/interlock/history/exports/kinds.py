"""What each type of event is to systems that know nothing of Interlock: words of ECS and OCSF, and how much it matters.

A type that is not in the table is exported all the same, as news of an API.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["success", "failure", "unknown"]


class Severity(IntEnum):
    """As OCSF counts it."""

    INFORMATIONAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


class Kind(msgspec.Struct, frozen=True):
    title: str
    #: `event.category` and `event.type` of ECS.
    category: Literal["process", "api"] = "api"
    type: Literal["start", "end", "change", "info", "allowed", "denied", "access"] = "info"
    #: `activity_id` of OCSF's API Activity: 1 create, 2 read, 3 update, 4 delete, 99 other.
    activity: int = 99
    severity: Severity = Severity.INFORMATIONAL
    #: Where the event itself does not say how it went.
    outcome: Outcome = "unknown"


_LOW, _MEDIUM, _HIGH = Severity.LOW, Severity.MEDIUM, Severity.HIGH

UNKNOWN_KIND = Kind("Something happened")

KINDS: Mapping[str, Kind] = {
    "run.started": Kind("A run started", "process", "start", 1, outcome="success"),
    "run.paused": Kind("A run waits for a person", "process", "change", 3),
    "run.resumed": Kind("A run went on", "process", "change", 3, outcome="success"),
    "run.completed": Kind("A run completed", "process", "end", 3, outcome="success"),
    "run.degraded": Kind("A run completed with less than it should", "process", "end", 3, _MEDIUM, "success"),
    "run.failed": Kind("A run failed", "process", "end", 3, _HIGH, "failure"),
    "run.cancelled": Kind("A run was cancelled", "process", "end", 3, _MEDIUM, "failure"),
    "model.menu": Kind("A model was shown its tools"),
    "user.message": Kind("A person said something", activity=1, outcome="success"),
    "model.request": Kind("A model was asked", "api", "start"),
    "model.response": Kind("A model answered", "api", "end", outcome="success"),
    "model.failed": Kind("A model gave no answer", "api", "end", 99, _MEDIUM, "failure"),
    "model.refused": Kind("A final answer was refused", severity=_LOW, outcome="failure"),
    "verification.conflict": Kind("A claim contradicts the facts", severity=_MEDIUM, outcome="failure"),
    "tool.batch.started": Kind("A model proposed calls", "api", "start"),
    "tool.intent": Kind("A call was proposed"),
    "tool.validation": Kind("A call was validated"),
    "tool.permission": Kind("A call was judged"),
    "approval.requested": Kind("A person was asked for approval", activity=1, severity=_LOW),
    "approval.granted": Kind("A call was approved", "api", "allowed", 3, _LOW, "success"),
    "approval.rejected": Kind("A call was rejected", "api", "denied", 3, _MEDIUM, "failure"),
    "approval.expired": Kind("Nobody approved in time", "api", "denied", 3, _MEDIUM, "failure"),
    "approval.voided": Kind("A question or an answer is void", "api", "change", 3, _MEDIUM),
    "input.requested": Kind("A person was asked for a value", activity=1, severity=_LOW),
    "input.provided": Kind("A value was given", "api", "allowed", 3, _LOW, "success"),
    "input.refused": Kind("A value was refused", "api", "denied", 3, _MEDIUM, "failure"),
    "input.expired": Kind("Nobody gave a value in time", "api", "denied", 3, _MEDIUM, "failure"),
    "consent.requested": Kind("A user was asked for consent", activity=1, severity=_LOW),
    "consent.granted": Kind("A user consented", "api", "allowed", 3, _LOW, "success"),
    "consent.refused": Kind("A user did not consent", "api", "denied", 3, _MEDIUM, "failure"),
    "consent.expired": Kind("A user did not consent in time", "api", "denied", 3, _MEDIUM, "failure"),
    "tool.invocation.started": Kind("A call started", "api", "start", severity=_LOW),
    "tool.invocation.completed": Kind("A call ended", "api", "end", severity=_LOW),
    "tool.invocation.suspended": Kind("A call waits for the run inside it", "api", "change"),
    "tool.observation": Kind("A call was observed", "api", "access", 2),
    "warning": Kind("A warning", severity=_MEDIUM),
}
