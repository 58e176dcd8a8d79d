"""The web page: static files, and Markdown rendering (docs/gateway.md, "The page").

    /                      index.html; revalidated each time (`no-cache`, with an ETag)
    /page/<digest>/<file>  the files; a changed one has another address, so browsers keep them for a year
    POST /page/markdown    the Markdown of an answer as a tree of elements, for a page that is signed in

All files are read once, when the gateway starts: requests are looked up by name and never become paths.
"""

from __future__ import annotations

import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.core.canonical_json import content_hash, read_json
from hearthnet.gateway.page.markdown import MarkdownText, read_markdown

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_REVALIDATED: Final = "no-cache"
_INDEX: Final = "index.html"
_TOOLS: Final = "tools.json"
_MARKDOWN: Final = msgspec.json.Decoder(MarkdownText)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes `/` and `/page/...`.

    Except for Markdown they need no client, and they contain no data of the node.
    """

    async def markdown(request: Request) -> Response:
        """Return the tree of a text."""
        await gateway.clients.from_request(request)
        said = read_json(await request.body(), _MARKDOWN)
        return JSONResponse({"tree": await read_markdown(said.text)})

    page = Page(_files(resources.files(__package__) / "static"))
    return [
        Route("/", page.index, methods=["GET"]),
        Route("/page/markdown", markdown, methods=["POST"]),
        Route("/page/{path:path}", page.file, methods=["GET"]),
    ]


class Page:
    """The files by their names, as bytes."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files: Final = {**files, _TOOLS: _tools()}
        index = self._files.pop(_INDEX)
        self.version: Final = content_hash(b"".join(_framed(self._files, index)))[7:23]
        self._index: Final = _filled(index, f"/page/{self.version}", sorted(self._files))
        self._tag: Final = f'"{content_hash(self._index)[7:23]}"'

    async def index(self, request: Request) -> Response:
        """Return the page itself; 304 where the browser has it."""
        headers = {**_HEADERS, "Cache-Control": _REVALIDATED, "ETag": self._tag}
        if request.headers.get("if-none-match") == self._tag:
            return Response(status_code=304, headers=headers)
        return Response(self._index, headers=headers, media_type=_TYPES[".html"])

    async def file(self, request: Request) -> Response:
        """Return one of its files; 404 for any other name, and for files of another version."""
        version, _, name = request.path_params["path"].partition("/")
        found = self._files.get(name)
        if found is None or version != self.version:
            return Response(status_code=404, headers={**_HEADERS, "Cache-Control": "no-store"})
        kind = _TYPES["." + name.rpartition(".")[2]]
        return Response(found, headers={**_HEADERS, "Cache-Control": _IMMUTABLE}, media_type=kind)


def _files(folder: Traversable, prefix: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _files(entry, f"{prefix}{entry.name}/")
        elif "." + entry.name.rpartition(".")[2] in _TYPES:
            found[prefix + entry.name] = entry.read_bytes()
    return found


def _framed(files: dict[str, bytes], index: bytes) -> list[bytes]:
    named = [part for name in sorted(files) for part in (name.encode(), b"\0", files[name], b"\0")]
    return [*named, index]


def _filled(index: bytes, base: str, names: list[str]) -> bytes:
    modules = [f'<link rel="modulepreload" href="{base}/{name}">' for name in names if name.endswith(".js")]
    text = index.decode("utf-8").replace("{modules}", "\n".join(modules)).replace("{files}", base)
    return text.encode("utf-8")


def _tools() -> bytes:
    """Return the built-in tools, for selecting tools and editing calls."""
    tools: list[dict[str, Any]] = []
    for tool in builtin_tools():
        major, minor = tool.bound_version or (0, 0)
        tools.append(
            {
                "name": tool.name,
                "description": tool.description,
                "capability": f"{tool.bound_capability}@{major}.{minor}",
                "parameters_schema": tool.parameters_schema,
                "side_effects": tool.side_effects,
            }
        )
    return json.dumps({"tools": tools}, separators=(",", ":")).encode("utf-8")
