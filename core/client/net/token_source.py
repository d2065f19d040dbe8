"""Sources of OAUTHBEARER's tokens: a token in the settings, a file, or an endpoint that returns one for a secret.

    POST /token  Authorization: Basic base64(id:secret)  grant_type=client_credentials&scope=..
    -> {"access_token": "..", "expires_in": 3600}                                               (RFC 6749, 4.4)

Tokens are not verified here; their claims are read to know how long they are valid, and to explain why a broker refused
one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.client.net.connect_notice import is_this_machine
from core.common.endpoint import address_error
from core.common.errors import AuthenticationError
from core.security.client_security import BearerLogin, TokenEndpoint
from core.security.secret import hide_secrets

if TYPE_CHECKING:
    import socket
    from collections.abc import Buffer  # type: ignore[attr-defined]
    from http.client import HTTPResponse

_MOST_BYTES = 1 << 20
_USED_FOR = 0.8
"""The share of its lifetime in which a token is used, as in Java's client (sasl.login.refresh.window.factor)."""

_PAUSES = (0.5, 1.0)  # before each further try
_ASK_AGAIN_SECONDS = 10.0
"""The pause after a failed renewal while the old token was still valid."""

_SKEW_SECONDS = 30
_LONGEST_SECONDS = 10.0 * 365 * 86400
_HTTP_SERVER_ERROR = 500
_LEAST_HIDDEN = 8
"""The least length of a value in a URL's query that may be a secret."""

_IN_URLS = "!#$%&'()*+,/:;=?@[]~"


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    text: str
    use_until_s: float
    """When to fetch another one."""

    expires_s: float


