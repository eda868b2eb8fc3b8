"""The console's own files: read once, known by what is in them, so that a browser keeps each for ever."""

import mimetypes
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

_FOLDER = Path(__file__).parent / "static"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    kind: str
    digest: str


class Assets:
    def __init__(self, prefix: str, folder: Path = _FOLDER) -> None:
        self._prefix = prefix
        self._assets: Mapping[str, Asset] = {path.name: _asset(path) for path in sorted(folder.iterdir())}

    def url(self, name: str) -> Markup:
        """Changes with the file."""
        return Markup("{}/{}?v={}").format(self._prefix, name, self._assets[name].digest)

    def respond(self, request: Request, name: str) -> Response:
        asset = self._assets.get(name)
        if asset is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        tag = f'"{asset.digest}"'
        is_named = request.query_params.get("v") == asset.digest
        headers = {"ETag": tag, "Cache-Control": _FOR_EVER if is_named else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.kind, headers=headers)


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    kind = _KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(body, kind, sha256(body).hexdigest()[:16])
