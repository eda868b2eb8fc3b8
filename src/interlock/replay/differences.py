"""Compares two recordings of one run: the original, and what today's code makes of the same responses."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal, TypeAlias

import msgspec

from ..domain.json import encode_sorted
from ..domain.observation import Observation
from ..rendering.text import shorten
from .recording import (
    GENERATED_ID_PREFIX,
    Recording,
    ReplayCall,
    ReplayContextStep,
    ReplayRequest,
    describe_tool_changes,
)

DifferenceKind: TypeAlias = Literal[
    "menu", "validation", "decision", "observation", "conversation", "verification", "answer", "request"
]
_MAX_WORDS_CHARS = 300


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between two recordings."""

    #: The recorded event that would differ.
    seq: int
    kind: DifferenceKind
    call_id: str = ""
    was: str
    now: str

    @property
    def words(self) -> str:
        """The difference as one line of text."""
        about = f" of {self.call_id}" if self.call_id else ""
        was, now = (" ".join(shorten(text, _MAX_WORDS_CHARS).split()) for text in (self.was, self.now))
        return f"event {self.seq}: {self.kind}{about}: was {was}; now {now}"


def compare_recordings(was: Recording, now: Recording) -> tuple[Difference, ...]:
    """Return the differences in order; later ones may follow from the first."""
    found = [
        *_compare_requests(was, now),
        *_compare_context(was, now),
        *_compare_calls(was, now),
        *_compare_objections(was, now),
        *_compare_end(was, now),
    ]
    found += [] if found else _compare_conversation(was, now)
    return tuple(sorted(found, key=lambda difference: difference.seq))


def _compare_requests(was: Recording, now: Recording) -> Iterator[Difference]:
    reported: set[tuple[str, str]] = set()
    for before, after in zip(was.answers, now.answers, strict=False):
        then, today = before.request, after.request
        menus = then.menu_digest, today.menu_digest
        if menus[0] and menus[0] != menus[1] and menus not in reported:
            reported.add(menus)
            yield _compare_catalogs(was, now, then, today)
        for name, old, new in _request_fields(then, today):
            if (name + old, new) not in reported:
                reported.add((name + old, new))
                yield Difference(seq=then.seq, kind="conversation", was=f"{name} {old}", now=new)
    if len(now.answers) < len(was.answers) and was.end != "cancelled":
        seq = was.answers[len(now.answers)].request.seq
        yield Difference(seq=seq, kind="request", was="a request to the model", now=_describe_end(now))


def _request_fields(then: ReplayRequest, today: ReplayRequest) -> Iterator[tuple[str, str, str]]:
    """Return what the model would see otherwise. What is not known of then is not compared."""
    pairs = (
        ("agent", then.agent, today.agent),
        ("messages:", str(then.message_count), str(today.message_count)),
        ("tool choice", then.tool_choice, today.tool_choice),
        ("instructions", then.instructions, today.instructions),
    )
    return (pair for pair in pairs if pair[1] and pair[1] != pair[2])


def _compare_context(was: Recording, now: Recording) -> Iterator[Difference]:
    """Yield what is left out of the conversation otherwise, as far as both have come."""
    reached = len(now.answers)
    then = [step for step in was.context if step.answer < reached]
    for old, new in zip_longest(then, now.context):
        if old != new:
            place = min(step.answer for step in (old, new) if step is not None)
            seq = was.answers[min(place, len(was.answers) - 1)].request.seq
            yield Difference(seq=seq, kind="conversation", was=_describe_step(old), now=_describe_step(new))
            return


def _describe_step(step: ReplayContextStep | None) -> str:
    if step is None:
        return "nothing more is left out"
    if step.compacted:
        return f"a summary of {step.compacted} messages before answer {step.answer + 1}"
    return f"the outputs of {', '.join(step.trimmed)} are left out before answer {step.answer + 1}"


def _compare_catalogs(was: Recording, now: Recording, then: ReplayRequest, today: ReplayRequest) -> Difference:
    old, new = was.menus.get(then.menu_digest, {}), now.menus.get(today.menu_digest, {})
    changed = describe_tool_changes(old, new) or "what is said about them differs"
    return Difference(seq=then.seq, kind="menu", was=f"{len(old)} tools", now=changed)


def _compare_calls(was: Recording, now: Recording) -> Iterator[Difference]:
    for call_id, then in was.calls.items():
        today = now.calls.get(call_id)
        if today is not None and not then.lost and not call_id.startswith(GENERATED_ID_PREFIX):
            yield from _compare_call(then, today)


