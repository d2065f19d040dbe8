"""`plog consume --group`: reads as a member of a group, and commits what it has printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cli.consume_range import ensure_there, resolve
from cli.session import find_server, open_client
from core.client.consumer import READ_COMMITTED, READ_UNCOMMITTED
from core.client.group_admin import GroupAdmin
from core.client.group_consumer import GroupConsumer, GroupMember, Membership, SoleMember
from core.client.kafka_client import KafkaClient
from core.client.record_source import ClusterSource
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.records.batches import group_batches
from core.records.columns import RecordColumns, decode_columns

Formatter = Callable[[TopicPartition, RecordColumns], memoryview]


def consume_as_group(
    topic: str,
    group: str,
    from_: str,
    formatter: Formatter,
    max_messages: int | None,
    bootstrap_server: str | None,
    data_dir: Path | None,
    *,
    read_committed: bool,
) -> None:
    """Until it is stopped, or `max_messages` were printed; in a directory that is this process's own, until the end:
    nobody can add to it.
    """
    has_server = find_server(bootstrap_server, data_dir) is not None
    with open_client(bootstrap_server, data_dir) as client:
        source = ClusterSource(client, read_committed=read_committed)
        partitions = [TopicPartition(topic, number) for number in source.partitions(topic)]
        ends = {} if has_server else source.ends(partitions)

        def begin(wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            there = source.ends(wanted)
            return ensure_there(resolve(from_, source, wanted, there), source, there)

        consumer = GroupConsumer(
            client,
            group,
            _membership(client, group, topic, None if has_server else partitions),
            begin,
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
        )
        try:
            _print(consumer, formatter, max_messages, ends)
        except KeyboardInterrupt:
            client.forget_connections()  # an answer may be under way
            raise
        finally:
            consumer.close()


def _membership(client: KafkaClient, group: str, topic: str, alone_with: Sequence[TopicPartition] | None) -> Membership:
    """KafkaError(NON_EMPTY_GROUP) where a directory that has no server says that there are others."""
    if alone_with is None:
        return GroupMember(client, group, [topic])
    left_over = [g for g in GroupAdmin(client).list_groups() if g.group_id == group and g.state.lower() != "empty"]
    if left_over:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group} has members, as of when its server stopped",
            hint="a server on the directory forgets them after their session timeout: plog serve",
        )
    return SoleMember(frozenset(alone_with))


def _print(consumer: GroupConsumer, formatter: Formatter, left: int | None, ends: Mapping[TopicPartition, int]) -> None:
    """`ends`: where there is no more to come; empty where there may be."""
    if left == 0:
        return
    for found in consumer.read():
        where, start, batches = found or (TopicPartition("", 0), 0, [])
        for of_a_kind in group_batches(batches):
            columns = decode_columns(of_a_kind)
            rows = columns.select(columns.offsets >= start)
            if left is not None:
                rows = rows.select(slice(0, left))
            if len(rows):
                sys.stdout.buffer.write(formatter(where, rows))
                sys.stdout.buffer.flush()
                consumer.done(where, int(rows.offsets[-1]) + 1)
            if left is not None:
                left -= len(rows)
                if left == 0:
                    return
        if ends and all(consumer.positions[tp] >= end for tp, end in ends.items()):
            return
