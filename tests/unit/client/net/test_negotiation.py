"""Which version of ApiVersions a connection takes with brokers of any age."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.requests.handlers.api_versions import unsupported_version
from core.client.net.client_connection import ClientConnection
from core.common.error_code import ErrorCode
from core.protocol.frame import SIZE, Endpoint, read_request_start
from core.protocol.schema.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.support.for_each import for_each


class Broker:
    """A transport with a broker at its end that speaks ApiVersions up to that version; older ones answer in version 0
    to what they don't know (KIP-511).
    """

    def __init__(self, newest: int, refused: int = -1) -> None:
        self._newest = newest
        self._refused = refused
        self._answers: list[memoryview] = []
        self.asked: list[int] = []

    def send(self, frame: bytearray) -> None:
        _, version, correlation_id = read_request_start(memoryview(frame)[SIZE.size :])
        self.asked.append(version)
        answer = ApiVersionsResponse(
            api_keys=[ApiVersion(18, 0, self._newest)],
            supported_features=[SupportedFeatureKey("metadata.version", 1, 20)],
            finalized_features_epoch=7,
            finalized_features=[FinalizedFeatureKey("metadata.version", 19, 1)],
        )
        if version == self._refused:
            answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif version > self._newest:
            version, answer = 0, unsupported_version()
        encoded = b"".join(map(bytes, Endpoint(API_VERSIONS, version).encode_response(correlation_id, answer)))  # type: ignore[arg-type]
        self._answers.append(memoryview(encoded)[SIZE.size :])

    def await_answer(self, on_silence: Callable[[str], None]) -> None: ...

    def receive(self) -> memoryview:
        return self._answers.pop(0)

    def close(self) -> None:
        pass


@for_each("newest, asked", [(4, [4]), (3, [4, 3]), (2, [4, 3, 0]), (0, [4, 3, 0])])
def test_features_are_heard_of_from_every_broker_that_tells_them(newest: int, asked: list[int]) -> None:
    """Version 3 has them; version 4 is of Kafka 3.9."""
    broker = Broker(newest)
    connection = ClientConnection(broker)
    assert broker.asked == asked
    assert connection.api_versions == {18: (0, newest)}
    tells = newest >= 3
    assert connection.supported_features == ({"metadata.version": (1, 20)} if tells else {})
    assert connection.features == ({"metadata.version": 19} if tells else {})
    assert connection.features_epoch == (7 if tells else -1)


def test_a_broker_that_refuses_a_version_in_that_version_is_asked_in_an_earlier_one() -> None:
    broker = Broker(newest=4, refused=4)
    assert ClientConnection(broker).api_versions == {18: (0, 4)}
    assert broker.asked == [4, 3]
