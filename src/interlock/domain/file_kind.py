"""The kind of a file, by its content and never by its name."""

TEXT_TYPE, UNKNOWN_TYPE = "text/plain", "application/octet-stream"
#: How files begin whose kind is known; the bytes that matter, and where they are.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (8, b"WEBP", "webp"),
    (0, b"%PDF-", "pdf"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"PK\x05\x06", "zip"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (257, b"ustar", "tar"),
    (0, b"\x7fELF", "elf"),
    (0, b"MZ", "exe"),
    (0, b"\xcf\xfa\xed\xfe", "mach-o"),
    (0, b"\xca\xfe\xba\xbe", "java class or mach-o"),
    (0, b"\x00asm", "wasm"),
    (0, b"SQLite format 3\x00", "sqlite"),
    (4, b"ftyp", "mp4"),
    (0, b"ID3", "mp3"),
    (0, b"OggS", "ogg"),
    (0, b"RIFF", "riff"),
    (0, b"wOF2", "woff2"),
)
#: Images and documents that providers take.
_MEDIA_TYPES = {
    "png": "image/png",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
}
MEDIA_TYPES = (*_MEDIA_TYPES.values(), TEXT_TYPE)


def detect_file_kind(content: bytes) -> str:
    """Return the kind of a file by its first bytes; empty when unknown."""
    return next((kind for at, magic, kind in _MAGIC if content.startswith(magic, at)), "")


def detect_media_type(content: bytes) -> str:
    """Return the media type of a content by its bytes: one of `MEDIA_TYPES`, or `application/octet-stream`."""
    kind = detect_file_kind(content)
    if kind in _MEDIA_TYPES and (kind != "webp" or content.startswith(b"RIFF")):
        return _MEDIA_TYPES[kind]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return UNKNOWN_TYPE
    return UNKNOWN_TYPE if "\0" in text else TEXT_TYPE
