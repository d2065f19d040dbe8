from __future__ import annotations

import pytest

from core.common.errors import MalformedMessageError
from core.protocol.frame import Endpoint, decode_response, encode_request, read_request_start
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from core.protocol.schema.fetch import FETCH, FetchableTopicResponse, FetchResponse, PartitionData
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from core.protocol.schema.produce import PRODUCE, ProduceRequest
from tests.support.for_each import for_each


class Region:
    """Stands for bytes in a file."""

    def __len__(self) -> int:
        return 1000


def test_a_request_goes_there_and_back() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="flights")])
    frame = encode_request(METADATA, 12, 7, "client", request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = memoryview(frame)[4:]
    assert read_request_start(body) == (3, 12, 7)
    header, decoded = Endpoint(METADATA, 12).decode_request(body)
    assert (header.client_id, header.correlation_id, decoded) == ("client", 7, request)


def test_bytes_behind_a_request_are_passed_over() -> None:
    """librdkafka 2 asks for the metadata of all topics with three bytes too many: this is what it sends."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    header, request = Endpoint(METADATA, 13).decode_request(memoryview(frame))
    assert header.client_id == "rdkafka"
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@pytest.mark.parametrize("version", [0, 12])
def test_a_client_id_may_be_any_bytes(version: int) -> None:
    """Java reads them as well as it can, and so no connection is closed for them."""
    frame = encode_request(METADATA, version, 7, "abcd", MetadataRequest([MetadataRequestTopic(name="flights")]))
    body = frame[4:].replace(b"abcd", b"a\xff\xfed")
    header, request = Endpoint(METADATA, version).decode_request(memoryview(body))
    assert header.client_id == "a\ufffd\ufffdd"
    assert [topic.name for topic in request.topics or ()] == ["flights"]
    with pytest.raises(MalformedMessageError):
        Endpoint(METADATA, version).decode_request(memoryview(frame[4:].replace(b"flights", b"fli\xffhts")))


@for_each("size", range(8))
def test_a_request_without_room_for_its_header_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessageError, match="no room"):
        read_request_start(memoryview(bytes(size)))
    assert read_request_start(memoryview(bytes(8))) == (0, 0, 0)


@for_each("size", range(8, 17))
def test_a_header_that_is_cut_short_is_malformed(size: int) -> None:
    frame = encode_request(METADATA, 12, 7, "client", MetadataRequest())[4:]
    with pytest.raises(MalformedMessageError, match="RequestHeader"):
        Endpoint(METADATA, 12).decode_request(memoryview(frame)[:size])


@for_each("version", range(5))
def test_api_versions_answers_with_the_oldest_header(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)])
    (frame,) = Endpoint(API_VERSIONS, version).encode_response(5, response)
    body = memoryview(bytes(frame))[4:]
    assert bytes(body[:4]) == b"\0\0\0\x05"
    assert bytes(body[4:6]) == b"\0\0", "the error code follows the correlation id at once"
    assert decode_response(API_VERSIONS, version, body) == (5, response)


@pytest.mark.parametrize(("version", "header"), [(8, "0000004d"), (9, "0000004d00")])
def test_the_header_of_a_flexible_answer_has_tagged_fields(version: int, header: str) -> None:
    """Version 9 of Metadata is the first flexible one."""
    frame = b"".join(map(bytes, Endpoint(METADATA, version).encode_response(77, MetadataResponse())))
    size, rest = int.from_bytes(frame[:4]), frame[4:]
    assert size == len(rest)
    assert rest.hex().startswith(header + "00000000"), "then the throttle time"
    assert decode_response(METADATA, version, memoryview(rest)) == (77, MetadataResponse())


def test_file_regions_stay_whole_between_the_bytes() -> None:
    first, second = Region(), Region()
    response = FetchResponse(
        responses=[
            FetchableTopicResponse("t", partitions=[PartitionData(0, records=first), PartitionData(1, records=second)])
        ]
    )
    pieces = Endpoint(FETCH, 12).encode_response(9, response)
    assert [type(piece) for piece in pieces] == [bytes, Region, bytes, Region, bytes]
    assert pieces[1] is first
    assert int.from_bytes(bytes(pieces[0])[:4], "big") == sum(map(len, pieces)) - 4  # type: ignore[call-overload]


def test_produce_records_are_a_view_of_the_frame() -> None:
    from core.protocol.schema.produce import PartitionProduceData, TopicProduceData

    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, b"records")])
    frame = bytearray(encode_request(PRODUCE, 9, 1, None, ProduceRequest(None, -1, 1000, [data])))
    _, request = Endpoint(PRODUCE, 9).decode_request(memoryview(frame)[4:])
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"R"
    assert b"Records" in frame
