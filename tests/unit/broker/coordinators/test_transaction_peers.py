"""What a broker asks others about transactions: verdicts and markers, and all that may go wrong with the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.coordinators.transaction_peers import TransactionPeers
from core.broker.coordinators.transaction_verifier import Verdicts
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import TransactionMetadata, TransactionState
from core.protocol.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from core.records.control_record import EndTransactionMarker
from core.records.record_batch import ProducerIdAndEpoch
from tests.support.scripted_controller import ScriptedController

ID = "x"
PRODUCER = ProducerIdAndEpoch(7, 3)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = 9


class Peers:
    """Broker 1 answers as the test says; nobody else lives. No request is given up after some time, unless the test
    says so: that would end waits that something else has to end.
    """

    def __init__(self, broker: ScriptedController, settings: dict[str, str]) -> None:
        self.broker = broker
        self.lives = True
        config = BrokerConfig.parse({"controller.socket.timeout.ms": "3600000"} | settings)
        self.parts = TransactionPeers(self._find, config, ReceiveBuffers(), "broker-5")
        self.verifier = self.parts.verifier

    def _find(self, node_id: int) -> Endpoint | None:
        return self.broker.find()[1] if node_id == 1 and self.lives else None

    async def verdicts(self, *names: TopicPartition, coordinator: int = 1, adds: bool = False) -> Verdicts:
        came: asyncio.Future[Verdicts] = asyncio.get_running_loop().create_future()
        self.verifier.ask(coordinator, ID, PRODUCER, names, adds=adds).on_value = came.set_result
        return await came

    async def lacking(
        self, by_leader: dict[int, list[TopicPartition]], *, client: int = 0, raises_epochs: bool = False
    ) -> set[TopicPartition]:
        """What lacks its marker, after all were asked. `client` is the version of its transactions."""
        came: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()
        prepared = TransactionMetadata(
            ID,
            7,
            60_000,
            producer_epoch=3,
            state=TransactionState.PREPARE_COMMIT,
            client_transaction_version=client,
        )
        marker = EndTransactionMarker(is_commit=True, coordinator_epoch=4)
        self.parts.markers.send(prepared, marker, by_leader, came.set_result, raises_epochs=raises_epochs)
        return await came


@asynccontextmanager
async def peers(answer: Callable[[Any], Any], **settings: str) -> AsyncIterator[Peers]:
    apis = (ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS)
    async with ScriptedController(answer, served=apis) as broker:
        made = Peers(broker, {key.replace("_", "."): value for key, value in settings.items()})
        yield made
        await made.parts.close()


def verdict(*results: tuple[TopicPartition, int], transactional_id: str = ID) -> AddPartitionsToTxnResponse:
    topics = [
        AddPartitionsToTxnTopicResult(name.topic, [AddPartitionsToTxnPartitionResult(name.partition, code)])
        for name, code in results
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult(transactional_id, topics)])


async def test_a_verdict_holds_for_that_producer_and_epoch() -> None:
    async with peers(lambda _request: verdict((T0, 0), (T1, ErrorCode.INVALID_TXN_STATE))) as asked:
        assert await asked.verdicts(T0, T1) == {T0: ErrorCode.NONE, T1: ErrorCode.INVALID_TXN_STATE}
        (request,) = asked.broker.asked
        assert isinstance(request, AddPartitionsToTxnRequest)
        (transaction,) = request.transactions
        assert transaction.verify_only
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (ID, 7, 3)
        assert asked.verifier.is_verified(T0, PRODUCER)
        assert not asked.verifier.is_verified(T1, PRODUCER)
        assert not asked.verifier.is_verified(T0, ProducerIdAndEpoch(7, 4))


async def test_partitions_are_added_for_those_who_leave_it_to_the_leader() -> None:
    async with peers(lambda _request: verdict((T0, 0))) as asked:
        assert await asked.verdicts(T0, adds=True) == {T0: ErrorCode.NONE}
        (request,) = asked.broker.asked
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert not request.transactions[0].verify_only
        assert asked.verifier.is_verified(T0, PRODUCER)


async def test_a_marker_or_another_leader_epoch_ends_what_was_verified() -> None:
    """A marker of whichever epoch; another producer's changes nothing."""
    async with peers(lambda _request: verdict((T0, 0))) as asked:
        await asked.verdicts(T0)
        asked.verifier.on_marker(T0, 8)
        assert asked.verifier.is_verified(T0, PRODUCER)
        asked.verifier.on_marker(T0, 7)
        assert not asked.verifier.is_verified(T0, PRODUCER)
        await asked.verdicts(T0)
        asked.verifier.forget(T0)
        assert not asked.verifier.is_verified(T0, PRODUCER)


@pytest.mark.parametrize("what", ["marker", "epoch"])
async def test_what_comes_while_it_is_asked(what: str) -> None:
    """The answer may be of before: it does not count, and the client tries again."""

    def answer(_request: object) -> AddPartitionsToTxnResponse:
        if what == "marker":
            asked.verifier.on_marker(T0, PRODUCER.producer_id)
        else:
            asked.verifier.forget(T0)
        return verdict((T0, 0), (T1, 0))

    async with peers(answer) as asked:
        assert await asked.verdicts(T0, T1) == {T0: ErrorCode.NOT_COORDINATOR, T1: ErrorCode.NONE}
        assert not asked.verifier.is_verified(T0, PRODUCER)
        assert asked.verifier.is_verified(T1, PRODUCER)


