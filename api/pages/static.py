"""Static files of the pages: read once, and named by their content, so that browsers keep them.

What reports of the simulator have, too, lies in ``scheduler.views``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from scheduler import views

if TYPE_CHECKING:
    from starlette.requests import Request

#: Style sheet, scripts and parts of pages that reports of the simulator have, too.
SHARED: Final = Path(views.__file__).parent / "assets"
_FOLDERS: Final = (Path(__file__).parent / "static", SHARED)
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _read() -> dict[str, bytes]:
    files = (file for folder in _FOLDERS for file in folder.iterdir() if file.suffix in _TYPES)
    return {file.name: file.read_bytes() for file in sorted(files)}


_FILES: Final = _read()
_DIGESTS: Final = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in _FILES.items()}


def static_urls(root: str, name: str) -> str:
    """Return the URL of a file.

    Args:
        root: relative URL of the first page.
        name: of the file.
    """
    return f"{root}static/{_DIGESTS[name]}/{name}"


async def serve_static(request: Request) -> Response:
    """Return a file; one of another release is answered, but not kept."""
    name = request.path_params["name"]
    data = _FILES.get(name)
    if data is None:
        raise HTTPException(404, "Not Found")
    is_current = request.path_params["digest"] == _DIGESTS[name]
    headers = {"cache-control": "public, max-age=31536000, immutable"} if is_current else {}
    return Response(data, media_type=_TYPES[Path(name).suffix], headers=headers)
