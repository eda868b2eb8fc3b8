"""Attachments: images and files in messages of users and results of tools. Their type is detected by content."""

from collections.abc import Sequence
from typing import TypeAlias, cast

import msgspec

from .errors import ConfigurationError
from .file_kind import detect_media_type
from .json import validate_fields

#: The kind of the artifact that holds an attachment.
ATTACHMENT = "attachment"
MAX_ATTACHMENTS = 20
MAX_ATTACHMENT_BYTES = 20 << 20
_MAX_NAME_CHARS = 200


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
