"""What is left for whoever moves a run on, by somebody who does not: an answer to a question, a wish to stop it."""

from typing import TypeAlias

import msgspec

from .call import Answer


class AnswerNote(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True):
    action_id: str
    answer: Answer
    #: Of what was looked at; empty: not said.
    payload_hash: str = ""


class CancelNote(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    message: str = ""


NoteBody: TypeAlias = AnswerNote | CancelNote

encode_note = msgspec.json.Encoder().encode
decode_note = msgspec.json.Decoder(NoteBody).decode


def key_of(note: NoteBody) -> str:
    """One answer for each question, one end for the run: the first one stands."""
    return f"answer:{note.action_id}" if isinstance(note, AnswerNote) else "cancel"
