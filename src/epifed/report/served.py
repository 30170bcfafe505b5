"""What pages that a server shows have in common: their files, and the headers of each answer."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from epifed.report.html import framed, in_one, library

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guarded:
    """An application behind a check of each request, with headers that let a browser load no more.

    `check` gives the answer to a request that does not get through, or nothing.
    """

    def __init__(self, app: ASGIApp, check: Callable[[Scope], Response | None]) -> None:
        self.app, self.check = app, check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self.check(scope)
        await (answer or self.app)(scope, receive, with_headers)


@dataclass(frozen=True)
class Asset:
    """A file that never changes under its name."""

    content: str
    media_type: str


def served_page(
    main: str, styles: Sequence[str], scripts: Sequence[str], *, printed: bool = False
) -> tuple[str, dict[str, Asset]]:
    """A page around its main part, and its files under `assets/`, named after what is in them."""
    page_files = {
        "page.css": Asset("\n".join(styles), "text/css"),
        "echarts.js": Asset(library(), "text/javascript"),
        "page.js": Asset(in_one(scripts), "text/javascript"),
    }
    names = {name: _named(name, file.content) for name, file in page_files.items()}
    head = (
        '<meta name="robots" content="noindex">\n<title>epifed</title>\n'
        f'<link rel="stylesheet" href="assets/{names["page.css"]}">\n'
        f'<script src="assets/{names["echarts.js"]}" defer></script>\n'
        f'<script src="assets/{names["page.js"]}" defer></script>'
    )
    page = framed(head, main, printed=printed)
    return page, {names[name]: file for name, file in page_files.items()}


def _named(name: str, content: str) -> str:
    stem, ending = name.split(".")
    return f"{stem}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.{ending}"
