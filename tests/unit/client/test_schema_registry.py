"""How a Schema Registry is reached: on this machine without a proxy, and without showing what its URL hides."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from core.client.schema_registry import SchemaRegistry
from core.common.errors import AccessError
from tests.support.for_each import for_each

pytest.importorskip("confluent_kafka.schema_registry")
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy")


@contextlib.contextmanager
def answering(asked: list[str]) -> Iterator[str]:
    """A registry without subjects; it keeps who asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization") or "")
            self.send_response_only(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@for_each("variable", PROXIES)
def test_no_proxy_is_asked_for_a_registry_on_this_machine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_registry: list[str] = []
    of_proxy: list[str] = []
    with answering(of_registry) as url, answering(of_proxy) as proxy:
        monkeypatch.setenv(variable, proxy)
        registry = SchemaRegistry(url.replace("http://", "http://alice:marked@"))
        assert not registry.has_subject("t-value")
        assert os.environ[variable] == proxy, "others may want it"
    assert (len(of_registry), of_proxy) == (1, [])


def test_what_its_url_hides_is_not_shown() -> None:
    with answering([]) as url:
        pass
    registry = SchemaRegistry(url.replace("http://", "http://alice:marked@") + "/base?key=marked")
    with pytest.raises(AccessError, match="the Schema Registry does not answer") as raised:
        registry.has_subject("t-value")
    assert raised.value.where == f"{url}/base"
    assert "marked" not in f"{raised.value.message} {raised.value.hint} {raised.value.where}"
