"""What is left for whoever moves a run on, by somebody who does not: an answer to a question, a wish to stop it.

A note lies in the log's file until it is taken, and whoever can write there can leave one. So a secret must not be in
it (`storable`), and reading one is bounded (`decode_note`).
"""

from typing import TypeAlias

import msgspec

from .call import Answer
from .errors import AnswerRefusedError
from .json import BadJson, Json, check, without_surrogates
from .redaction import Redact, redact_json, redact_json_text

MAX_NOTE_BYTES = 1 << 20


class AnswerNote(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True):
    action_id: str
    answer: Answer
    #: Of what was looked at; empty: not said.
    payload_hash: str = ""


class CancelNote(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    message: str = ""
    by: str = ""


NoteBody: TypeAlias = AnswerNote | CancelNote

encode_note = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NoteBody).decode


def decode_note(body: bytes) -> NoteBody:
    """`msgspec.DecodeError` for anything else than a note that `storable` would have let pass."""
    try:
        if len(body) > MAX_NOTE_BYTES:
            raise ValueError(f"it has more than {MAX_NOTE_BYTES} bytes")
        note = _decode(body)
        if isinstance(note, AnswerNote):
            check(note.answer.arguments)
            check(note.answer.value)
    except (ValueError, TypeError, RecursionError) as error:
        raise msgspec.DecodeError(f"the note cannot be read: {error}") from None
    return note


def key_of(note: NoteBody) -> str:
    """One answer for each question, one end for the run: the first one stands."""
    return f"answer:{note.action_id}" if isinstance(note, AnswerNote) else "cancel"


def storable(note: NoteBody, redact: Redact) -> NoteBody:
    """The note as it may lie in a file. Secrets are taken out of what is said; what is to be run is left as it is or
    not at all, because the process that takes the note would run something else: then `AnswerRefusedError`."""

    def clean(text: str) -> str:
        return redact(without_surrogates(text))

    match note:
        case CancelNote():
            kept: NoteBody = CancelNote(clean(note.message), clean(note.by))
        case AnswerNote(answer=answer):
            for what, given in (("arguments", answer.arguments), ("value", answer.value), ("rule", answer.rule)):
                _check_left_as_it_is(what, given, redact)
            said = msgspec.structs.replace(answer, reason=clean(answer.reason), by=clean(answer.by))
            kept = msgspec.structs.replace(note, answer=said)
    if len(encode_note(kept)) > MAX_NOTE_BYTES:
        raise AnswerRefusedError(f"The answer has more than {MAX_NOTE_BYTES} bytes. {_NOT_LEFT}")
    return kept


_NOT_LEFT = "Another process has the run, and such an answer cannot be left for it. Nothing was changed."


def _check_left_as_it_is(what: str, given: Json, redact: Redact) -> None:
    try:
        check(given)
    except BadJson as error:
        raise AnswerRefusedError(f"The {what} of the answer: {error}. {_NOT_LEFT}") from None
    clean = redact_json_text(given, redact) if isinstance(given, str) else redact_json(given, redact)
    if clean not in (None, given):
        raise AnswerRefusedError(
            f"There is something in the {what} of the answer that is a secret or looks like one, and a secret is not "
            f"written down. {_NOT_LEFT} Leave the secret out, or answer in the process that has the run."
        )
