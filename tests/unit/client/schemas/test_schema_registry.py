"""How a Schema Registry is reached: on this machine without a proxy, and without showing what its URL hides."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import socket
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.client.schemas import other_registries, schema_registry
from core.client.schemas.schema_registry import SchemaRegistry, references_of
from core.client.schemas.undecoded import SchemaError, describe, not_decoded_text
from core.common.errors import AccessError, UsageError
from tests.support.for_each import for_each
from tests.support.schema_registry import SchemaRegistryServer

pytest.importorskip("confluent_kafka.schema_registry")
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy")


@contextlib.contextmanager
def answering(asked: list[str], answer: bytes = b"[]", status: int = 200, *, coding: str = "identity") -> Iterator[str]:
    """A registry without subjects, or what else answers so; it keeps who asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization") or "")
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", coding)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

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


@for_each("answer, status", [(b"<html>", 200), (b"[]", 200), (b'{"schema": null}', 200), (b"<html>", 403)])
def test_what_answers_and_is_no_registry(answer: bytes, status: int) -> None:
    with answering([], answer, status) as url:
        registry = SchemaRegistry(url)
        for ask in (lambda: registry.decode(b"\0\0\0\0\7x"), lambda: registry.encoder("a", "a", "value")):
            with pytest.raises(AccessError, match="does not answer as a Schema Registry does"):
                ask()


def test_a_registry_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_TIMEOUT_SECONDS", 0.01)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(AccessError, match="does not answer: timed out"),
    ):
        SchemaRegistry(f"http://127.0.0.1:{server.getsockname()[1]}").has_subject("t-value")


@for_each(
    "answer, status",
    [
        (b'{"error_code": 42901, "message": "slow down"}', 429),
        (b'{"error_code": 50301, "message": "slow down"}', 503),
    ],
)
def test_a_registry_that_has_no_time(answer: bytes, status: int) -> None:
    """The record is not to blame, so this is an error of access."""
    with answering([], answer, status) as url, pytest.raises(AccessError, match="does not answer: slow down"):
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")


@for_each("status", [302, 307, 404, 999])
def test_what_answers_json_and_is_no_registry(status: int) -> None:
    with (
        answering([], b"{}", status) as url,
        pytest.raises(AccessError, match=f"does not answer as a Schema Registry does: HTTP {status}"),
    ):
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")


def test_a_registry_of_many_words() -> None:
    answer = json.dumps({"error_code": 40403, "message": "x" * 1_000_000}).encode()
    with answering([], answer, 404) as url, pytest.raises(SchemaError) as raised:
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")
    assert len(raised.value.message) < 1000


