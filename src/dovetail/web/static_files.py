"""Serves the built pages of the dashboard: files of the package, and the start page for every path of the application.

Given the directory of built files, all of which are read once. Files whose name holds a digest may be kept for good.
Never serves anything outside that directory, never lists it.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response

from dovetail.web import problems
from dovetail.web.wire import responses

HOME: Final = Path(__file__).resolve().parent / "static"
START_PAGE: Final = "index.html"
_DIGEST: Final = re.compile(r"[.-][0-9A-Za-z_]{8,}\.\w+$")
_COMPRESSIBLE: Final = (".html", ".js", ".css", ".svg", ".json", ".map", ".txt", ".webmanifest")
_NO_PAGES: Final = (
    b"<!doctype html><title>Dovetail</title><p>The pages are not part of this installation. "
    b"The interface for programs is at /api/v1, its description at /openapi.json."
)


class _File(NamedTuple):
    body: responses.Body
    tag: str
    is_permanent: bool


class StaticFiles:
    """The files of one directory."""

    def __init__(self, home: Path = HOME) -> None:
        self._files: dict[str, _File] = {}
        if home.is_dir():
            for path in sorted(home.rglob("*")):
                if path.is_file() and path.suffix != ".py":
                    self._files[path.relative_to(home).as_posix()] = _read(path)

    def response(self, path: str, *, accept_encoding: str, if_none_match: str) -> Response:
        """The file of a path; the start page for paths of the application, such as /nodes/a.example.com."""
        name = path.lstrip("/")
        file = self._files.get(name)
        is_file = "/" not in name and "." in name  # built files lie at the top
        if file is None and not is_file:
            file = self._files.get(START_PAGE)
            if file is None:
                return Response(_NO_PAGES, media_type="text/html")
        if file is None:
            raise problems.not_found(f"there is no {path}")
        if responses.has_tag(if_none_match, file.tag):
            return responses.unchanged(file.tag)
        response = responses.sent(file.body, file.tag, accept_encoding)
        age = "public, max-age=31536000, immutable" if file.is_permanent else "no-cache"
        response.headers["Cache-Control"] = age
        response.headers["Vary"] = "Accept-Encoding"
        return response


def _read(path: Path) -> _File:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if path.suffix == ".js":
        media_type = "text/javascript"
    body = responses.Body(b"", media_type, {})
    body.plain = content
    if path.suffix in _COMPRESSIBLE and len(content) >= responses.SMALLEST_GZIP:
        body.zipped = gzip.compress(content, compresslevel=responses.GZIP_LEVEL, mtime=0)
    tag = f'W/"{hashlib.blake2b(content, digest_size=9).hexdigest()}"'
    return _File(body, tag, _DIGEST.search(path.name) is not None)
