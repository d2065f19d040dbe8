from __future__ import annotations

import pytest

from core.broker.requests.request_dispatcher import MAX_SMALL_REQUEST_BYTES
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.frame import encode_request
from core.protocol.schema.acls import DESCRIBE_ACLS
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.cluster_nodes import UNREGISTER_CONTROLLER, UnregisterControllerRequest
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import AnyApi, SteeredNode, ask, decode, send
from tests.support.for_each import for_each
from tests.support.requests import SERVED_APIS

EVERY_VERSION = [(api, version) for api in SERVED_APIS for version in range(api.versions.first, api.versions.last + 1)]


@for_each("api, version", EVERY_VERSION, ids=lambda one: getattr(one, "name", one))
def test_every_advertised_version_is_answered(broker: SteeredNode, api: AnyApi, version: int) -> None:
    """An empty request: the answer decodes in that version, under its correlation id."""
    request = api.request(acks=-1) if api is PRODUCE else api.request()
    if api is API_VERSIONS:
        request.client_software_name = request.client_software_version = "x"
    if api is DESCRIBE_ACLS:
        request.resource_type_filter = request.operation = request.permission_type = 1  # 0 is UNKNOWN
    answer = send(broker, api, request, version)
    if isinstance(answer, Pending):  # a fetch of nothing
        pytest.fail("an empty request waits")
    assert isinstance(decode(api, answer, version), api.response)


def test_what_is_advertised_is_what_is_served(broker: SteeredNode) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    for version in range(6):
        answer = ask(broker, API_VERSIONS, request, version)
        assert answer.error_code == 0
        advertised = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}
        served = {api.key: (api.versions.first, api.versions.last) for api in SERVED_APIS}
        assert advertised == served | {PRODUCE.key: (0, 13)}, "Produce from 0, for librdkafka's sake"


def test_an_api_versions_request_of_the_future_is_answered_in_version_0(broker: SteeredNode) -> None:
    frame = encode_request(API_VERSIONS, 4, 77, "test", ApiVersionsRequest("x", "1"))
    future = bytearray(frame[4:])
    future[2:4] = (99).to_bytes(2, "big")
    answer = broker.dispatcher.handle(memoryview(future))
    assert isinstance(answer, list)
    response = decode(API_VERSIONS, answer, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(18, 0, 5)]


def test_a_client_is_told_if_it_meant_another_broker(broker: SteeredNode) -> None:
    """KIP-1242, as Kafka 4.4 answers. A connection to a bootstrap server means any."""
    right, node = broker.services.node.cluster_id, broker.services.node.node_id
    expected = {
        (None, -1): ErrorCode.NONE,
        (right, node): ErrorCode.NONE,
        ("wrong", node): ErrorCode.REBOOTSTRAP_REQUIRED,
        (right, node + 1): ErrorCode.REBOOTSTRAP_REQUIRED,
        ("wrong", node + 1): ErrorCode.REBOOTSTRAP_REQUIRED,
        ("", node): ErrorCode.REBOOTSTRAP_REQUIRED,
        (right, -1): ErrorCode.INVALID_REQUEST,
        ("wrong", -1): ErrorCode.INVALID_REQUEST,
        (None, node): ErrorCode.INVALID_REQUEST,
    }
    answers = {
        (cluster, one): ask(broker, API_VERSIONS, ApiVersionsRequest("x", "1", cluster, one), 5)
        for cluster, one in expected
    }
    assert {meant: answer.error_code for meant, answer in answers.items()} == expected
    assert all(bool(answer.api_keys) == (not answer.error_code) for answer in answers.values())


def test_the_only_controller_is_not_unregistered(broker: SteeredNode) -> None:
    """KIP-1312, as Kafka 4.4 answers."""
    node = broker.services.node.node_id
    for controller, code in ((node, ErrorCode.INVALID_REQUEST), (99, ErrorCode.CONTROLLER_ID_NOT_REGISTERED)):
        answer = ask(broker, UNREGISTER_CONTROLLER, UnregisterControllerRequest(controller))
        assert answer.error_code == code
        assert answer.error_message


def test_a_client_that_does_not_name_its_software(broker: SteeredNode) -> None:
    for name, version in (("", "1"), ("x", ""), ("-x", "1"), ("x y", "1")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert ask(broker, API_VERSIONS, request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "version", "message"),
    [
        (999, 0, "unknown API 999"),
        (-1, 0, "unknown API -1"),
        (0, 2, "Produce version 2 is not served, only 3 to 13"),
        (1, 19, "Fetch version 19 is not served, only 4 to 18"),
        (3, -1, "Metadata version -1"),
    ],
)
def test_what_is_not_served_is_malformed(broker: SteeredNode, key: int, version: int, message: str) -> None:
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(8)
    with pytest.raises(MalformedMessageError, match=message):
        broker.dispatcher.handle(memoryview(bytearray(frame)))


def test_a_large_request_that_is_no_produce_request_is_refused_unread(broker: SteeredNode) -> None:
    frame = encode_request(METADATA, 12, 77, "test", MetadataRequest())[4:] + bytes(MAX_SMALL_REQUEST_BYTES)
    with pytest.raises(MalformedMessageError, match=r"request of \d+ bytes to API 3"):
        broker.dispatcher.handle(memoryview(bytearray(frame)))