@for_each("path, coding", [("", "identity"), ("", "gzip"), ("/apis/registry/v3", "identity")])
def test_an_answer_that_is_too_large(path: str, coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (schema_registry, other_registries):
        monkeypatch.setattr(module, "MOST_BYTES", 1_000_000)
    answer = b" " * 1_000_001
    packed = gzip.compress(answer) if coding == "gzip" else answer
    with (
        answering([], packed, coding=coding) as url,
        pytest.raises(AccessError, match="does not answer: its answer has more than 1,000,000 bytes"),
    ):
        SchemaRegistry(url + path).decode(b"\0\0\0\0\7x")


def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header line now and then keeps every timeout of the socket from expiring."""
    monkeypatch.setattr(schema_registry, "_MOST_SECONDS", 0.05)

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not is_over.wait(0.01):
                connection.sendall(b"X: y\r\n")

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            with pytest.raises(AccessError, match=r"does not answer: its answer took more than 0\.05 s"):
                SchemaRegistry(f"http://127.0.0.1:{server.getsockname()[1]}").decode(b"\0\0\0\0\7x")
        finally:
            is_over.set()
            thread.join()


AVRO = '{"type": "record", "name": "R", "fields": []}'


@for_each(
    "answer",
    [
        {"schema": AVRO, "references": [{"name": [1], "subject": "s", "version": 1}]},
        {"schema": AVRO, "schemaType": ["AVRO"]},
        {"schema": AVRO, "references": 7},
        {"schema": {"type": "int"}},
    ],
)
def test_answers_of_the_wrong_types(answer: dict[str, Any]) -> None:
    with (
        answering([], json.dumps(answer).encode()) as url,
        pytest.raises(AccessError, match="does not answer as a Schema Registry does"),
    ):
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")


@for_each("schema_id", [0, -5, 1 << 31, 1e999, "x", None])
def test_an_id_that_is_none(schema_id: Any) -> None:
    answer = json.dumps({"schema": AVRO, "subject": "s", "version": 1, "id": schema_id}).encode()
    with (
        answering([], answer) as url,
        pytest.raises(AccessError, match="does not answer as a Schema Registry does"),
    ):
        SchemaRegistry(url)._find_id("", "s")


@for_each("schema", ["0", "2147483648", "9" * 5000])
def test_an_id_that_no_registry_gives(schema: str) -> None:
    with answering([]) as url, pytest.raises(UsageError, match="ids are 1 to 2147483647"):
        SchemaRegistry(url).encoder(schema, "s", "value")


@for_each(
    "type_, schema",
    [
        ("JSON", {"$schema": ["x"]}), ("JSON", 7), ("JSON", {"$schema": True}),
        ("AVRO", {"type": "fixed", "name": "F", "size": None}),
        ("AVRO", {"type": "fixed", "name": "F", "size": 1e999}),
        ("AVRO", {"type": "fixed", "name": "F", "size": 4, "logicalType": []}),
    ],
)  # fmt: skip
def test_schemas_of_odd_json(type_: str, schema: Any) -> None:
    answer = json.dumps({"schema": json.dumps(schema), "schemaType": type_}).encode()
    with answering([], answer) as url, pytest.raises(SchemaError, match="schema 7 can't be used: "):
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")


def test_references_in_a_circle_and_without_end() -> None:
    asked: list[str] = []
    answer = {"schema": AVRO, "subject": "s", "version": 1, "id": 7}
    circle = json.dumps({**answer, "references": [{"name": "A", "subject": "s", "version": 1}]}).encode()
    with answering(asked, circle) as url, pytest.raises(SchemaError, match="refers to as 'A' refers to itself"):
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")
    assert len(asked) == 2
    count = itertools.count()
    schema = types.SimpleNamespace(references=[types.SimpleNamespace(name="A")])
    with pytest.raises(ValueError, match="refers to more than 500 schemas"):
        references_of(
            schema, lambda _: types.SimpleNamespace(references=[types.SimpleNamespace(name=str(next(count)))])
        )


PROTO = 'syntax = "proto3"; message A { string s = 1; }'


@for_each("data", [b"\x03", b"\xff\xff\xff\xff\x0f"])
def test_less_than_no_message_indexes(data: bytes) -> None:
    """Zigzag varints: -2 and -2147483648 of them."""
    with SchemaRegistryServer() as server:
        server.post(["subjects", "a", "versions"], {"schema": PROTO, "schemaType": "PROTOBUF"})
        with pytest.raises(SchemaError, match=r"not of schema 1, which it names: it has -2.* message indexes"):
            SchemaRegistry(server.url).decode(b"\0\0\0\0\x01" + data)


@for_each("text", [b"[]", b'""', b"null", b"[1]", b'{"t": "x"}', b'{"s": "x"'])
def test_what_is_no_message_of_protobuf(text: bytes) -> None:
    with SchemaRegistryServer() as server:
        server.post(["subjects", "a", "versions"], {"schema": PROTO, "schemaType": "PROTOBUF"})
        encode = SchemaRegistry(server.url).encoder("a", "a", "value")
        assert encode(b'\xef\xbb\xbf{"s": "x"}') == b"\0\0\0\0\x01\0\x0a\x01x"
        with pytest.raises(SchemaError, match=r"not of schema 1: [^\n]*$"):
            encode(text)


@for_each("text", ['{"type":', '{"type": "nothing"}'])
def test_a_schema_that_is_wrong_is_not_registered(tmp_path: Path, text: str) -> None:
    """A registry may take anything."""
    path = tmp_path / "a.avsc"
    path.write_text(text)
    with SchemaRegistryServer() as server, pytest.raises(UsageError, match=r"a\.avsc can't be used: "):
        SchemaRegistry(server.url).encoder(str(path), "a", "value")
    assert not server.schemas


def test_what_is_no_base64_is_no_bytes_of_protobuf() -> None:
    """Protobuf's own reader passes over what is none, and stores what is left."""
    proto = """syntax = "proto3"; import "google/protobuf/wrappers.proto"; message A { bytes b_b = 1; string s = 6;
      map<string, bytes> m = 2; repeated A a = 3; google.protobuf.BytesValue w = 4; repeated bytes r = 5; }"""
    with SchemaRegistryServer() as server:
        server.post(["subjects", "a", "versions"], {"schema": proto, "schemaType": "PROTOBUF"})
        encode = SchemaRegistry(server.url).encoder("a", "a", "value")
        for good in ('"+/8="', '"-_8"'):
            assert encode(b'{"bB": %b, "s": "!", "w": null}' % good.encode()) == b"\0\0\0\0\1\0\x0a\2\xfb\xff\x32\1!"
        for bad in ('"!!"', '"a b="', '"AQIDB"'):
            for text in (
                '{"b_b": %s}',
                '{"bB": %s}',
                '{"m": {"k": %s}}',
                '{"a": [{"b_b": %s}]}',
                '{"w": %s}',
                '{"r": [%s]}',
            ):
                with pytest.raises(SchemaError, match="is no base64"):
                    encode((text % bad).encode())


def test_files_of_a_schema_stay_in_their_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A registry names files as it likes; what protoc says of them is in the error."""
    mine = tmp_path / "mine.proto"
    steps_up = "../" * 20 + str(mine)[1:]
    for name, problem in (
        (str(mine), "no name of a file beside it"),
        (steps_up, "no name of a file beside it"),
        ("a/b.proto", "plog-schema.proto:1:20: Import .other.proto. was not found"),
    ):
        with SchemaRegistryServer() as server:
            server.post(["subjects", "other", "versions"], {"schema": PROTO, "schemaType": "PROTOBUF"})
            reference = {"name": name, "subject": "other", "version": 1}
            body = {"schema": 'syntax = "proto3"; import "other.proto";', "schemaType": "PROTOBUF"}
            server.post(["subjects", "a", "versions"], body | {"references": [reference]})
            with pytest.raises(SchemaError, match=problem) as raised:
                SchemaRegistry(server.url).decode(b"\0\0\0\0\x02\0")
        assert (raised.value.schema_id, describe("value", raised.value)[:26]) == (2, "its value can't be decoded")
    assert not mine.exists()
    assert capfd.readouterr().err == ""


def test_words_of_a_registry_are_shown_on_one_line_and_in_json() -> None:
    answer = json.dumps({"error_code": 40403, "message": "\ud800\n\x1b[31m"}).encode()
    with answering([], answer, 404) as url, pytest.raises(SchemaError) as raised:
        SchemaRegistry(url).decode(b"\0\0\0\0\7x")
    assert r": \ud800\n\x1b[31m (40403)" in raised.value.message
    error = SchemaError("there is no type \ud800")
    assert json.loads(not_decoded_text(b"", error)) == {"not_decoded": {"base64": "", "error": error.message}}
