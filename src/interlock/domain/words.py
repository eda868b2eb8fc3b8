"""Texts that are put together: safe whatever they are made of, whole sentences, and of bounded length."""

from .envelope import neutralize


def sentence(text: str) -> str:
    """The text with a full stop, so that another sentence can follow."""
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."


def error_text(error: BaseException) -> str:
    """An exception as one safe line: its text may come from anywhere, and may not even be text."""
    try:
        return neutralize(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__


def shown(value: object, max_chars: int) -> str:
    """A value as it may be quoted: all of it, or what kind of thing it is. Never a part, which may end in a secret."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return neutralize(text) if len(text) <= max_chars else f"a {type(value).__name__} of {len(text):,} characters"


def shorten(text: str, max_chars: int) -> str:
    """The text, or its beginning and how much is missing. For texts without secrets: cut after redacting."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]} [... {len(text) - max_chars:,} more characters]"
