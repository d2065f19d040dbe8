"""The transactions of a data directory, by its files: what is open on partitions, and what __transaction_state says.

What is said is what `plog transaction list`, `describe` and `find-hanging` say of the same directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from core.client.write.transaction_admin import TRANSACTIONS_TOPIC, OpenTransaction, TransactionDescription
from core.common.clock import Clock
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import TransactionMetadata
from core.view.groups.partition_transactions import PartitionTransactions, read_open_transactions
from core.view.groups.replay_environment import ReplayedTransactions
from core.view.groups.replayed_topic import ReplayedTopic
from core.view.groups.transaction_rows import KnownId, TransactionListing, known_id
from core.view.target.log_figures import FolderMark, LogFigures


class FileTransactions:
    """A `TransactionSource`; owned by one task."""

    def __init__(self, logs: LogFigures, clock: Clock) -> None:
        self.logs = logs
        self._topic = ReplayedTopic(TRANSACTIONS_TOPIC, lambda number: ReplayedTransactions(number, clock))
        self._known: dict[TopicPartition, tuple[FolderMark, PartitionTransactions]] = {}
        self._unread: dict[TopicPartition, str] = {}

    def look(self) -> Iterator[tuple[int, int]]:
        """Reads the coordinator's topic, then each partition whose log has changed."""
        self.logs.look_again()
        partitions = sorted(p for p in self.logs.reader.partitions if p.topic != TRANSACTIONS_TOPIC)
        parts = len(self.logs.reader.topics.get(TRANSACTIONS_TOPIC, ()))
        total = parts + len(partitions)
        for done, _ in self._topic.refresh(self.logs):
            yield done, total
        for gone in (self._known.keys() | self._unread.keys()) - set(partitions):
            self._known.pop(gone, None)
            self._unread.pop(gone, None)
        for done, partition in enumerate(partitions, parts + 1):
            self._look_at(partition)
            yield done, total

    def _look_at(self, partition: TopicPartition) -> None:
        """Reads what is open there, unless nothing has changed."""
        try:
            mark = self.logs.mark(partition)
            known = self._known.get(partition)
            if known is not None and known[0] == mark:
                return
            with closing(self.logs.reader.open(partition)) as log:
                self._known[partition] = mark, read_open_transactions(log, None if known is None else known[1])
            self._unread.pop(partition, None)
        except PlogError as error:
            self._known.pop(partition, None)
            self._unread[partition] = error.message

    def listing(self, done: int, total: int) -> TransactionListing:
        described = self._described()
        problems = [*filter(None, [self.logs.problem]), *self._topic.problems]
        if TRANSACTIONS_TOPIC not in self.logs.reader.topics:
            problems.append(f"{self.logs.reader.root} has no {TRANSACTIONS_TOPIC}: no transactional id is known")
        problems += [f"{partition}: {why}" for partition, why in sorted(self._unread.items())]
        problems += [f"{p}: {known.problem}" for p, (_, known) in sorted(self._known.items()) if known.problem]
        ids: list[KnownId] = [known_id(found) for found in described]
        return TransactionListing(self._open(described), ids, done, total, problems)

    def _described(self) -> list[TransactionDescription]:
        topics = self.logs.directory_topics
        node_id = -1 if topics is None else topics.node_id
        found = {
            metadata.transactional_id: _description(metadata, node_id)
            for part in self._topic.parts.values()
            for metadata in part.coordinator.all()
        }
        return [found[transactional_id] for transactional_id in sorted(found)]

    def _open(self, described: list[TransactionDescription]) -> list[OpenTransaction]:
        by_producer = {found.producer_id: found for found in described}
        return [
            OpenTransaction(
                partition=partition,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator_epoch=one.coordinator_epoch,
                start_offset=one.start_offset,
                first_timestamp=one.first_timestamp,
                last_timestamp=one.last_timestamp,
                last_stable_offset=here.last_stable_offset,
                high_watermark=here.end_offset,
                known=by_producer.get(one.producer_id),
            )
            for partition, (_, here) in sorted(self._known.items())
            for one in here.found
        ]


def _description(metadata: TransactionMetadata, node_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=metadata.transactional_id,
        coordinator=node_id,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        state=metadata.state.text,
        timeout_ms=metadata.timeout_ms,
        started_ms=metadata.start_ms,
        partitions=metadata.partitions,
    )
