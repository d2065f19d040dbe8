"""Tokens of OAUTHBEARER: an endpoint, a file, one that is given; and what goes wrong with each."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.client.net.connect_notice import is_this_machine
from core.client.net.token_source import TokenSource
from core.common.errors import AuthenticationError, UsageError
from core.security.client_security import BearerLogin, TokenEndpoint, TrustStore
from core.security.client_settings import parse_client_settings
from core.security.secret import Secret, shown_url
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_door import server_context

SECRET = "marked secret:+"
Answer = tuple[int, dict[str, str], bytes]


def jwt(**claims: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({}, claims)]
    return ".".join([*parts, "sig"])


class Endpoint:
    """Gives the answers one after the other, the last for ever, and keeps what it was asked."""

    def __init__(self, *answers: Answer | Callable[[BaseHTTPRequestHandler], None]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.asked.append((self.headers["Authorization"], parse_qs(body)))
                outer.paths.append(self.path)
                answer = outer._answers[0] if len(outer._answers) == 1 else outer._answers.pop(0)
                if callable(answer):
                    answer(self)
                    return
                status, headers, data = answer
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @contextlib.contextmanager
    def running(self, context: ssl.SSLContext | None = None) -> Iterator[str]:
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http{'s' if context else ''}://127.0.0.1:{self.server.server_address[1]}/token"
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()


def gives(token: str, **more: object) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps({"access_token": token, **more}).encode()


def source(
    url: str, pauses: list[float] | None = None, clock: Callable[[], float] = lambda: 1000.0, **more: Any
) -> TokenSource:
    endpoint = TokenEndpoint(url, "id", Secret(SECRET), **more)
    return TokenSource(BearerLogin(endpoint=endpoint), clock, (pauses if pauses is not None else []).append)


def failure(tokens: TokenSource) -> AuthenticationError:
    with pytest.raises(AuthenticationError) as raised:
        tokens.token()
    assert "marked" not in f"{raised.value.message} {raised.value.hint}"
    return raised.value


def test_a_token_for_a_secret() -> None:
    endpoint = Endpoint(gives("a.b.c", expires_in=100))
    with endpoint.running() as url:
        assert source(url, scope="kafka read").token() == "a.b.c"
    ((authorization, form),) = endpoint.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"id:{SECRET}"


def test_a_secret_that_is_encoded_for_its_header() -> None:
    endpoint = Endpoint(gives("a"))
    with endpoint.running() as url:
        source(url, url_encodes_header=True).token()
    assert base64.b64decode(endpoint.asked[0][0].removeprefix("Basic ")) == b"id:marked+secret%3A%2B"


@for_each(
    "answer, lifetime_s",
    [
        (gives("a", expires_in=100), 100),
        (gives("a", expires_in="100"), 100),
        (gives(jwt(exp=1100)), 100),
        (gives(jwt(exp=1100), expires_in=3600), 100),
        (gives(jwt(exp=9999), expires_in=100), 100),
        (gives("a"), 0),
    ],
)
def test_a_token_is_used_for_most_of_its_life(answer: Answer, lifetime_s: float) -> None:
    now = [1000.0]
    endpoint = Endpoint(answer)
    with endpoint.running() as url:
        tokens = source(url, clock=lambda: now[0])
        tokens.token()
        now[0] += lifetime_s * 0.79
        tokens.token()
        assert len(endpoint.asked) == (1 if lifetime_s else 2)
        now[0] += lifetime_s * 0.02
        tokens.token()
        assert len(endpoint.asked) == (2 if lifetime_s else 3)
        if lifetime_s:
            tokens.forget()
            tokens.token()
            assert len(endpoint.asked) == 3


def test_over_tls_with_a_ca_of_its_own(tmp_path: Path) -> None:
    ca = make_ca()
    context = server_context(*map(str, sign(ca).write(tmp_path, "server")))
    with Endpoint(gives("a")).running(context) as url:
        assert source(url, trust=TrustStore(certificates=ca.pem)).token() == "a"
        error = failure(source(url))
    assert "its certificate is not good" in error.message
    assert error.hint == "https.ca.location: the file with its CA's certificate"


def test_a_failure_that_may_go_away_is_tried_again() -> None:
    pauses: list[float] = []
    endpoint = Endpoint((503, {}, b"busy"), (500, {}, b""), gives("a"))
    with endpoint.running() as url:
        assert source(url, pauses).token() == "a"
    assert len(pauses) == 2


def test_an_endpoint_that_is_down() -> None:
    endpoint = Endpoint(gives("a"))
    with endpoint.running() as url:
        pass
    error = failure(source(url))
    assert error.message == f"no token from {url}: connection refused"
    assert error.where == url
    assert error.exit_code == 3


@for_each(
    "answer, message",
    [
        (
            (401, {}, b'{"error": "invalid_client", "error_description": "no such\\u0007 client"}'),
            "HTTP 401, invalid_client: no such? client",
        ),
        ((400, {}, b"<html>"), "HTTP 400"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "HTTP 302"),
        ((503, {}, b""), "HTTP 503"),
        ((200, {}, b"{}"), "its answer has no access_token"),
        ((200, {}, b"[]"), "its answer has no access_token"),
        ((200, {}, b"<html>"), "its answer has no access_token"),
        ((200, {}, b'{"access_token": 1}'), "its answer has no access_token"),
        ((200, {}, b"[" * 100_000), "its answer has no access_token"),
        ((200, {}, b" " * (2 << 20)), "more than 1048576 bytes"),
    ],
)
def test_answers_that_are_no_token(answer: Answer, message: str) -> None:
    with Endpoint(answer).running() as url:
        assert failure(source(url)).message.endswith(message)


@contextlib.contextmanager
def endpoint_that_goes_on(do: Callable[[BaseHTTPRequestHandler, threading.Event], None]) -> Iterator[str]:
    """Until the block ends, which sets the event."""
    gone = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            do(handler, gone)

    with Endpoint(answer).running() as url:
        try:
            yield url
        finally:
            gone.set()


def takes_its_time(handler: BaseHTTPRequestHandler, gone: threading.Event) -> None:
    handler.send_response_only(200)
    handler.end_headers()
    while not gone.wait(0.01):
        handler.wfile.write(b" ")


def says_nothing(_: BaseHTTPRequestHandler, gone: threading.Event) -> None:
    gone.wait()


@for_each("do", [takes_its_time, says_nothing])
def test_an_endpoint_that_is_not_waited_for(do: Callable[[BaseHTTPRequestHandler, threading.Event], None]) -> None:
    with endpoint_that_goes_on(do) as url:
        error = failure(source(url, read_timeout_s=0.05))
    assert "took longer than 0.05 s" in error.message


ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "a status": (b"HTTP/1.1 ", b"2"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "a header": (b"HTTP/1.1 200 OK\r\na: ", b"b"),
    "to be continued": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "an error's body": (b"HTTP/1.1 401 No\r\n\r\n", b" "),
    "a failure's body": (b"HTTP/1.1 500 No\r\n\r\n", b" "),
}


@for_each(
    "what, pause_s, read_timeout_s",
    [*((what, 0.01, 0.05) for what in ENDLESS), *((what, 0.0, 0.1) for what in ("a header", "a body", "chunks"))],
)
def test_an_answer_that_never_ends(what: str, pause_s: float, read_timeout_s: float) -> None:
    """Drop by drop, and as fast as it goes: it takes no longer than it may, and no more memory."""
    ensure_ended(what, pause_s, read_timeout_s)


@pytest.mark.longer
@for_each("what", ENDLESS)
def test_each_answer_that_never_ends_as_fast_as_it_goes(what: str) -> None:
    ensure_ended(what, 0.0, 0.2)


def ensure_ended(what: str, pause_s: float, read_timeout_s: float) -> None:
    start, more = ENDLESS[what]

    def endless(handler: BaseHTTPRequestHandler, gone: threading.Event) -> None:
        handler.wfile.write(start)
        while not gone.wait(pause_s):
            handler.wfile.write(more if pause_s else more * 1000)

    tracemalloc.start()
    try:
        with endpoint_that_goes_on(endless) as url:
            failure(source(url, read_timeout_s=read_timeout_s))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def that_says(data: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            handler.wfile.write(data)
            handler.connection.shutdown(socket.SHUT_RDWR)

    return answer


@for_each(
    "data",
    [
        b"garbage\r\n\r\n",
        b"\x16\x03\x03\x00\x04abcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * (1 << 20) + b"\r\n\r\n",
        b"HTTP/1.1 500 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_garbage(data: bytes) -> None:
    with Endpoint(that_says(data)).running() as url:
        error = failure(source(url))
    assert url in error.message
    assert error.exit_code == 3


@settings(max_examples=settings().max_examples // 3)
@given(st.binary(max_size=60))
def test_any_answer_is_survived(data: bytes) -> None:
    with Endpoint(that_says(b"HTTP/1.1 200 OK\r\n" + data)).running() as url:
        failure(source(url))


@for_each("lifetime", ["NaN", "Infinity", "-5", "1e400", "1" + "0" * 400, '"1' + "0" * 5000 + '"', "true"])
def test_lifetimes_that_are_none(lifetime: str) -> None:
    """The token may be used, and not for ever."""
    now = [1000.0]
    endpoint = Endpoint((200, {}, b'{"access_token": "a", "expires_in": %s}' % lifetime.encode()))
    with endpoint.running() as url:
        tokens = source(url, clock=lambda: now[0])
        assert tokens.token() == "a"
        now[0] += 20 * 365 * 86400
        assert tokens.token() == "a"
    assert len(endpoint.asked) == 2


def test_an_endpoint_that_is_down_while_the_token_is_good() -> None:
    """A session that is renewed in that time goes on with it; and is asked for again, not for each connection."""
    now = [1000.0]
    pauses: list[float] = []
    endpoint = Endpoint(gives("a", expires_in=100), (503, {}, b""), (401, {}, b""), gives("b", expires_in=100))
    with endpoint.running() as url:
        tokens = source(url, pauses, clock=lambda: now[0])
        found = []
        for at_s in (1000, 1085, 1086, 1096, 1097, 1099.9, 1106):
            now[0] = at_s
            found.append((tokens.token(), len(endpoint.asked)))
    assert found == [("a", 1), ("a", 2), ("a", 2), ("a", 3), ("a", 3), ("a", 3), ("b", 4)]
    assert pauses == []


def test_an_endpoint_that_stays_down() -> None:
    now = [1000.0]
    endpoint = Endpoint(gives("a", expires_in=100), (503, {}, b""))
    with endpoint.running() as url:
        tokens = source(url, clock=lambda: now[0])
        tokens.token()
        now[0] = 1101.0
        assert failure(tokens).message.endswith("HTTP 503")


def test_a_token_that_is_given_or_in_a_file(tmp_path: Path) -> None:
    assert TokenSource(BearerLogin(token=Secret("a"))).token() == "a"
    path = tmp_path / "token"
    tokens = TokenSource(BearerLogin(token_file=str(path)))
    assert failure(tokens).message == f"could not read the token file {path}: no such file or directory"
    path.write_text("\n")
    assert failure(tokens).message == f"the token file {path} is empty"
    path.write_text("a.b.c\n")
    assert tokens.token() == "a.b.c"
    path.write_text("d.e.f")
    assert tokens.token() == "d.e.f"


def test_a_token_that_was_refused_is_explained() -> None:
    tokens = source("https://idp", clock=lambda: 1_000_000_000.0)
    claims = {"sub": "alice", "aud": ["kafka"], "iss": "https://idp", "exp": 999_999_000, "iat": 999_990_000}
    assert tokens.explain(jwt(**claims)) == (
        "the token: of alice, for ['kafka'], by https://idp, expires 2001-09-09 01:30:00 UTC, "
        "was issued 2001-09-08 23:00:00 UTC; the clock here says 2001-09-09 01:46:40 UTC"
    )
    assert tokens.explain("marked").startswith("the token is no JWT that can be read; the clock here says")
    assert tokens.explain(f"a.{'!' * 5}.c").startswith("the token is no JWT")
    assert "1e+300" in tokens.explain(jwt(exp=1e300))


def test_a_clock_that_is_wrong_is_told_of() -> None:
    status, headers, body = gives(jwt(exp=1_000_000_600))
    headers["Date"] = "Sun, 09 Sep 2001 01:56:40 GMT"
    with Endpoint((status, headers, body)).running() as url:
        tokens = source(url, clock=lambda: 1_000_000_000.0)
        told = tokens.explain(tokens.token())
    assert told.endswith("the clock here says 2001-09-09 01:46:40 UTC, and is 600 s behind the token endpoint's")


@for_each("url", ["http://idp.example/token", "ftp://x", "http://localhost.example/"])
def test_a_secret_does_not_go_over_the_network_in_clear(url: str) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": SECRET,
    }
    with pytest.raises(Exception, match="expected https") as raised:
        parse_client_settings(settings)
    assert "marked" not in str(raised.value)


# --- proxies, and what a URL hides


@for_each("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_no_proxy_is_asked_for_an_endpoint_on_this_machine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, endpoint = Endpoint(gives("stolen")), Endpoint(gives("a"))
    with proxy.running() as proxy_url, endpoint.running() as url:
        monkeypatch.setenv(variable, proxy_url.removesuffix("/token"))
        for host in ("127.0.0.1", "localhost"):
            assert source(url.replace("127.0.0.1", host)).token() == "a"
    assert (len(endpoint.asked), proxy.asked) == (2, [])


def test_no_proxy_is_asked_for_one_over_tls_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = make_ca()
    context = server_context(*map(str, sign(ca).write(tmp_path, "server")))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nobody is there
    with Endpoint(gives("a")).running(context) as url:
        assert source(url, trust=TrustStore(certificates=ca.pem)).token() == "a"


@for_each(
    "host, is_here",
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("127.1", True),
        ("2130706433", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("idp.localhost", True),
        ("0.0.0.0", True),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
        ("idp.example", False),
        ("a\0b", False),
    ],
)
def test_what_this_machine_is(host: str, is_here: bool) -> None:
    assert is_this_machine(host) is is_here


def test_what_a_url_hides_is_sent_and_not_shown() -> None:
    """Java's client sends the query, and not what stands before the host."""
    endpoint = Endpoint((401, {}, b"{}"))
    with endpoint.running() as url:
        hiding = url.replace("http://", "http://marked-user:marked-password@") + "?api_key=marked-key#marked"
        error = failure(source(hiding))
        assert error.message == f"no token from {url}: HTTP 401"
        assert error.where == url
    assert endpoint.paths == ["/token?api_key=marked-key"]
    for wrong in (hiding, hiding.replace("/token", "/t\u00f6ken")):
        error = failure(source(wrong))  # it is down
        assert error.message.startswith(f"no token from {url[:-6]}")
    assert "marked" not in repr(TokenEndpoint(hiding, "id", Secret(SECRET)))


