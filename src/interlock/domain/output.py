"""What is kept and shown of an output: where all of it is, how much of it is shown, and how to read more."""

import msgspec

from .json import JsonObject


class ArtifactRef(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Full evidence kept by reference: `id` is the digest of its content."""

    id: str
    kind: str
    size_bytes: int
    path: str = ""


class OutputSize(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Byte-exact: `produced = shown + omitted`; `kept` bytes are in the artifact."""

    produced: int
    kept: int
    shown: int
    omitted: int


class NextTool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    tool: str
    input_hint: JsonObject
