"""The records of __transaction_state as values: reading and writing them.

The messages are in `protocol.schema.transaction_records`. Source:
org.apache.kafka.coordinator.transaction.TransactionStateTopic.
"""

from __future__ import annotations

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition, by_topic
from core.coordinator.group_record_values import read_record, record_key, record_types, record_value
from core.coordinator.transaction_state import TransactionMetadata, TransactionState
from core.protocol.schema import transaction_records
from core.protocol.schema.transaction_records import PartitionsSchema, TransactionLogValue

_TYPES = record_types(transaction_records)


def transaction_key(transactional_id: str) -> bytes:
    return record_key(TransactionLogValue, transactional_id)


def transaction_value(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """Encodes the metadata in the record version for the cluster's transaction.version: 0 up to Kafka 3.9."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        numbers = by_topic((one, one.partition) for one in sorted(metadata.partitions))
        partitions = [PartitionsSchema(*topic) for topic in numbers.items()]
    version = min(transaction_version, 1)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_transaction_version
    return record_value(value, version)


def read_transaction(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Returns the transactional id and its metadata, None as metadata for a tombstone; None for an unknown record type.
    Raises CorruptRecordError if the bytes do not match the type.
    """
    read = read_record(key, value, _TYPES)
    if read is None:
        return None
    read_key, read_value, _ = read
    transactional_id = read_key.transactional_id
    if read_value is None:
        return transactional_id, None
    try:
        state = TransactionState(read_value.transaction_status)
    except ValueError:
        raise CorruptRecordError(
            f"transactional id {transactional_id!r} is in the unknown state {read_value.transaction_status}"
        ) from None
    partitions = frozenset(
        TopicPartition(entry.topic, number)
        for entry in read_value.transaction_partitions or ()
        for number in entry.partition_ids
    )
    return transactional_id, TransactionMetadata(
        transactional_id,
        read_value.producer_id,
        read_value.transaction_timeout_ms,
        producer_epoch=read_value.producer_epoch,
        previous_producer_id=read_value.previous_producer_id,
        next_producer_id=read_value.next_producer_id,
        state=state,
        partitions=partitions,
        last_update_ms=read_value.transaction_last_update_timestamp_ms,
        start_ms=read_value.transaction_start_timestamp_ms,
        client_transaction_version=read_value.client_transaction_version,
    )
