"""What a request is known by, so that a recorded answer can be told to belong to it."""

from hashlib import sha256

from ..domain.json import encode_sorted
from .interface import ModelRequest


def request_digest(request: ModelRequest) -> str:
    """Over everything that a model is asked."""
    try:
        encoded = encode_sorted(request)
    except UnicodeEncodeError:
        encoded = repr(request).encode(errors="backslashreplace")
    return "sha256:" + sha256(encoded).hexdigest()
