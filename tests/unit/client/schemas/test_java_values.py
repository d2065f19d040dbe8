"""Values that Java's serializers of Apicurio and AWS Glue wrote (tests/support/java_serdes.py) are shown, and written
back to equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from core.client.schemas.schema_registry import SchemaRegistry
from tests.support.java_serdes import KEPT
from tests.support.other_registries import ApicurioServer, GlueServer

SHOWN = [
    ("t-avro", b'{"c": "EUR", "e": null}'),
    ("t-protobuf:A", b'{"a": {"x": "7"}}'),
    ("t-protobuf:B", b'{"b": "5"}'),
]
"""The schema, and what its value is, as they were given to Java."""


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    kept = json.loads(KEPT.read_text())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marked")
    with ApicurioServer() as apicurio, GlueServer() as glue:
        apicurio.contents = [(text, type_, references) for text, type_, references in kept["contents"]]
        apicurio.versions = kept["versions"]
        glue.schemas = {(registry, name): (type_, texts) for registry, name, type_, texts in kept["glue"]}
        yield {"apicurio3": apicurio.url(3), "apicurio2": apicurio.url(2), "glue": glue.url()}


def test_values_of_java_come_back(urls: dict[str, str]) -> None:
    registries = {name: SchemaRegistry(url) for name, url in urls.items()}
    for number, one in enumerate(json.loads(KEPT.read_text())["values"]):
        registry, value = registries[one["registry"]], bytes.fromhex(one["value"])
        headers = [(name.encode(), bytes.fromhex(data)) for name, data in one["headers"]]
        schema, shown = SHOWN[number % len(SHOWN)]
        text = registry.decode(value, headers=headers)
        assert text == shown, one
        subject, _, message = schema.partition(":")
        subject += "-value" if one["registry"] != "glue" else ""
        encoder = registry.encoder(f"{subject}:{message}" if message else subject, "t", "value")
        assert encoder is not None
        if headers:
            own = [pair for pair in headers if pair[0] != b"apicurio.value.msgType"]  # the class of Java's
            assert sorted(encoder.headers) == sorted(own)
            assert encoder.bare(text) in (value, value[len(value) - len(encoder.bare(text)) :]), one
        elif value[:2] != b"\3\5":  # plog does not compress
            assert encoder(text) == value, one
