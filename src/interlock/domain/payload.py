"""The hash that binds an approval to exactly what was shown: SHA-256 over RFC 8785 canonical JSON."""

from hashlib import sha256

import rfc8785

from .json import BadJson
from .tool import JsonObject, ToolDefinition

_SCHEMA = "interlock/invocation/v1"


def payload_hash(run_id: str, call_id: str, tool: ToolDefinition, arguments: JsonObject) -> str:
    """`BadJson` when two readers could take the arguments for different values: nobody can approve that."""
    document = {
        "schema": _SCHEMA,
        "run": run_id,
        "call": call_id,
        "tool": {"origin": tool.origin, "source": tool.source, "name": tool.name, "version": tool.version},
        "arguments": arguments,
    }
    try:
        canonical = rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise BadJson(f"it has no canonical form: {error}") from None
    return "sha256:" + sha256(_SCHEMA.encode() + b"\n" + canonical).hexdigest()
