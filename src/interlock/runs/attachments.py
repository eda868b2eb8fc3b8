"""Attachments from files."""

from os import O_NONBLOCK, O_RDONLY, PathLike, fsdecode, fstat
from os import open as open_file
from os.path import basename
from stat import S_ISREG

from ..domain.attachments import MAX_ATTACHMENT_BYTES, Attachment
from ..domain.errors import ConfigurationError


def attach(path: str | PathLike[str]) -> Attachment:
    """Read an image or a file for a message. Raise `ConfigurationError` when it is no plain file, or too large."""
    try:
        # Not blocking: a pipe without a writer must not block us.
        with open(open_file(path, O_RDONLY | O_NONBLOCK), "rb") as file:
            if not S_ISREG(fstat(file.fileno()).st_mode):
                raise ConfigurationError(f"{fsdecode(path)} is no plain file, so it cannot be attached.")
            content = file.read(MAX_ATTACHMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{fsdecode(path)} cannot be attached: {error}.") from None
    if len(content) > MAX_ATTACHMENT_BYTES:
        raise ConfigurationError(f"{fsdecode(path)} is larger than {MAX_ATTACHMENT_BYTES:,} bytes.")
    return Attachment(content, basename(fsdecode(path)))
