"""Who may see what `plog inspect --web` serves: whoever opened the printed address first, and nobody else.

The address has a token, which works once: the browser gets a cookie for it. Everything else needs that cookie. Two more
things are looked at, since a page of somebody else's may send requests too, from the same browser: `Host` must name
this server (a foreign name that was made to lead here does not, which is called DNS rebinding), and the page that opens
the websocket must be ours (`Origin`).
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping

from core.common.endpoint import Endpoint

_SECRET_BYTES = 32
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[0-9a-z._-]{1,253})(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # xterm.js makes style elements
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            # Without allow-popups, allow-modals, allow-downloads: xterm.js makes links of addresses in records.
            "sandbox allow-scripts allow-same-origin",
        )
    ),
    "Permissions-Policy": "clipboard-read=()",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer says: nothing is loaded from elsewhere, shown elsewhere, kept, or told to others."""


class WebGuard:
    """The token, then the cookie. Owned by the server's loop."""

    def __init__(self, endpoint: Endpoint, machine: str) -> None:
        """`machine` is this computer's name."""
        self.endpoint = endpoint
        """Where the server listens; port 0 until it does."""
        self._machine = machine
        self._token: str | None = secrets.token_urlsafe(_SECRET_BYTES)
        self._cookie = secrets.token_urlsafe(_SECRET_BYTES)

    @property
    def cookie_name(self) -> str:
        """Two servers on one host need two names: to cookies, ports are all the same."""
        return f"plog-inspect-{self.endpoint.port}"

    @property
    def address(self) -> str:
        """The server's address, without the token."""
        host = self._machine if self.endpoint.is_wildcard else self.endpoint.host
        return f"http://{Endpoint(host, self.endpoint.port)}/"

    @property
    def first_address(self) -> str:
        """The address that opens the door, once."""
        assert self._token is not None
        return f"{self.address}?token={self._token}"

    def take_token(self, token: str) -> str | None:
        """Gives the value of the cookie for the token, the first time; None for another, and from then on."""
        if self._token is None or not _is_same(token, self._token):
            return None
        self._token = None
        return self._cookie

    def is_known(self, cookie: str | None) -> bool:
        """Says whether somebody who brings that cookie got it here."""
        return cookie is not None and _is_same(cookie, self._cookie)

    def is_for_us(self, host: str | None) -> bool:
        """Says whether a `Host` header names this server. The port may be another one: of a tunnel that leads here."""
        found = _HOST.fullmatch(host or "")
        if found is None:
            return False
        name = found["name"].strip("[]").lower()
        if self.endpoint.is_wildcard:
            return name in ("localhost", self._machine.lower()) or _is_address(name)
        return name == self.endpoint.host.lower() or (self.endpoint.is_loopback and name in _LOOPBACK_NAMES)

    def is_own_page(self, origin: str | None, host: str | None) -> bool:
        """Says whether a page with that origin came from this server."""
        return self.is_for_us(host) and origin in (f"http://{host}", f"https://{host}")


def _is_same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _is_address(name: str) -> bool:
    """A number cannot be made to lead elsewhere, as a name can."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
