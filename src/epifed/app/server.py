"""The server of the page: on this machine only, for one browser, with no outside content.

The printed address has a token that works once; the browser gets a cookie in exchange. Every
request must name this address as its host, so that a page of another site cannot reach this one
through its own name (DNS rebinding). Requests that change something must come from the page.
"""

import contextlib
import hmac
import io
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from threading import Timer
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from epifed.app.session import PageSession
from epifed.errors import EpifedError, in_german
from epifed.report.html import asset
from epifed.report.served import Guarded, served_page

HOST = "127.0.0.1"
MOST_UPLOAD = 200 << 20
"""Most bytes of a file that is dropped on the page."""
MOST_ASKED = 1 << 20
"""Most bytes of any other request."""
SHARED_STYLES = ("page.css", "print.css")
"""Files shared with the report, as are the scripts below and the charting library."""
SHARED_SCRIPTS = ("format.js", "charts.js", "shapes.js", "tables.js", "controls.js")
OWN_WORDS = ("words_en.js", "words_de.js", "state.js")
OWN_SCRIPTS = ("file.js", "forecast.js", "member.js", "main.js")
ENTERED = (
    '<!doctype html><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="data:,">'
    "<title>epifed</title>"
)
STRANGER = """<!doctype html><html lang="en"><meta charset="utf-8"><title>epifed</title>
<h1>This page is open elsewhere, or its address was used before.</h1>
<p>Go to the window in which it is open. Or end the program in the terminal (Ctrl-C), then start it
again: <code>epifed open</code></p>
<h1 lang="de">Diese Seite ist anderswo offen, oder ihre Adresse wurde schon benutzt.</h1>
<p lang="de">Gehen Sie in das Fenster, in dem sie offen ist. Oder beenden Sie das Programm im
Terminal (Strg-C) und starten Sie es neu: <code>epifed open</code></p></html>
"""


@dataclass
class Door:
    """Access control: admits the browser that brings the token first, then by its cookie."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used: bool = False

    @property
    def cookie(self) -> str:
        """The cookie's name, with the port because cookies do not distinguish ports."""
        return f"epifed-{self.port}"

    @property
    def address(self) -> str:
        """The address with the token, which can be opened once."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def is_host(self, host: str) -> bool:
        """Whether a request names this address as its host."""
        return host in (f"{HOST}:{self.port}", f"localhost:{self.port}")

    def enter(self, token: str) -> bool:
        """Check a token; the right one is accepted once."""
        fits = hmac.compare_digest(token.encode(), self.token.encode()) and not self.used
        self.used = self.used or fits
        return fits

    def knows(self, headers: Headers) -> bool:
        """Whether a request has the right cookie."""
        try:
            brought = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return brought is not None and hmac.compare_digest(
            brought.value.encode(), self.secret.encode()
        )

    def check(self, scope: Scope) -> Response | None:
        """A refusal, or the cookie in exchange for the token; None if the request is admitted."""
        headers = Headers(scope=scope)
        if not self.is_host(headers.get("host", "")):
            return PlainTextResponse("Not the address of this page.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("This page takes no such request.\n", 405)
        if not self.knows(headers):
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            first = scope["method"] == "GET" and scope["path"] == "/" and self.enter(token)
            return self._entered() if first else HTMLResponse(STRANGER, 403)
        if not _from_page(scope["method"], headers):
            return PlainTextResponse("This comes from another page.\n", 403)
        return None

    def _entered(self) -> Response:
        """Set the cookie, and redirect the browser to the address without the token."""
        entered = HTMLResponse(ENTERED)
        entered.set_cookie(self.cookie, self.secret, httponly=True, samesite="strict", path="/")
        return entered


def _from_page(method: str, headers: Headers) -> bool:
    """Whether a request comes from the page, and not from another server's page here."""
    own = f"http://{headers['host']}"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return headers.get("origin", None if method == "POST" else own) == own


def make_app(desk: PageSession, door: Door) -> ASGIApp:
    """The application: the page, its assets, and the requests that the page makes."""
    styles = [*map(asset, SHARED_STYLES), own_asset("app.css")]
    scripts = [
        *map(own_asset, OWN_WORDS),
        *map(asset, SHARED_SCRIPTS),
        *map(own_asset, OWN_SCRIPTS),
    ]
    page, assets = served_page(own_asset("page.html"), styles, scripts, printed=True)

    async def answered(work: Callable[..., object], *arguments: Any) -> Response:
        """Run some work and return the new state; an error becomes a message."""
        try:
            await run_in_threadpool(work, *arguments)
        except EpifedError as error:
            return _refused(desk.plain(str(error)), 422)
        return JSONResponse(await run_in_threadpool(desk.state))

    async def show_page(_: Request) -> Response:
        return HTMLResponse(page)

    async def show_asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            return PlainTextResponse("not here\n", 404)
        return Response(assets[name].content, media_type=assets[name].media_type)

    async def show_state(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(desk.state))

    async def show_progress(_: Request) -> Response:
        done, of = desk.progress
        return JSONResponse({"done": done, "of": of})

    async def open_file(request: Request) -> Response:
        path, name = desk.new_file(request.query_params.get("name", ""))
        with path.open("wb") as out:
            whole = await _read(request, MOST_UPLOAD, out.write)
        if whole:
            return await answered(desk.open, path, name)
        path.unlink()
        most = f"{MOST_UPLOAD >> 20} MB"
        sentence = f"{name}: found more than {most}; expected a smaller file"
        return JSONResponse({"problem": sentence, "code": "too-big"}, 413)

    async def act(request: Request) -> Response:
        work = desk.actions().get(request.path_params["action"])
        if work is None:
            return PlainTextResponse("not here\n", 404)
        body = io.BytesIO()
        if not await _read(request, MOST_ASKED, body.write):
            return _refused("found too long a request", 413)
        return await answered(work, body.getvalue())

    async def take(request: Request) -> Response:
        try:
            path = await run_in_threadpool(desk.take, request.path_params["kind"])
        except EpifedError as error:
            return _refused(desk.plain(str(error)), 404)
        return FileResponse(path, filename=path.name)

    routes = [
        Route("/", show_page),
        Route("/assets/{name}", show_asset),
        Route("/api/state", show_state),
        Route("/api/progress", show_progress),
        Route("/api/take/{kind}", take),
        Route("/api/file", open_file, methods=["POST"]),
        Route("/api/{action}", act, methods=["POST"]),
    ]
    return Guarded(Starlette(routes=routes), door.check)


def _refused(sentence: str, status: int) -> Response:
    """An error message in the page's two languages."""
    return JSONResponse({"problem": sentence, "german": {sentence: in_german(sentence)}}, status)


async def _read(request: Request, most: int, write: Callable[[bytes], object]) -> bool:
    """Write the body of a request; returns False if it is longer than allowed."""
    size = 0
    async for block in request.stream():
        size += len(block)
        if size > most:
            return False
        write(block)
    return True


def own_asset(name: str) -> str:
    """The content of one of the page's own files."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def serve(desk: PageSession, port: int, say: Callable[[str], object], *, browser: bool) -> None:
    """Serve the page until the terminal ends it: Ctrl-C, a signal, or a closed window."""
    import uvicorn  # noqa: PLC0415

    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise EpifedError(
            f"--port {port}: cannot be listened on: {error.strerror or error}; expected a free port"
        ) from None
    door = Door(listener.getsockname()[1])
    config = uvicorn.Config(
        make_app(desk, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        server.should_exit = True

    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end)
    say(door.address)
    opening = Timer(0.5, webbrowser.open, [door.address])
    opening.daemon = True
    if browser:
        opening.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