def hang_up(_request: object) -> None:
    raise ConnectionError


@pytest.mark.parametrize("answer", [hang_up, lambda _request: None])
async def test_a_coordinator_that_does_not_answer(
    answer: Callable[[object], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with peers(answer, controller_socket_timeout_ms="50") as asked:
        assert await asked.verdicts(T0) == {T0: ErrorCode.NOT_COORDINATOR}
        assert await asked.verdicts(T0, coordinator=NOBODY) == {T0: ErrorCode.NOT_COORDINATOR}
        assert not asked.verifier.is_verified(T0, PRODUCER)
    warnings = [text for text in caplog.messages if text.startswith(f"transaction of {ID} could not be verified: ")]
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (AddPartitionsToTxnResponse(), ErrorCode.NOT_COORDINATOR),
        (AddPartitionsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.NOT_COORDINATOR),
        (verdict((T1, 0), (TopicPartition("other", 0), 0)), ErrorCode.NOT_COORDINATOR),
        (verdict((T0, 0), transactional_id="another"), ErrorCode.NOT_COORDINATOR),
        (verdict((T0, 0), (T0, ErrorCode.INVALID_TXN_STATE)), ErrorCode.INVALID_TXN_STATE),
        (verdict((T0, 31_000)), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_answers_to_something_else(answer: AddPartitionsToTxnResponse, code: ErrorCode) -> None:
    async with peers(lambda _request: answer) as asked:
        assert await asked.verdicts(T0) == {T0: code}
        for name in (T0, T1, TopicPartition("other", 0)):
            assert not asked.verifier.is_verified(name, PRODUCER)


# --- markers


def marked(*results: tuple[TopicPartition, int]) -> WriteTxnMarkersResponse:
    topics = [
        WritableTxnMarkerTopicResult(name.topic, [WritableTxnMarkerPartitionResult(name.partition, code)])
        for name, code in results
    ]
    return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, topics)])


@pytest.mark.parametrize(
    ("code", "is_lacking"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
        (31_000, True),
    ],
)
async def test_which_markers_are_still_to_be_written(code: int, is_lacking: bool) -> None:
    async with peers(lambda _request: marked((T0, 0), (T1, code))) as asked:
        assert await asked.lacking({1: [T1, T0]}) == ({T1} if is_lacking else set())
        (request,) = asked.broker.asked
        assert isinstance(request, WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 4)
        assert marker.transaction_result


@pytest.mark.parametrize("answer", [hang_up, lambda _request: None, lambda _request: WriteTxnMarkersResponse()])
async def test_a_leader_that_does_not_answer_for_all(answer: Callable[[object], Any]) -> None:
    async with peers(answer, controller_socket_timeout_ms="50") as asked:
        assert await asked.lacking({1: [T0], NOBODY: [T1]}) == {T0, T1}


async def test_a_leader_that_is_paused_until_the_cluster_gives_it_up() -> None:
    async with peers(lambda _request: None) as asked:
        marking = asyncio.create_task(asked.lacking({1: [T0]}))
        verifying = asyncio.create_task(asked.verdicts(T1))
        await asked.broker.was_asked(2)
        asked.lives = False
        asked.parts.on_brokers_changed()
        assert await marking == {T0}
        assert await verifying == {T1: ErrorCode.NOT_COORDINATOR}


async def test_one_leader_is_not_held_up_by_another() -> None:
    async with peers(lambda _request: marked((T0, 0))) as asked:
        assert await asked.lacking({NOBODY: [T1], 1: [T0]}) == {T1}


@pytest.mark.parametrize(("raises_epochs", "told"), [(False, 0), (True, 2)])
async def test_a_marker_says_of_which_version_its_transaction_is_if_all_brokers_know_that(
    raises_epochs: bool, told: int
) -> None:
    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        assert request.markers[0].transaction_version == told
        results = [WritableTxnMarkerTopicResult("t", [WritableTxnMarkerPartitionResult(0)])]
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, results)])

    async with peers(answer) as asked:
        assert await asked.lacking({1: [T0]}, client=2, raises_epochs=raises_epochs) == set()


async def test_a_leader_that_gets_no_markers_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each transaction is tried every second, for as long as the leader is away or refuses us."""
    partition = WritableTxnMarkerPartitionResult(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    refused = WriteTxnMarkersResponse([WritableTxnMarkerResult(7, [WritableTxnMarkerTopicResult("t", [partition])])])
    async with peers(lambda _request: refused) as asked:
        for _ in range(3):
            assert await asked.lacking({1: [T0], NOBODY: [T1]}) == {T0, T1}
        assert len(caplog.messages) == 2, caplog.messages
        assert any("broker 9 is not known to live" in one for one in caplog.messages)
        assert any("User:ANONYMOUS there, who lacks a right" in one for one in caplog.messages)
