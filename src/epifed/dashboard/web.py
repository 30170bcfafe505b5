"""The web layer: four addresses, all to be read only."""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

from fastapi import FastAPI, Header, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp

from epifed.dashboard.access import Access, Guarded
from epifed.dashboard.metrics import CONTENT_TYPE
from epifed.dashboard.watching import Watching
from epifed.report.html.write import asset, library

SHARED_STYLES = ("page.css", "print.css")
"""Of the report, as are the scripts below and the charting library."""
SHARED_SCRIPTS = ("format.js", "charts.js", "tables.js", "controls.js")
OWN_STYLES = ("board.css",)
OWN_SCRIPTS = ("words_en.js", "words_de.js", "data.js")
OWN_LAST = ("sites.js", "weeks.js", "budget.js", "about.js", "main.js")
READ = ["GET", "HEAD"]


@dataclass(frozen=True)
class Asset:
    """A file that never changes under its name."""

    content: str
    media_type: str


def assets() -> dict[str, Asset]:
    """Style, script and charting library, by names that say what is in them."""
    styles = [*(asset(name) for name in SHARED_STYLES), *(own(name) for name in OWN_STYLES)]
    scripts = [
        *(own(name) for name in OWN_SCRIPTS),
        *(asset(name) for name in SHARED_SCRIPTS),
        *(own(name) for name in OWN_LAST),
    ]
    together = "(function () {\n'use strict';\n" + "\n".join(scripts) + "\n})();"
    found = {
        "board.css": Asset("\n".join(styles), "text/css"),
        "echarts.js": Asset(library(), "text/javascript"),
        "board.js": Asset(together, "text/javascript"),
    }
    return {_named(name, one.content): one for name, one in found.items()}


def own(name: str) -> str:
    """A file of the page."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def make_app(watching: Watching, access: Access) -> ASGIApp:
    """The application, behind the rules of access."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    kept = assets()
    places = {re.sub(r"-\w+\.", ".", name): f"assets/{name}" for name in kept}
    page = re.sub(r"\{\{([\w.]+)\}\}", lambda mark: places[mark[1]], own("page.html"))

    @app.api_route("/", methods=READ)
    async def _page() -> Response:
        return Response(page, media_type="text/html")

    @app.api_route("/assets/{name}", methods=READ)
    async def _asset(name: str) -> Response:
        if name not in kept:
            return Response("not here\n", 404, media_type="text/plain")
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(kept[name].content, 200, headers, kept[name].media_type)

    @app.api_route("/api/state", methods=READ)
    async def _state(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        now = watching.snapshot
        headers = {"etag": f'"{now.tag}"'}
        if if_none_match == headers["etag"]:
            return Response(None, 304, headers)
        return Response(now.state, 200, headers, "application/json")

    @app.api_route("/metrics", methods=READ)
    async def _metrics() -> Response:
        return Response(watching.snapshot.metrics, headers={"content-type": CONTENT_TYPE})

    zipped = GZipMiddleware(app, minimum_size=2000)
    trusted = TrustedHostMiddleware(zipped, list(access.names), www_redirect=False)
    return Guarded(trusted, access)


def _named(name: str, content: str) -> str:
    stem, ending = name.split(".")
    return f"{stem}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.{ending}"