def _compare_call(then: ReplayCall, today: ReplayCall) -> Iterator[Difference]:
    if (then.valid, then.errors) != (today.valid, today.errors):
        seq = then.validated_seq if then.validated_seq >= 0 else then.seq
        yield _call_difference(then, seq, "validation", _describe_validation(then), _describe_validation(today))
    if then.valid and today.valid and _describe_decision(then) != _describe_decision(today):
        seq = then.judged_seq if then.judged_seq >= 0 else then.seq
        yield _call_difference(then, seq, "decision", _describe_decision(then), _describe_decision(today))
    if then.observation is None:
        return
    if today.observation is None:
        yield _call_difference(
            then, then.observed_seq, "observation", _text(then.observation), "none: it waits, or was not reached"
        )
    elif _comparable_bytes(then.observation) != _comparable_bytes(today.observation):
        old, new = _summarize(then.observation), _summarize(today.observation)
        if old == new:
            old, new = _trim_to_difference(_text(then.observation), _text(today.observation))
        yield _call_difference(then, then.observed_seq, "observation", old, new)
    elif then.told != today.told:
        yield _call_difference(
            then, then.observed_seq, "observation", "the text for the model differs", "the same facts"
        )


def _call_difference(call: ReplayCall, seq: int, kind: DifferenceKind, was: str, now: str) -> Difference:
    return Difference(seq=seq, kind=kind, call_id=call.call_id, was=was, now=now)


def _describe_validation(call: ReplayCall) -> str:
    return {True: "valid", None: "not reached"}.get(call.valid) or "; ".join(call.errors) or "invalid"


def _describe_decision(call: ReplayCall) -> str:
    decision = call.decision
    if decision is None:
        return "not reached"
    return f"{decision.verdict} ({', '.join(decision.rule_ids)})" if decision.rule_ids else str(decision.verdict)


def _comparable_bytes(observation: Observation) -> bytes:
    """Return its bytes, without the name of the question, which is another one each time."""
    failure = observation.failure
    if failure is not None and "action_id" in failure.details:
        details = {name: value for name, value in failure.details.items() if name != "action_id"}
        failure = msgspec.structs.replace(failure, details=details)
        observation = msgspec.structs.replace(observation, failure=failure)
    return encode_sorted(observation)


def _summarize(observation: Observation) -> str:
    return f"{observation.code}: {observation.summary}" if observation.summary else observation.code


def _text(observation: Observation) -> str:
    return _comparable_bytes(observation).decode(errors="replace")


def _trim_to_difference(was: str, now: str) -> tuple[str, str]:
    """Return both texts from a few words before where they part."""
    same = next(
        (at for at, (old, new) in enumerate(zip(was, now, strict=False)) if old != new), min(len(was), len(now))
    )
    start = max(0, same - 40)
    lead = "..." if start else ""
    return lead + was[start:], lead + now[start:]


def _compare_objections(was: Recording, now: Recording) -> Iterator[Difference]:
    asked = len(now.answers)
    reached = was.answers[asked].request.seq if asked < len(was.answers) else None
    before = [one for one in was.objections if reached is None or one.seq < reached]
    for then, today in zip_longest(before, now.objections):
        known = then or today
        old, new = (one.message if one else "no objection to the answer" for one in (then, today))
        if known is not None and (then is None or today is None or (old, then.kind) != (new, today.kind)):
            yield Difference(seq=then.seq if then else was.end_seq, kind=known.kind, was=old, now=new)


def _compare_end(was: Recording, now: Recording) -> Iterator[Difference]:
    if was.end in ("open", "cancelled") or len(now.answers) < len(was.answers):
        return
    if (was.end, was.message) != (now.end, now.message):
        yield Difference(seq=was.end_seq, kind="answer", was=_describe_end(was), now=_describe_end(now))
    checked = (was.verification, was.verification_message), (now.verification, now.verification_message)
    if checked[0] != checked[1]:
        old, new = (f"{status}: {message}" for status, message in checked)
        yield Difference(seq=was.end_seq, kind="verification", was=old, now=new)


def _compare_conversation(was: Recording, now: Recording) -> Iterator[Difference]:
    """Yield what nothing else explains: the log has the outcomes, and the texts made of them are others."""
    if was.conversation and len(was.answers) == len(now.answers) and was.conversation != now.conversation:
        old, new = _trim_to_difference("\n".join(was.conversation), "\n".join(now.conversation))
        yield Difference(seq=max(was.end_seq, was.answers[-1].seq), kind="conversation", was=old, now=new)


def _describe_end(recording: Recording) -> str:
    if recording.end == "open":
        return "the run is not over"
    return f"{recording.end}: {recording.message}" if recording.message else recording.end
