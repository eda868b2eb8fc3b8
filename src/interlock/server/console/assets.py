"""Static files of the console: read once, addressed by digest, so that browsers cache them for ever.

A module that imports another one does so by that one's whole address, with its digest: a browser takes two addresses
for two modules, and would start the same one twice. So digests are worked out from the modules that import nothing on.
"""

import mimetypes
import re
from graphlib import TopologicalSorter
from hashlib import sha256
from pathlib import Path

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from .addresses import add_public_path

_STATIC_FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_SUFFIXES_WITH_ADDRESSES = (".js", ".json", ".webmanifest")
_IMPORT_STATEMENT = re.compile(r'(\bfrom\s+"\./)([\w.-]+\.js)(")')
_IMMUTABLE = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    """A static file."""

    body: bytes
    kind: str
    digest: str


class Assets:
    """The static files of the console."""

    def __init__(self, prefix: str, folder: Path = _STATIC_FOLDER, *, public_path: str = "") -> None:
        self._prefix = prefix
        self._assets = _build_assets({path.name: _read(path, public_path) for path in sorted(folder.iterdir())})

    def url(self, name: str) -> Markup:
        """Return the URL of a file, which changes with its content."""
        return Markup("{}/{}?v={}").format(self._prefix, name, self._assets[name].digest)

    def respond(self, request: Request, name: str) -> Response:
        """Respond with a static file. Cache it forever if its digest is in the URL."""
        asset = self._assets.get(name)
        if asset is None:
            return Response("Unknown file.", 404, media_type="text/plain")
        tag = f'"{asset.digest}"'
        is_versioned = request.query_params.get("v") == asset.digest
        headers = {"ETag": tag, "Cache-Control": _IMMUTABLE if is_versioned else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.kind, headers=headers)


def _read(path: Path, public_path: str) -> bytes:
    """Return the content of a file, with the path before the addresses that it has."""
    content = path.read_bytes()
    has_addresses = public_path and path.suffix in _SUFFIXES_WITH_ADDRESSES
    return add_public_path(content.decode(), public_path).encode() if has_addresses else content


def _build_assets(bodies: dict[str, bytes]) -> dict[str, Asset]:
    built: dict[str, Asset] = {}

    def addressed(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}?v={built[match[2]].digest}{match[3]}"

    for name in TopologicalSorter({name: _list_imports(name, body) for name, body in bodies.items()}).static_order():
        body = bodies[name]
        built[name] = _build_asset(
            name, _IMPORT_STATEMENT.sub(addressed, body.decode()).encode() if name.endswith(".js") else body
        )
    return built


def _list_imports(name: str, body: bytes) -> list[str]:
    return [match[2] for match in _IMPORT_STATEMENT.finditer(body.decode())] if name.endswith(".js") else []


def _build_asset(name: str, body: bytes) -> Asset:
    media_type = _MEDIA_TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(body, media_type, sha256(body).hexdigest()[:16])
