"""What is left for whoever moves a run on, by somebody who does not: an answer to a question, a wish to stop it.

A note lies in the log's file until it is taken, and whoever can write there can leave one. So a secret must not be in
it (`storable`), and reading one is bounded (`decode_note`).
"""

from typing import TypeAlias

import msgspec

from .call import Answer
from .errors import AnswerRefusedError
from .json import InvalidJsonError, Json, check_value, escape_surrogates
from .redaction import RedactFunction, redact_json, redact_json_text

MAX_COMMAND_BYTES = 1 << 20


class AnswerCommand(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True):
    action_id: str
    answer: Answer
    #: Of what was looked at; empty: not said.
    payload_hash: str = ""


class CancelCommand(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    message: str = ""
    by: str = ""


Command: TypeAlias = AnswerCommand | CancelCommand

encode_command = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Command).decode


def decode_command(body: bytes) -> Command:
    """`msgspec.DecodeError` for anything else than a note that `storable` would have let pass."""
    try:
        if len(body) > MAX_COMMAND_BYTES:
            raise ValueError(f"it has more than {MAX_COMMAND_BYTES} bytes")
        command = _decode(body)
        if isinstance(command, AnswerCommand):
            check_value(command.answer.arguments)
            check_value(command.answer.value)
    except (ValueError, TypeError, RecursionError) as error:
        raise msgspec.DecodeError(f"the note cannot be read: {error}") from None
    return command


def command_key(command: Command) -> str:
    """One answer for each question, one end for the run: the first one stands."""
    return f"answer:{command.action_id}" if isinstance(command, AnswerCommand) else "cancel"


def redact_command(command: Command, redact: RedactFunction) -> Command:
    """The note as it may lie in a file. Secrets are taken out of what is said; what is to be run is left as it is or
    not at all, because the process that takes the note would run something else: then `AnswerRefusedError`."""

    def clean(text: str) -> str:
        return redact(escape_surrogates(text))

    match command:
        case CancelCommand():
            redacted: Command = CancelCommand(clean(command.message), clean(command.by))
        case AnswerCommand(answer=answer):
            for what, given in (("arguments", answer.arguments), ("value", answer.value), ("rule", answer.rule)):
                _require_no_secret(what, given, redact)
            spoken = msgspec.structs.replace(answer, reason=clean(answer.reason), by=clean(answer.by))
            redacted = msgspec.structs.replace(command, answer=spoken)
    if len(encode_command(redacted)) > MAX_COMMAND_BYTES:
        raise AnswerRefusedError(f"The answer has more than {MAX_COMMAND_BYTES} bytes. {_NOT_QUEUED}")
    return redacted


_NOT_QUEUED = "Another process has the run, and such an answer cannot be left for it. Nothing was changed."


def _require_no_secret(what: str, given: Json, redact: RedactFunction) -> None:
    try:
        check_value(given)
    except InvalidJsonError as error:
        raise AnswerRefusedError(f"The {what} of the answer: {error}. {_NOT_QUEUED}") from None
    clean = redact_json_text(given, redact) if isinstance(given, str) else redact_json(given, redact)
    if clean not in (None, given):
        raise AnswerRefusedError(
            f"There is something in the {what} of the answer that is a secret or looks like one, and a secret is not "
            f"written down. {_NOT_QUEUED} Leave the secret out, or answer in the process that has the run."
        )
