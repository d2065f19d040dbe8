"""Who uses a topic: when it was made, its first and its last write, its producers, and the groups that read it.

Kafka's protocol does not tell who made a topic, nor a producer's client id or host. The time of its creation is that of
its record in the metadata log, which a data directory has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.group_offset_reset import find_timestamps
from core.client.write.transaction_admin import TransactionAdmin
from core.cluster.image.metadata_log import METADATA_PARTITION
from core.cluster.image.metadata_record import decode_metadata_record
from core.common.errors import KafkaError, MalformedMessageError, PlogError, ensure_success
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.metadata_records import TopicRecord
from core.protocol.schema.transaction_states import ProducerState
from core.view.groups.topic_readers import find_topic_readers

_MAX_TIMESTAMP = -3
_FIRST_VERSION_OF_MAX_TIMESTAMP = 7  # KIP-734

Note = Callable[[str], None]


class Usage(NamedTuple):
    """One fact. `what` is created, first write, last write, producer or group; unknown values are None."""

    what: str
    who: str | None = None
    time_ms: int | None = None
    partition: int | None = None
    offset: int | None = None
    note: str = ""


def find_usage(client: KafkaClient, topic: str, directory: Path | None, note: Note) -> Iterator[Usage]:
    """Yields what is known of the topic's use; `note` is called with what can't be asked. `directory` is the data
    directory, if the log is in one. Raises KafkaError if the topic does not exist, or its leaders refuse.
    """
    info = client.topic(topic)
    partitions = [TopicPartition(topic, number) for number, one in sorted(info.partitions.items()) if one.leader >= 0]
    if len(partitions) < len(info.partitions):
        note(f"{len(info.partitions) - len(partitions)} of {len(info.partitions)} partitions of {topic} have no leader")
    yield _creation(directory, info.topic_id)
    admin = Admin(client)
    starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    there = {partition: start for partition, start in starts.items() if start < ends[partition]}
    firsts = find_timestamps(client, there)
    if firsts:
        first = min(firsts, key=lambda partition: firsts[partition])
        gone = sum(starts.values())
        text = f"or earlier: {gone:,} offsets before the logs' starts are gone" if gone else ""
        yield Usage("first write", None, firsts[first], first.partition, starts[first], text)
    newest = _newest(client, {partition: ends[partition] for partition in there})
    if newest:
        last, (offset, time_ms) = max(newest.items(), key=lambda item: item[1][1])
        yield Usage(
            "last write", None, time_ms, last.partition, offset, "by its timestamp; the end of a transaction counts"
        )
    if not firsts and not newest:
        yield Usage("last write", note="the topic holds no record")
    yield from _producers(client, partitions, note)
    for one in find_topic_readers(client, partitions, note):
        members = "members unknown" if one.members is None else f"{one.members} members"
        lag = "lag unknown" if one.lag is None else f"lag {one.lag:,}"
        text = "; ".join(filter(None, [f"{one.state}, {members}, {lag}", one.problem]))
        yield Usage("group", one.group_id, one.last_commit_ms, note=text)


def _creation(directory: Path | None, topic_id: bytes) -> Usage:
    if directory is None:
        return Usage("created", note="a server does not tell; --data-dir reads it from the metadata log")
    folder = directory / str(METADATA_PARTITION)
    if not folder.is_dir():
        return Usage("created", note="the directory has no metadata log")
    try:
        with closing(PartitionReader(folder)) as log:
            for batch in log.read(log.start_offset, log.end_offset, read_committed=False):
                for record in batch.records():
                    found = decode_metadata_record(record.value)
                    if isinstance(found, TopicRecord) and found.topic_id == topic_id:
                        return Usage("created", None, record.timestamp, note="by whom is not recorded")
    except (PlogError, MalformedMessageError) as error:
        return Usage("created", note=f"the metadata log can't be read: {error}")
    return Usage("created", note="before the oldest record of the metadata log")


def _newest(client: KafkaClient, ends: dict[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns offset and timestamp of each partition's record with the newest timestamp; of its last record from a
    broker that is older than Kafka 3.0.
    """
    found: dict[TopicPartition, tuple[int, int]] = {}
    old: dict[TopicPartition, int] = {}
    for partition, end in ends.items():
        connection = client.connection_to(client.leader_of(partition))
        if connection.version_of(LIST_OFFSETS) < _FIRST_VERSION_OF_MAX_TIMESTAMP:
            old[partition] = end - 1
            continue
        asked = [
            ListOffsetsTopic(partition.topic, [ListOffsetsPartition(partition.partition, timestamp=_MAX_TIMESTAMP)])
        ]
        ((answer,),) = (
            topic.partitions for topic in connection.call(LIST_OFFSETS, ListOffsetsRequest(-1, 0, asked)).topics
        )
        ensure_success(answer.error_code, str(partition))
        if answer.offset >= 0:
            found[partition] = (answer.offset, answer.timestamp)
    return found | {partition: (old[partition], time) for partition, time in find_timestamps(client, old).items()}


def _producers(client: KafkaClient, partitions: Sequence[TopicPartition], note: Note) -> Iterator[Usage]:
    """Yields the producers that the leaders know, each with its last write (KIP-664)."""
    admin = TransactionAdmin(client)
    try:
        states = admin.producers(partitions)
    except KafkaError as error:
        note(f"the producers are not known: {error.message}")
        return
    by_id: dict[int, list[tuple[TopicPartition, ProducerState]]] = {}
    for partition, found in states.items():
        for state in found:
            by_id.setdefault(state.producer_id, []).append((partition, state))
    names: dict[int, str] = {}
    try:
        listed = admin.list_transactions(producer_ids=list(by_id)) if by_id else []
        names = {one.producer_id: one.transactional_id for one in listed}
    except KafkaError as error:
        note(f"the transactional ids are not known: {error.message}")
    for producer_id, of_one in sorted(by_id.items()):
        partition, last = max(of_one, key=lambda one: one[1].last_timestamp)
        texts = [f"producer id {producer_id}, epoch {last.producer_epoch}"]
        texts += [
            f"a transaction is open on {p} from offset {state.current_txn_start_offset}"
            for p, state in sorted(of_one, key=lambda one: one[0])
            if state.current_txn_start_offset >= 0
        ]
        time_ms = last.last_timestamp if last.last_timestamp >= 0 else None
        yield Usage("producer", names.get(producer_id), time_ms, partition.partition, note="; ".join(texts))
    if not by_id:
        note("no producer is known: brokers know those with idempotence, for producer.id.expiration.ms")
