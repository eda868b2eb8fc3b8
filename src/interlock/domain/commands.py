"""Commands for the process that owns a run: answer a question, or cancel the run.

A command is stored in the log's database until the owner takes it, and anyone with write access there can add one. So
it must hold no secret (`redact_command`), and decoding it is bounded (`decode_command`).
"""

from typing import TypeAlias

import msgspec

from .call import Answer
from .errors import AnswerRefusedError
from .json import InvalidJsonError, Json, check_value, escape_surrogates
from .redaction import RedactFunction, redact_json, redact_json_text

MAX_COMMAND_BYTES = 1 << 20


class AnswerCommand(msgspec.Struct, frozen=True, tag="answer", omit_defaults=True):
    """A command that delivers the answer to a question."""

    action_id: str
    answer: Answer
    #: Hash of the payload that the person saw; empty: not given.
    payload_hash: str = ""
    #: When it was given, in nanoseconds since 1970. An answer that was given in time counts when it is recorded later.
    at: int = 0


class AnswerClaim(msgspec.Struct, frozen=True, tag="claim", omit_defaults=True):
    """Reserves a question for an answer that the owner of the run records itself. It is void without that lease."""

    action_id: str
    approved: bool
    by: str
    at: int
    #: The lease of the owner.
    token: int


class CancelCommand(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    """A command that cancels the run."""

    message: str = ""
    by: str = ""


Command: TypeAlias = AnswerCommand | AnswerClaim | CancelCommand

encode_command = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Command).decode


def decode_command(body: bytes) -> Command:
    """Decode a command. Raise `msgspec.DecodeError` for anything that `redact_command` would not have accepted."""
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
    """Return the deduplication key: one answer per question and one cancellation per run; the first one counts."""
    return "cancel" if isinstance(command, CancelCommand) else answer_key(command.action_id)


def answer_key(action_id: str) -> str:
    """Return the deduplication key of every answer to a question."""
    return f"answer:{action_id}"


def redact_command(command: Command, redact: RedactFunction) -> Command:
    """Return the command in storable form, with secrets redacted from its texts.

    Arguments and rules are stored unchanged or not at all, because the receiving process would otherwise run something
    else: then raise `AnswerRefusedError`.
    """

    def clean(text: str) -> str:
        return redact(escape_surrogates(text))

    match command:
        case CancelCommand():
            redacted: Command = CancelCommand(clean(command.message), clean(command.by))
        case AnswerClaim():
            redacted = msgspec.structs.replace(command, by=clean(command.by))
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
