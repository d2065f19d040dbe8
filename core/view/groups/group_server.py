"""The consumer groups of a cluster, asked of its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin, GroupDescription, ListedGroup
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.client.read.offset_reset import offset_rows
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.view.groups.group_rows import EndOffset, GroupPartition, Offsets, lag_of, partitions_of, readers_of


class ServerGroups:
    """A `GroupSource`; owned by one task."""

    problems: list[str] = []  # noqa: RUF012 - never changed: a server answers as a whole, or not

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._admin = GroupAdmin(client)
        self._topics: dict[str, TopicInfo] = {}

    def refresh(self) -> Iterator[tuple[int, int]]:
        self._topics = self.client.refresh()
        yield 1, 1

    def list_groups(self) -> list[ListedGroup]:
        return self._admin.list_groups()

    def describe(self, group_id: str) -> GroupDescription:
        return self._admin.describe(group_id)

    def offsets(self, group_id: str) -> Offsets:
        return self._admin.offsets(group_id)

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        wanted = sorted(set(partitions))
        found = {partition: EndOffset(None, why) for partition in wanted if (why := self._why_not(partition))}
        led = [partition for partition in wanted if partition not in found]
        try:
            asked = Admin(self.client).list_offsets(dict.fromkeys(led, LATEST))
            found.update((partition, EndOffset(offset)) for partition, offset in asked.items())
        except KafkaError as error:
            if len(led) == 1:
                return {**found, led[0]: EndOffset(None, error.message)}
            for partition in led:  # so that one that is refused does not hide the others
                found.update(self.ends([partition]))
        return found

    def _why_not(self, partition: TopicPartition) -> str:
        """Says why the partition has no end that can be asked for; nothing if it has."""
        topic = self._topics.get(partition.topic)
        if topic is None:
            return f"there is no topic {partition.topic} any more"
        info = topic.partitions.get(partition.partition)
        if info is None:
            return f"there is no partition {partition}"
        return "" if info.leader >= 0 else f"{partition} has no leader"

    def rows(self, group: GroupDescription, committed: Offsets) -> list[GroupPartition]:
        """Asks for those that can be asked about as `plog group describe` does."""
        whys = {partition: self._why_not(partition) for partition in partitions_of(group, committed)}
        led = {partition for partition, why in whys.items() if not why}
        try:
            asked = self._ask(group, committed, led)
        except KafkaError as error:
            whys.update(dict.fromkeys(led, error.message))
            asked = {}
        readers = readers_of(group)
        rows = []
        for partition, why in whys.items():
            known = committed.get(partition)
            offset = None if known is None else known.offset
            found = asked.get(partition, {})
            end_offset, lag_ms = found.get("end_offset"), found.get("lag_ms")
            metadata = None if known is None else known.metadata or None
            rows.append(
                GroupPartition(
                    partition=partition,
                    offset=offset,
                    end_offset=end_offset,
                    lag=lag_of(offset, end_offset),
                    lag_ms=lag_ms,
                    metadata=metadata,
                    member=readers.get(partition),
                    problem=why,
                )
            )
        return rows

    def _ask(
        self, group: GroupDescription, committed: Offsets, led: set[TopicPartition]
    ) -> dict[TopicPartition, dict[str, int | None]]:
        members = tuple(
            replace(member, partitions=tuple(p for p in member.partitions or () if p in led))
            for member in group.members
        )
        kept = {partition: offset for partition, offset in committed.items() if partition in led}
        rows = offset_rows(self.client, replace(group, members=members), kept)
        return {TopicPartition(row["topic"], row["partition"]): row for row in rows}
