from __future__ import annotations

import contextlib
import io
import json
import random
import re
from importlib import import_module
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.varint import uvarint
from core.protocol.message import Message, Struct, array, default_instance, int8, int32, schema_of, string
from core.protocol.message_codec import codec
from core.protocol.message_json import message_to_json
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.configs import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from core.protocol.schema.fetch import FETCH, FetchRequest
from core.protocol.schema.list_offsets import LIST_OFFSETS
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from core.protocol.schema.transactions import INIT_PRODUCER_ID
from tests.support.messages import random_message
from tests.support.protocol_document import BETWEEN_BROKERS
from tests.support.requests import SERVED_APIS

APIS = [
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    DESCRIBE_CONFIGS,
    CREATE_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS,
]
MESSAGES = [cls for api in (*APIS, *BETWEEN_BROKERS) for cls in (api.request, api.response)]
"""Each test goes through all versions of one of them."""
LAST_OF_KIO = {API_VERSIONS.key: 4}
"""The last versions that kio has, where it has not all."""


def versions_of(cls: type) -> range:
    valid = schema_of(cls).valid
    return range(valid.first, valid.last + 1)


def kio_class(cls: type, version: int) -> Any:
    """The class of kio, a second implementation of the protocol, for the same message and version."""
    package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    package, _, kind = package.rpartition("_")
    return getattr(import_module(f"kio.schema.{package}.v{version}.{kind}"), cls.__name__)


def assert_same_bytes_in_kio(cls: type, version: int, encoded: bytes) -> None:
    """kio reads what we wrote, to the last byte, and writes the same bytes again."""
    theirs = kio_class(cls, version)
    entity, size = entity_reader(theirs)(encoded, 0)
    assert size == len(encoded)
    buffer = io.BytesIO()
    entity_writer(theirs)(buffer, entity)
    assert buffer.getvalue() == encoded


def fit_for_kio(value: Any) -> Any:
    """kio gives some numbers a meaning: error codes that exist, and durations that are not negative."""
    for field in schema_of(type(value)).fields:
        inner = getattr(value, field.name)
        if field.name.endswith("error_code"):
            setattr(value, field.name, abs(inner) % 100)
        elif field.name.endswith("_ms") and isinstance(inner, int):
            setattr(value, field.name, abs(inner) % 1_000_000)
        elif field.name == "timestamp" and isinstance(inner, int):
            setattr(value, field.name, abs(inner) % 10**12)
        elif isinstance(inner, list):
            for element in inner:
                if not isinstance(element, int | str | bytes):
                    fit_for_kio(element)
        elif inner is not None and not isinstance(inner, int | str | bytes | float):
            fit_for_kio(inner)
    return value


@pytest.mark.parametrize("cls", [cls for api in APIS for cls in (api.request, api.response)])
def test_every_message_round_trips_and_kio_agrees(cls: type) -> None:
    rnd = random.Random(cls.__name__)
    for version in (version for version in versions_of(cls) for _ in range(8)):
        original = fit_for_kio(random_message(cls, version, rnd))
        encoded = codec(cls, version).encode(original)
        decoded, end = codec(cls, version).decode(memoryview(encoded + b"behind"))
        assert (end, decoded) == (len(encoded), original), f"version {version}"
        if version <= LAST_OF_KIO.get(schema_of(cls).api_key, version):
            assert_same_bytes_in_kio(cls, version, encoded)


@pytest.mark.parametrize("cls", MESSAGES)
def test_a_message_that_is_cut_is_malformed_and_flipped_bytes_never_raise_anything_else(cls: type) -> None:
    rnd = random.Random(cls.__name__)
    for version in versions_of(cls):
        encoded = bytearray(codec(cls, version).encode(random_message(cls, version, rnd)))
        for length in range(min(len(encoded), 300)):
            with pytest.raises(MalformedMessageError):
                codec(cls, version).decode(memoryview(encoded[:length]))
        for position in range(min(len(encoded), 200)):
            for flip in (0xFF, 0x80, 0x01):
                encoded[position] ^= flip
                with contextlib.suppress(MalformedMessageError):
                    codec(cls, version).decode(memoryview(bytes(encoded)))
                encoded[position] ^= flip


