"""The web pages: static files that load nothing from other hosts and contain no data.

Their data comes from the API's routes, with the key that the reader enters.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.resources import files

from fastapi import APIRouter, Response

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {  # of the core: address -> PACKAGE/FILE, which lies in the package's folder `static`
    "/reliability": "rerank.serving/reliability.html",
    **{
        f"/static/{name}": f"rerank.serving/{name}"
        for name in ("icon.svg", "page.css", "page.js", "reliability.js")
    },
}
LINK = re.compile(rb' ?<a href="(/\w*)"[^>]*>\w+</a>')  # to a page, in the list of pages
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(pages: Mapping[str, str], unlinked: Collection[str] = ()) -> APIRouter:
    """One route per file of the core and of the rooms; all are read at the start.

    A page links to those alone that are there and are not among `unlinked`, and to itself.
    """
    router = APIRouter(include_in_schema=False)
    linked = {path.encode() for path in pages if path not in unlinked}
    for path, name in pages.items():
        package, _, file = name.partition("/")
        content = files(package).joinpath("static", file).read_bytes()
        if file.endswith(".html"):
            for link in LINK.finditer(content):
                if link[1] not in (*linked, path.encode()):
                    content = content.replace(link[0], b"")
        kind = f"{KINDS[file.rpartition('.')[2]]}; charset=utf-8"
        router.api_route(path, methods=["GET", "HEAD"])(_serve(content, kind))
    return router


def _serve(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return page
