"""What the brokers of an Apache Kafka 3.9.2 cluster with ZooKeeper said to each other: requests and answers as they
went over the wire, beside their fields by Kafka's names.

`between_brokers.ndjson` has a line a message, the frame without its size. The fields were read by a program that knows
Kafka's own definitions alone; a tagged field that the frame does not have is not in them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from core.protocol.frame import SIZE, Endpoint, decode_response, encode_request
from core.protocol.message import Api, schema_of
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import LIST_OFFSETS
from core.protocol.schema.transactions import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tests.support.for_each import for_each
from tests.support.protocol_document import BETWEEN_BROKERS

APIS: dict[str, Api[Any, Any]] = {
    api.name: api
    for api in (*BETWEEN_BROKERS, ADD_PARTITIONS_TO_TXN, API_VERSIONS, FETCH, LIST_OFFSETS, WRITE_TXN_MARKERS)
}


class Sample(NamedTuple):
    name: str
    api: str
    version: int
    is_request: bool
    correlation_id: int
    client_id: str
    body: dict[str, Any]
    hex: str


SAMPLES = [
    Sample(**json.loads(line))
    for line in Path(__file__).with_name("between_brokers.ndjson").read_text(encoding="utf-8").splitlines()
]


@for_each("sample", SAMPLES, ids=lambda sample: sample.name)
def test_each_field_is_read_and_the_same_bytes_are_written(sample: Sample) -> None:
    api, frame = APIS[sample.api], bytes.fromhex(sample.hex)
    endpoint = Endpoint(api, sample.version)
    if sample.is_request:
        header, message = endpoint.decode_request(memoryview(frame))
        assert (header.request_api_key, header.request_api_version) == (api.key, sample.version)
        assert (header.correlation_id, header.client_id) == (sample.correlation_id, sample.client_id)
        written = bytes(encode_request(api, sample.version, sample.correlation_id, sample.client_id, message))
    else:
        correlation_id, message = decode_response(api, sample.version, memoryview(frame))
        assert correlation_id == sample.correlation_id
        written = b"".join(map(bytes, endpoint.encode_response(correlation_id, message)))  # type: ignore[arg-type]
    assert_fields(message, sample.body)
    assert written == SIZE.pack(len(frame)) + frame


def assert_fields(ours: Any, theirs: dict[str, Any]) -> None:
    """Each of their fields is ours, and what they do not have has its default with us."""
    expected = {snake_case(name): value for name, value in theirs.items()}
    fields = {field.name for field in schema_of(type(ours)).fields}
    assert set(expected) <= fields
    default = type(ours)()
    for name in fields:
        value = getattr(ours, name)
        if name in expected:
            assert_value(value, expected[name])
        else:
            assert value == getattr(default, name), name


def assert_value(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            assert_value(our_element, their_element)
    elif isinstance(theirs, dict) and "$hex" in theirs:
        assert len(ours) == theirs["$size"]
        assert bytes(ours).hex().startswith(theirs["$hex"])
    elif isinstance(theirs, dict):
        assert_fields(ours, theirs)
    elif isinstance(ours, bytes):
        assert ours == UUID(theirs).bytes
    else:
        assert ours == theirs


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
