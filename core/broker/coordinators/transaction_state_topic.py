"""__transaction_state: keeps the transactional ids, and writes the markers that end their transactions.

The broker reads it when it starts, because prepared transactions must be finished. A read-only broker shows the
transactions, and finishes none of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC, ConsumerOffsetsTopic
from core.broker.coordinators.coordinator_log import CoordinatingBroker, CoordinatorLog, Replay
from core.broker.coordinators.latest_by_key import ReadRecord
from core.broker.coordinators.producer_ids import ProducerIdBlocks, ProducerIds
from core.broker.coordinators.transaction_peers import TransactionPeers
from core.broker.requests.commit_wait import Uncommitted, find_uncommitted, when_committed
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import NO_LEADER
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import TransactionConfig
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.coordinator.transaction_record_values import transaction_key
from core.coordinator.transaction_state import RAISES_EPOCH, TransactionMetadata
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of

TRANSACTIONS_TOPIC = "__transaction_state"

_CODES_FOR_CLIENTS = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
}
"""The error codes that clients get for errors of the log; all others become COORDINATOR_NOT_AVAILABLE."""

_log = logging.getLogger("plog.transactions")


class TransactionStateTopic(CoordinatorLog):
    """Owned by the broker's task. It is `coordinator`'s `TransactionEnvironment`."""

    coordinator: TransactionCoordinator

    def __init__(
        self,
        broker: CoordinatingBroker,
        producer_ids: ProducerIds | ProducerIdBlocks,
        groups: ConsumerOffsetsTopic,
        others: TransactionPeers | None = None,
    ) -> None:
        """`groups` must learn of the markers that are written to their topic. `others` are, in a cluster, the brokers
        that lead the other partitions.
        """
        super().__init__(broker, TRANSACTIONS_TOPIC)
        self._others = others
        self._producer_ids = producer_ids
        self._groups = groups
        self.coordinator = TransactionCoordinator(self)

    @property
    def config(self) -> TransactionConfig:
        config = self._broker.configs.broker
        return TransactionConfig(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms)

    @property
    def transaction_version(self) -> int:
        return self._broker.controller.image.features.get("transaction.version", 0)

    def next_producer_id(self) -> int:
        return self._producer_ids.next(self.load_all, lambda: self.coordinator.latest_producer_id)

    # --- the topic

    def _new_topic(self) -> NewTopic:
        config = self._broker.configs.broker
        is_member = self._broker.controller.is_member
        return NewTopic(
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor if is_member else 1,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(config.transaction_state_log_min_isr if is_member else 1),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )

    def _begin_replay(self, number: int) -> Replay:
        read = TransactionCoordinator(self)

        def take_up(record: ReadRecord) -> None:
            read.replay(record.key, record.value, at=(number, record.offset))

        return Replay(take_up, partial(self.take_over, number, read))

    # --- loading

    def take_over(self, number: int, read: TransactionCoordinator) -> None:
        """Adds the partition's ids to the coordinator. Prepared transactions are finished now, unless the broker is
        read-only.
        """
        transactional_ids = self.coordinator.take_over(read)
        if not self._broker.node.is_read_only:
            partition = self._broker.replicas.partitions.get(TopicPartition(TRANSACTIONS_TOPIC, number))
            if partition is not None:  # else its disk has just failed
                self._broker.replicas.flush_as_configured(partition.log)  # no other request flushes recovered records
            self.coordinator.begin(transactional_ids)

    # --- writing

    def write(self, transactional_id: str, value: bytes | None) -> None:
        """See `TransactionEnvironment.write`."""
        self._broker.node.ensure_writable()
        try:
            self.ensure_topic()
            record = Record(0, self.now_ms(), transaction_key(transactional_id), value)
            self.append(self.partition(transactional_id), batch_of([record]))
        except (OSError, KafkaError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            _log.error("transactional id %s could not be written: %s", transactional_id, error)
            raise KafkaError(_CODES_FOR_CLIENTS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)) from error

    def call_when_committed(self, transactional_id: str, then: Callable[[KafkaError | None], None], /) -> None:
        """See `TransactionEnvironment.call_when_committed`."""
        failures: list[ErrorCode] = []
        self._call_when_committed(
            self.find_uncommitted(transactional_id, failures.append),
            lambda: then(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if failures else None),
        )

    def write_markers(
        self,
        prepared: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        then: Callable[[frozenset[TopicPartition]], None],
        /,
    ) -> None:
        """See `TransactionEnvironment.write_markers`. A partition needs no marker if its topic was deleted, or a later
        epoch of the producer has written to it.
        """
        try:
            marker = EndTransactionMarker(prepared.is_commit, self.partition(prepared.transactional_id).leader_epoch)
        except KafkaError as error:
            _log.error("transaction of %s can't be ended: %s", prepared.transactional_id, error)
            then(partitions)
            return
        left: set[TopicPartition] = set()
        elsewhere = defaultdict[int, list[TopicPartition]](list)
        marked = []
        for name in sorted(partitions):
            try:
                partition = self._broker.replicas.find(name.topic, name.partition)
                if _has_marker(partition, prepared):
                    self._broker.replicas.flush_as_configured(partition.log)
                else:
                    self.append_marker(partition, marker, prepared.producer_id, prepared.producer_epoch)
                    self.coordinator.on_step(f"marker {name}")
                marked.append(partition)
            except (OSError, KafkaError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH):
                    continue
                leader = self._leader_elsewhere(name) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
                if leader is not None:
                    elsewhere[leader].append(name)
                    continue
                left.add(name)
                if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:  # still being opened, after a start
                    _log.error("transaction of %s can't be ended on %s: %s", prepared.transactional_id, name, error)

        waiting = [
            uncommitted
            for partition in marked
            for uncommitted in find_uncommitted(partition, partial(_add_name, left, partition))
        ]

        def on_sent(lacking: set[TopicPartition]) -> None:
            left.update(lacking)
            self._call_when_committed(waiting, lambda: then(frozenset(left)))

        if not elsewhere or self._others is None:
            on_sent(set())
        else:
            raises_epochs = self.transaction_version >= RAISES_EPOCH
            self._others.markers.send(prepared, marker, elsewhere, on_sent, raises_epochs=raises_epochs)

    def _leader_elsewhere(self, name: TopicPartition) -> int | None:
        known = None if self._others is None else self._broker.controller.image.find_partition(name)
        is_elsewhere = known is not None and known.leader not in (NO_LEADER, self._broker.node.node_id)
        return known.leader if known is not None and is_elsewhere else None

    def find_coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """Returns the broker that coordinates the id, if it is another one; NO_LEADER while no broker does. None if
        this broker does, or is not in a cluster.
        """
        number = self.find_number(transactional_id)
        name = TopicPartition(TRANSACTIONS_TOPIC, number or 0)
        if self._others is None or (number is not None and self._broker.replicas.leads(name)):
            return None
        found = None if number is None else self._leader_elsewhere(name)
        return NO_LEADER if found is None else found

    def append_marker(
        self, partition: Partition, marker: EndTransactionMarker, producer_id: int, producer_epoch: int
    ) -> None:
        """Ends the producer's transaction in that partition, and applies the offsets that it committed there. Raises
        what `PartitionLog.append_as_leader` raises.
        """
        data = end_transaction_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=self.now_ms()
        )
        batch = RecordBatch(memoryview(bytearray(data)))
        self._broker.replicas.append(partition, batch, required_acks=-1, from_client=False)
        name = partition.log.partition
        if self._others is not None:
            self._others.verifier.on_marker(name, producer_id)
        if name.topic == GROUPS_TOPIC:
            self._groups.on_transaction_ended(name.partition, producer_id, is_commit=marker.is_commit)
        self._broker.replicas.notify([name])

    def _call_when_committed(self, waiting: Sequence[Uncommitted], then: Callable[[], None]) -> None:
        wait = when_committed(self._broker.replicas, waiting, None)
        if isinstance(wait, Pending):
            wait.on_value = lambda _nothing: then()
        else:
            then()


def _add_name(names: set[TopicPartition], partition: Partition, _code: ErrorCode) -> None:
    names.add(partition.log.partition)


def _has_marker(partition: Partition, prepared: TransactionMetadata) -> bool:
    """Returns whether the marker was written before the broker stopped, which shows only if ends raise the epoch."""
    state = partition.log.producers.find(prepared.producer_id)
    return (
        prepared.client_transaction_version >= RAISES_EPOCH
        and state is not None
        and state.producer_epoch == prepared.producer_epoch
        and state.current_txn_first_offset is None
    )