class TokenSource:
    """Returns the same token while it is valid; may be used by several threads."""

    def __init__(
        self, login: BearerLogin, clock: Callable[[], float] = time.time, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._login = login
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()
        self._token: _Token | None = None
        self._skew_s = 0.0  # of the endpoint's clock against ours

    def token(self) -> str:
        """Returns the token. Raises AuthenticationError if it can't; the error shows no secret."""
        login = self._login
        if login.token is not None:
            return login.token.reveal()
        if login.token_file is not None:
            return _read(Path(login.token_file))
        assert login.endpoint is not None
        with self._lock:
            if self._token is None or self._clock() >= self._token.use_until_s:
                self._token = self._renewed(login.endpoint)
            return self._token.text

    def _renewed(self, endpoint: TokenEndpoint) -> _Token:
        """Returns a new token; if that fails, the present one while it is valid, as Java's client does it."""
        old, now_s = self._token, self._clock()
        if old is None or now_s >= old.expires_s:
            return self._ask(endpoint, _PAUSES)
        try:
            return self._ask(endpoint, ())
        except AuthenticationError:
            return replace(old, use_until_s=min(old.expires_s, now_s + _ASK_AGAIN_SECONDS))

    def forget(self) -> None:
        """Forgets the token after a broker refused it."""
        with self._lock:
            self._token = None

    def explain(self, token: str) -> str:
        claims = _claims(token)
        now_s = self._clock()
        parts = [f"{name} {claims[key]}" for key, name in _CLAIMS.items() if isinstance(claims.get(key), str | list)]
        for key, what in (("exp", "expires"), ("nbf", "is not good before"), ("iat", "was issued")):
            if isinstance(claims.get(key), int | float):
                parts.append(f"{what} {_utc(claims[key])}")
        text = f"the token: {', '.join(parts)}; " if parts else "the token is no JWT that can be read; "
        text += f"the clock here says {_utc(now_s)}"
        if abs(self._skew_s) > _SKEW_SECONDS:
            way = "behind" if self._skew_s > 0 else "ahead of"
            text += f", and is {abs(self._skew_s):.0f} s {way} the token endpoint's"
        return text

    # --- the endpoint

    def _ask(self, endpoint: TokenEndpoint, pauses: Sequence[float]) -> _Token:
        for pause_s in (*pauses, None):
            try:
                return self._ask_once(endpoint)
            except _TryAgainError as error:
                if pause_s is None:
                    raise AuthenticationError(
                        f"no token from {endpoint.shown}: {error}",
                        where=endpoint.shown,
                        hint="sasl.oauthbearer.token.endpoint.url: is it right, and does the endpoint run?",
                    ) from None
                self._pause(pause_s)
        raise AssertionError

    def _ask_once(self, endpoint: TokenEndpoint) -> _Token:
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError

        try:
            try:
                with _open(endpoint) as response:
                    self._note_time(response.headers.get("Date"))
                    return self._parse(_body(response, endpoint), endpoint)
            except HTTPError as error:
                with error:
                    raise _refusal(error.code, error.read(_MOST_BYTES), endpoint) from None
        except URLError as error:
            raise _failure(error.reason, endpoint) from None
        except OSError as error:
            raise _failure(error, endpoint) from None
        except HTTPException:
            raise _TryAgainError("its answer is not HTTP, or it was cut off") from None
        except UnicodeError as error:
            raise AuthenticationError(
                f"no token from {endpoint.shown}: {address_error(error).strerror}", where=endpoint.shown
            ) from None

    def _parse(self, body: bytes, endpoint: TokenEndpoint) -> _Token:
        found = _json(body)
        token = found.get("access_token")
        if not isinstance(token, str) or not token:
            raise AuthenticationError(
                f"{endpoint.shown} gives no token: its answer has no access_token", where=endpoint.shown
            )
        now_s = self._clock()
        claimed, expires_s = _number(found.get("expires_in")), _number(_claims(token).get("exp"))
        texts = [claimed, None if expires_s is None else expires_s - now_s]
        lifetime_s = min((one for one in texts if one is not None), default=0.0)
        lifetime_s = min(max(lifetime_s, 0.0), _LONGEST_SECONDS)
        return _Token(token, now_s + _USED_FOR * lifetime_s, now_s + lifetime_s)

    def _note_time(self, date: str | None) -> None:
        from email.utils import parsedate_to_datetime

        try:
            self._skew_s = parsedate_to_datetime(date or "").timestamp() - self._clock()
        except (TypeError, ValueError):
            self._skew_s = 0.0


_CLAIMS = {"sub": "of", "aud": "for", "iss": "by"}


class _TryAgainError(Exception):
    """A retriable failure."""


def _open(endpoint: TokenEndpoint) -> HTTPResponse:
    """Sends the request. Uses no proxy for an endpoint on this machine: the proxy would reach another machine's, and
    could read the secret without TLS.
    """
    import ssl
    from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
    from urllib.parse import quote, quote_plus, urlencode, urlsplit, urlunsplit
    from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    from core.files.tls_context import load_trust

    class NoRedirects(HTTPRedirectHandler):
        """Follows no redirect: the secret goes only to the configured endpoint."""

        def redirect_request(self, *_: Any) -> None:
            return None

    class Response(HTTPResponse):
        def __init__(self, connection: socket.socket, *arguments: Any, **more: Any) -> None:
            super().__init__(connection, *arguments, **more)
            raw = self.fp.detach()
            self.fp = BufferedReader(_Bounded(raw, connection, endpoint.read_timeout_s))

    class Connection(HTTPConnection):
        response_class = Response

    class SecuredConnection(HTTPSConnection):
        response_class = Response

    class Plain(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Connection, request)

    class Secured(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(SecuredConnection, request, context=context)

    context = ssl.create_default_context() if endpoint.trust is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if endpoint.trust is not None:
        load_trust(context, endpoint.trust)
    encoded = quote_plus if endpoint.url_encodes_header else str
    pair = f"{encoded(endpoint.client_id)}:{encoded(endpoint.client_secret.reveal())}"
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    parts = urlsplit(endpoint.url)
    host = (parts.hostname or "").encode("idna").decode()
    netloc = (f"[{host}]" if ":" in host else host) + ("" if parts.port is None else f":{parts.port}")
    path, query = quote(parts.path, safe=_IN_URLS), quote(parts.query, safe=_IN_URLS)
    request = Request(  # noqa: S310 - https, or http to this machine, as the settings were checked
        urlunsplit((parts.scheme, netloc, path, query, "")),
        urlencode(form).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    own = [ProxyHandler({})] if is_this_machine(host) else []
    opener = build_opener(NoRedirects, Plain, Secured, *own)
    return opener.open(request, timeout=endpoint.connect_timeout_s)  # type: ignore[no-any-return]


class _Bounded(RawIOBase):
    """Reads from a socket with a limit of the whole time, however slowly the bytes come."""

    def __init__(self, raw: RawIOBase, connection: socket.socket, seconds: float) -> None:
        self._raw = raw
        self._connection = connection
        self._seconds = seconds
        self._deadline_s = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s > 0:
            self._connection.settimeout(left_s)
            with contextlib.suppress(TimeoutError):
                return self._raw.readinto(buffer)
        raise TimeoutError(f"its answer took longer than {self._seconds:g} s")

    def close(self) -> None:
        self._raw.close()
        super().close()


def _refusal(status: int, body: bytes, endpoint: TokenEndpoint) -> Exception:
    text = f"HTTP {status}{_error_text(body, endpoint)}"
    if status >= _HTTP_SERVER_ERROR:
        return _TryAgainError(text)
    return AuthenticationError(
        f"no token from {endpoint.shown}: {text}",
        where=endpoint.shown,
        hint="are the client's id, its secret and the scope right?",
    )


def _body(response: HTTPResponse, endpoint: TokenEndpoint) -> bytes:
    body = response.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise AuthenticationError(
            f"{endpoint.shown} gives no token, but more than {_MOST_BYTES} bytes", where=endpoint.shown
        )
    return body


def _failure(reason: object, endpoint: TokenEndpoint) -> Exception:
    import ssl

    if isinstance(reason, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"no token from {endpoint.shown}: its certificate is not good: {reason.verify_message}",
            where=endpoint.shown,
            hint="https.ca.location: the file with its CA's certificate",
        )
    text = (getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).lower()
    return _TryAgainError(text)


def _error_text(body: bytes, endpoint: TokenEndpoint) -> str:
    """Returns an endpoint's description of an error (RFC 6749, 5.2), in a few printable characters, without secrets of
    the request.
    """
    found = _json(body)
    said = [found[key] for key in ("error", "error_description") if isinstance(found.get(key), str)]
    texts = [hide_secrets(text, [endpoint.client_secret.reveal()], _other_secrets_of(endpoint)) for text in said]
    text = "".join(c if c.isprintable() else "?" for c in ": ".join(texts))[:200]
    return f", {text}" if text else ""


def _other_secrets_of(endpoint: TokenEndpoint) -> list[str]:
    """Returns the other secrets of a request: the header that holds the secret, and passwords in the URL."""
    from urllib.parse import quote_plus, unquote, urlsplit

    secret, parts = endpoint.client_secret.reveal(), urlsplit(endpoint.url)
    pairs = [f"{endpoint.client_id}:{secret}", f"{quote_plus(endpoint.client_id)}:{quote_plus(secret)}"]
    hidden = [parts.password or "", *(value.partition("=")[2] for value in parts.query.split("&"))]
    return [*pairs, *(one for text in hidden for one in (text, unquote(text)) if len(one) >= _LEAST_HIDDEN)]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _claims(token: str) -> dict[str, Any]:
    """Returns the claims of a JWT, unchecked; {} for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def _utc(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise AuthenticationError(
            f"could not read the token file {path}: {(error.strerror or str(error)).lower()}", where=str(path)
        ) from None
    text = data.decode("latin-1").strip()
    if not text:
        raise AuthenticationError(f"the token file {path} is empty", where=str(path))
    return text
