"""The web pages: static files that load nothing from other hosts and contain no data.

Their data comes from the API's routes, with the key that the reader enters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Response

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {
    "/": "ask.html",
    "/reliability": "reliability.html",
    "/watch": "watch.html",
    "/label": "label.html",
    **{
        f"/static/{name}": name
        for name in (
            *("icon.svg", "page.css", "page.js", "document.js"),
            *("ask.js", "reliability.js", "watch.js", "label.js"),
        )
    },
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


LABEL_LINK = b' <a href="/label">Label</a>'


def page_routes(*, labels: bool) -> APIRouter:
    """One route per file; all files are read when the server starts.

    labels: whether the server takes labels; without them no page has a link to the Label page.
    """
    router = APIRouter(include_in_schema=False)
    for path, name in PAGES.items():
        content = files("rerank.serving").joinpath("static", name).read_bytes()
        if not labels:
            content = content.replace(LABEL_LINK, b"")
        kind = f"{KINDS[name.rpartition('.')[2]]}; charset=utf-8"
        router.api_route(path, methods=["GET", "HEAD"])(_serve(content, kind))
    return router


def _serve(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return page
