"""`Range: bytes=...` of RFC 9110, for one range. An invalid header is ignored; an unsatisfiable range is refused."""

import re
from typing import NamedTuple

from .errors import ApiError

_match_range = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII).fullmatch


class ByteRange(NamedTuple):
    """A byte range of an artifact."""

    start: int
    end: int
    is_partial: bool

    @property
    def length(self) -> int:
        return self.end - self.start


def parse_range(header: str, size: int) -> ByteRange:
    """Parse a range. Raise `ApiError` 416 where it is unsatisfiable."""
    if size < 0:
        raise ApiError(409, "artifact_lost", "The store does not have it any more.")
    match = _match_range(header.strip().replace(" ", ""))
    whole = ByteRange(0, size, is_partial=False)
    if match is None or match[0] == "bytes=-":
        return whole
    first, last = match[1], match[2]
    if not first:  # so many at the end
        byte_range = ByteRange(max(0, size - int(last)), size, is_partial=True)
    else:
        end = min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return whole
        byte_range = ByteRange(int(first), end, is_partial=True)
    if byte_range.length <= 0:
        raise ApiError(
            416,
            "range_outside",
            f"The artifact has {size} bytes, and none of them are in this range.",
            {"size": size},
            {"Content-Range": f"bytes */{size}"},
        )
    return byte_range