def test_every_message_can_be_logged() -> None:
    for api in SERVED_APIS:
        for version in range(api.versions.first, api.versions.last + 1):
            for type_ in (api.request, api.response):
                logged = json.loads(json.dumps(message_to_json(default_instance(type_), version)))
                assert isinstance(logged, dict), (api.name, version)


def test_unknown_tagged_fields_are_passed_over() -> None:
    plain = codec(MetadataRequest, 12).encode(MetadataRequest(topics=None))
    assert plain.endswith(b"\x00")
    tagged = plain[:-1] + b"\x02" + b"\x07\x03abc" + b"\x09\x00"
    assert codec(MetadataRequest, 12).decode(memoryview(tagged))[0] == MetadataRequest(topics=None)


def test_a_claimed_count_is_paid_for_in_bytes() -> None:
    claim = bytes.fromhex("7fffffff")
    with pytest.raises(MalformedMessageError, match="array topics"):
        codec(MetadataRequest, 1).decode(memoryview(claim + bytes(100)))


def test_more_elements_and_tags_than_kafka_allows_are_malformed() -> None:
    """Kafka 4.4 closes the connection of a client that sends them, though they are all there."""
    topics = (1_000_001).to_bytes(4, "big") + bytes(2 * 1_000_001)
    with pytest.raises(MalformedMessageError, match="1000001 topics where at most 1000000 are allowed"):
        codec(MetadataRequest, 1).decode(memoryview(topics))
    plain = codec(MetadataRequest, 12).encode(MetadataRequest(topics=None))[:-1]
    for count, is_allowed in ((10_000, True), (10_001, False)):
        tags = b"".join(uvarint(100 + n) + b"\0" for n in range(count))
        tagged = memoryview(plain + uvarint(count) + tags)
        if is_allowed:
            assert codec(MetadataRequest, 12).decode(tagged)[1] == len(tagged)
        else:
            with pytest.raises(MalformedMessageError, match="10001 tagged fields where at most 10000 are allowed"):
                codec(MetadataRequest, 12).decode(tagged)


def test_null_where_none_may_be_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="topics may not be null"):
        codec(MetadataRequest, 0).decode(memoryview(b"\xff\xff\xff\xff"))


def test_a_version_that_there_is_not() -> None:
    with pytest.raises(KafkaError) as caught:
        codec(FetchRequest, 3)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


class Inner(Struct):
    number: int = int8()


class ExampleRequest(Message, valid="0-2", flexible="2+"):
    name: str = string("1+")
    optional: str | None = string("1+", None, nullable="1+", ignorable=True)
    numbers: list[int] = array("int32")
    tagged: int = int32("2+", -1, tagged="2+", tag=3)
    inner: list[Inner] | None = array(Inner, "2+", null_default=True, nullable="2+")


def test_the_wire_form_is_that_of_the_protocol_guide() -> None:
    assert (
        codec(ExampleRequest, 0).encode(ExampleRequest(numbers=[1, -1])).hex() == "00000002" + "00000001" + "ffffffff"
    )
    classic = ExampleRequest("ä", None, [5])
    assert codec(ExampleRequest, 1).encode(classic).hex() == "0002c3a4" + "ffff" + "00000001" + "00000005"
    flexible = ExampleRequest("ä", "", [5], 7, [Inner(-2)])
    expected = "03c3a4" + "01" + "02" + "00000005" + "02" + "fe00" + "01" + "03" + "04" + "00000007"
    assert codec(ExampleRequest, 2).encode(flexible).hex() == expected


def test_a_request_refuses_to_lose_a_field_that_is_not_ignorable() -> None:
    with pytest.raises(KafkaError, match=r"ExampleRequest\.name"):
        codec(ExampleRequest, 0).encode(ExampleRequest("set"))
    codec(ExampleRequest, 0).encode(ExampleRequest(optional="dropped"))
