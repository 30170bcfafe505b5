"""Who may look: this machine, or whoever has the token, over TLS.

Every answer, refusals too, carries headers that let a browser load nothing from elsewhere, keep
nothing and show the page in no frame. A request names a host that is meant, so that a page of
another site cannot read this one through a name of its own (DNS rebinding).
"""

import base64
import binascii
import hmac
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from epifed.errors import EpifedError

LEAST_TOKEN = 32
"""Characters of a token, which is made, not thought of."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
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
METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Access:
    """Where the page is served, and what a request must bring."""

    host: str
    names: tuple[str, ...]
    """Hosts that a request may name."""
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of(
        cls, host: str, token: Path | None, certificate: Path | None, key: Path | None
    ) -> "Access":
        """Checked: beyond this machine only with a token and TLS."""
        if (certificate is None) != (key is None):
            raise EpifedError("found one of --certificate and --key; expected both or neither")
        if not _is_loopback(host) and (token is None or certificate is None):
            raise EpifedError(
                f"--host: found {host}, which other machines can reach; expected --token-file, "
                "--certificate and --key with it, or 127.0.0.1"
            )
        names: tuple[str, ...] = LOOPBACK
        if certificate is not None and key is not None:
            _refuse_open(key)
            names = (*names, *_names(certificate))
            _refuse_unusable(certificate, key)
        return cls(host, names, _token(token) if token else None, certificate, key)

    @property
    def scheme(self) -> str:
        """Of its address."""
        return "https" if self.certificate else "http"


class Guarded:
    """An application behind the rules: method, token, and headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if scope["method"] not in METHODS:
            allowed = {"allow": ", ".join(METHODS)}
            return PlainTextResponse("This page can only be read.\n", 405, allowed)
        if self.access.token is None or _brings(Headers(scope=scope), self.access.token):
            return None
        asked = {"www-authenticate": 'Basic realm="epifed", charset="UTF-8"'}
        return PlainTextResponse("The token is missing or wrong.\n", 401, asked)


def _brings(headers: Headers, token: str) -> bool:
    """Whether a request brings the token: as a bearer, or as the password of whatever user."""
    kind, _, said = headers.get("authorization", "").partition(" ")
    given = said.strip()
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    elif kind.lower() != "bearer":
        given = ""
    return hmac.compare_digest(given.encode(), token.encode())


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise EpifedError(
            f"--host: found '{host}'; expected an address of this machine, such as 127.0.0.1"
        ) from None


def _token(path: Path) -> str:
    _refuse_open(path)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EpifedError(f"{path}: expected text: a token") from None
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise EpifedError(
            f"{path}: found a token of {len(token)} characters; expected at least {LEAST_TOKEN} "
            "plain ones, as 'openssl rand -hex 32' makes them"
        )
    return token


def _refuse_open(path: Path) -> None:
    """Refuse a secret that others on this machine can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & 0o077:
        raise EpifedError(f"{path}: others can read it; expected 'chmod 600'")


def _names(certificate: Path) -> tuple[str, ...]:
    """The hosts that a certificate is for, which requests may name."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise EpifedError(f"{certificate}: cannot be read: {error.strerror}") from None
    except (ValueError, x509.ExtensionNotFound):
        raise EpifedError(
            f"{certificate}: expected a certificate as PEM that names its hosts"
        ) from None
    found_at = names.get_values_for_type(x509.IPAddress)
    addresses = [f"[{one}]" if one.version == 6 else str(one) for one in found_at]
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _refuse_unusable(certificate: Path, key: Path) -> None:
    def no_password() -> Any:
        raise EpifedError(f"{key}: found a key with a password; expected one without")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, no_password)
    except (ssl.SSLError, OSError) as error:
        raise EpifedError(
            f"{key}: expected the private key of {certificate.name}; {error}"
        ) from None
