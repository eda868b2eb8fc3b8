"""Any value of a tool as text or as plain JSON data, without ever raising."""

from typing import TYPE_CHECKING, Any

from .. import lazy_module
from ..domain.json import encode, parse
from ..domain.tool import OutputFormat

if TYPE_CHECKING:
    import pydantic_core
else:
    pydantic_core = lazy_module("pydantic_core")


def as_text(value: Any) -> tuple[str, OutputFormat]:
    """Return any value that is no string as text, without ever raising."""
    if value is None:
        return "", "text"
    if isinstance(value, str):
        return str(value), "text"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace"), "text"
    return encode(json_safe(value)).decode(), "json"


def json_safe(value: Any) -> Any:
    """Return the value as plain JSON data; what JSON does not know becomes its text."""
    try:
        return parse(pydantic_core.to_json(value, serialize_unknown=True, inf_nan_mode="strings", bytes_mode="base64"))
    except Exception:
        return _described(value)


def _described(value: Any) -> str:
    try:
        return repr(value).encode(errors="backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