@for_each(
    "url, shown",
    [
        ("https://idp/token", "https://idp/token"),
        ("https://u:p@idp:8443/token?key=k#f", "https://idp:8443/token"),
        ("https://u@idp?key=k", "https://idp"),
        ("https://u:p/w@idp/token?k", "https://idp/token"),
        ("https://u:p?w@idp/token", "https://idp/token"),
        ("https://u:p#w@idp/token", "https://idp/token"),
        ("https://u:p@[::1]:8443/token?k=v", "https://[::1]:8443/token"),
        ("https://idp/a@b/token?k", "https://idp/a@b/token"),
        ("u:p@idp/token?k", "idp/token"),
        ("ftp://u:p@idp/", "ftp://idp/"),
        ("", ""),
    ],
)
def test_a_url_as_it_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@for_each(
    "url",
    ["http://u:marked@idp/t?k=marked", "https://[::1/?marked", "https://h:marked/", "https:///?marked", "marked@x"],
)
def test_a_url_that_is_refused_is_not_shown_whole(url: str) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": SECRET,
    }
    with pytest.raises(UsageError, match="expected https") as raised:
        parse_client_settings(settings)
    assert "marked" not in str(raised.value).replace("https://h:marked/", "")


@for_each(
    "said",
    [
        f"no client has {SECRET}",
        f"no client has {SECRET.upper()}",
        "client_secret=marked+secret%3A%2B is wrong",
        "client_secret=marked%20secret%3A%2B is wrong",
        "Basic " + base64.b64encode(f"id:{SECRET}".encode()).decode(),
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        "it begins with marked s..",
    ],
)
@for_each("key", ["error", "error_description"])
def test_an_endpoint_that_repeats_the_secret(key: str, said: str) -> None:
    other = {"error": "invalid_client", "error_description": "no"} | {key: said}
    with Endpoint((401, {}, json.dumps(other).encode())).running() as url:
        message = failure(source(url)).message
    assert "[hidden, as it holds a secret]" in message
    assert base64.b64encode(SECRET.encode()).decode() not in message
    assert ("invalid_client" in message) is (key == "error_description")


@for_each("host", ["a..b", ".idp.example", "x" * 64 + ".example", "\u65e5\u672c..example"])
def test_a_name_that_no_host_can_have(host: str) -> None:
    error = failure(source(f"https://{host}/token"))
    assert (
        error.message
        == f"no token from https://{host}/token: no host can have that name: a part of it is empty or too long"
    )
    assert error.exit_code == 3
