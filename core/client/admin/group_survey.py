"""Many groups at once: their members, and their offsets of some partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from core.client.admin.group_admin import (
    GroupAdmin,
    GroupDescription,
    GroupOffset,
    ListedGroup,
    classic_description,
    consumer_description,
    fetch_offsets,
    read_offsets,
)
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from core.protocol.schema.groups import DESCRIBE_GROUPS, DescribeGroupsRequest

_MOST_GROUPS_AT_ONCE = 100


def look_at(
    client: KafkaClient, groups: Sequence[ListedGroup], partitions: Collection[TopicPartition]
) -> Iterator[tuple[ListedGroup, GroupDescription | None, dict[TopicPartition, GroupOffset]]]:
    """Yields each group with its description and the offsets that it committed for these partitions. It asks a
    coordinator about a hundred groups at once, and leaves out groups that were deleted meanwhile. There is no
    description of a group whose type only its own APIs describe (share, streams).
    """
    admin = GroupAdmin(client)
    by_coordinator: dict[int, list[ListedGroup]] = {}
    for group in groups:
        by_coordinator.setdefault(group.coordinator, []).append(group)
    for node_id, listed in by_coordinator.items():
        for start in range(0, len(listed), _MOST_GROUPS_AT_ONCE):
            chunk = listed[start : start + _MOST_GROUPS_AT_ONCE]
            try:
                connection = client.connection_to(node_id)
                described = _describe_several(connection, chunk, node_id)
                fetched = fetch_offsets(connection, [group.group_id for group in chunk], partitions)
                offsets = {name: read_offsets(one, name) for name, one in fetched.items() if not one.error_code}
            except ConnectionFailedError:
                client.forget_connection(node_id)
                described, offsets = _undescribed(chunk), {}
            for group in chunk:
                try:
                    yield (
                        group,
                        described[group.group_id] if group.group_id in described else admin.describe(group.group_id),
                        offsets[group.group_id] if group.group_id in offsets else admin.offsets(group.group_id),
                    )
                except KafkaError as error:
                    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        raise


def _describe_several(
    connection: ClientConnection, groups: Sequence[ListedGroup], node_id: int
) -> dict[str, GroupDescription | None]:
    """Returns the descriptions of the groups that the broker has; None of a group of another type."""
    consumers = [group.group_id for group in groups if group.type.lower() == "consumer"]
    classic = [group.group_id for group in groups if group.type.lower() in ("", "classic")]
    found = _undescribed(groups)
    if consumers:
        answer = connection.call(CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(consumers))
        found |= {one.group_id: consumer_description(one, node_id) for one in answer.groups if not one.error_code}
    if classic:
        described = connection.call(DESCRIBE_GROUPS, DescribeGroupsRequest(classic)).groups
        found |= {
            one.group_id: classic_description(one, node_id)
            for one in described
            if not one.error_code and one.group_state != "Dead"
        }
    return found


def _undescribed(groups: Sequence[ListedGroup]) -> dict[str, GroupDescription | None]:
    return {group.group_id: None for group in groups if group.type.lower() not in ("", "classic", "consumer")}
