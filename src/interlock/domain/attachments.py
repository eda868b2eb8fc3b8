"""Attachments: images and files in messages of users and results of tools. Their type is detected by content."""

from collections.abc import Sequence
from typing import TypeAlias, cast

import msgspec

from .errors import ConfigurationError
from .json import validate_fields

#: The kind of the artifact that holds an attachment.
ATTACHMENT = "attachment"
TEXT_TYPE, UNKNOWN_TYPE = "text/plain", "application/octet-stream"
#: Images and documents that providers take.
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", TEXT_TYPE)
MAX_ATTACHMENTS = 20
MAX_ATTACHMENT_BYTES = 20 << 20
_MAX_NAME_CHARS = 200
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class Attachment(msgspec.Struct, frozen=True):
    """An image or a file, for a message of a user or as the result of a tool.

    `await runner.start(["What is wrong here?", attach("screen.png")])`
    """

    content: bytes
    #: For people and the model. It says nothing about the type.
    name: str = ""

    def __post_init__(self) -> None:
        """Reject content that is no bytes: a text would be taken for base64."""
        validate_fields(self)
        if not isinstance(cast(object, self.content), bytes):
            raise msgspec.ValidationError("Attachment.content: Expected `bytes`, got `str`")

    @property
    def media_type(self) -> str:
        """The type, detected by content."""
        return detect_media_type(self.content)


#: What a user says: text, or texts and attachments.
UserContent: TypeAlias = str | Sequence[str | Attachment]


def detect_media_type(content: bytes) -> str:
    """Return the media type of a content by its bytes: one of `MEDIA_TYPES`, or `application/octet-stream`."""
    for signature, media_type in _SIGNATURES:
        if content.startswith(signature):
            return media_type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return UNKNOWN_TYPE
    return UNKNOWN_TYPE if "\0" in text else TEXT_TYPE


def describe_attachment(name: str, media_type: str, size_bytes: int, artifact_id: str) -> str:
    """Return the line that stands for an attachment in a text."""
    named = f" {name[:_MAX_NAME_CHARS]}" if name else ""
    return f"[attachment{named}: {media_type}, {size_bytes:,} bytes, {artifact_id}]"


def split_content(content: UserContent) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text and the attachments of what a user says. Raise `ConfigurationError` for anything else, and for
    too much.
    """
    if isinstance(content, str):
        return content, ()
    items = tuple(content) if isinstance(content, list | tuple) else (content,)
    if wrong := [item for item in items if not isinstance(item, str | Attachment)]:
        found = type(wrong[0]).__name__
        raise ConfigurationError(
            f"What is said is text, or a list of texts and attachments, and this is a {found}. Nothing was started."
        )
    texts = [item for item in items if isinstance(item, str)]
    attachments = tuple(item for item in items if isinstance(item, Attachment))
    if len(attachments) > MAX_ATTACHMENTS:
        raise ConfigurationError(f"A message has at most {MAX_ATTACHMENTS} attachments. Nothing was started.")
    for attachment in attachments:
        if len(attachment.content) > MAX_ATTACHMENT_BYTES:
            size = len(attachment.content)
            raise ConfigurationError(
                f"An attachment of {size:,} bytes is over the limit of {MAX_ATTACHMENT_BYTES:,}. Nothing was started."
            )
    return "\n\n".join(texts), attachments
