"""__consumer_offsets: keeps the groups; a partition is read when one of its groups is first asked for.

A read-only broker keeps its groups in memory alone: they end with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from core.broker.config.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_setting
from core.broker.coordinators.coordinator_log import CoordinatingBroker, CoordinatorLog, Replay
from core.broker.coordinators.latest_by_key import ReadRecord
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.coordinator.coordinator_environment import GroupConfig
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_record_values import GroupRecord
from core.records.record import Record
from core.records.record_batch import ProducerIdAndEpoch
from core.records.record_batch_builder import batch_of
from core.security.acl_rules import AclRules

GROUPS_TOPIC = "__consumer_offsets"

_CODES_FOR_CLIENTS = {
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
}
"""The error codes that clients get for errors of the log; all others become COORDINATOR_NOT_AVAILABLE."""

_log = logging.getLogger("plog.groups")


class ConsumerOffsetsTopic(CoordinatorLog):
    """Owned by the broker's task, except for the reading itself. It is `coordinator`'s `GroupEnvironment`."""

    coordinator: GroupCoordinator

    def __init__(self, broker: CoordinatingBroker, rules: AclRules | None = None) -> None:
        """`rules`: those by which members see topics, if there are any."""
        super().__init__(broker, GROUPS_TOPIC)
        self._rules = rules
        config = broker.configs.broker
        self.config = GroupConfig(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_minutes=config.offsets_retention_minutes,
            group_consumer_max_size=config.group_consumer_max_size,
            group_consumer_migration_policy=config.group_consumer_migration_policy.lower(),
        )
        self.coordinator = GroupCoordinator(self)

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._broker.controller.image.topics

    @property
    def metadata_version(self) -> int:
        version = self._broker.controller.end_offset
        return version if self._rules is None else version + self._rules.generation  # ZooKeeper's ACLs are elsewhere

    def session_timeout_ms(self, group_id: str) -> int:
        return self._setting(SESSION_TIMEOUT, group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._setting(HEARTBEAT_INTERVAL, group_id)

    def _setting(self, name: str, group_id: str) -> int:
        settings = self._broker.controller.image.configs.get((ConfigResourceType.GROUP, group_id), {})
        return group_setting(name, settings, self._broker.configs.broker)

    # --- the topic

    def _new_topic(self) -> NewTopic:
        config = self._broker.configs.broker
        return NewTopic(
            GROUPS_TOPIC,
            config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor if self._broker.controller.is_member else 1,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )

    def _begin_replay(self, number: int) -> Replay:
        read = self.coordinator.beside()

        def take_up(record: ReadRecord) -> None:
            if record.key:
                read.replay(record.key, record.value, record.producer_id, at=(number, record.offset))
            else:
                read.replay_end_of_transaction(number, record.producer_id, is_commit=record.is_commit)

        return Replay(take_up, lambda: self.coordinator.take_over(read))

    def _on_topic_deleted(self, topic: TopicImage) -> None:
        super()._on_topic_deleted(topic)
        if topic.name != GROUPS_TOPIC:
            self.coordinator.on_topic_deleted(topic.name)

    @property
    def _commit_timeout_ms(self) -> int:
        return self._broker.configs.broker.offsets_commit_timeout_ms

    # --- writing

    def write(self, group_id: str, records: list[GroupRecord], producer: ProducerIdAndEpoch | None = None) -> None:
        """See `GroupEnvironment.write`. Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if the disk refuses."""
        if self._broker.node.is_read_only:
            return
        now_ms = self.now_ms()
        fields: dict[str, object] = {}
        if producer is not None:
            fields = {"is_transactional": True, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        try:
            self.ensure_topic()
            batch = batch_of([Record(n, now_ms, key, value) for n, (key, value) in enumerate(records)], **fields)
            self.append(self.partition(group_id), batch)
        except (OSError, KafkaError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            _log.error("group %s could not be written: %s", group_id, error)
            raise KafkaError(_CODES_FOR_CLIENTS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)) from error

    def on_transaction_ended(self, number: int, producer_id: int, *, is_commit: bool) -> None:
        """Applies a marker in that partition: offsets that the transaction committed there count now, or never."""
        self.when_loaded(
            number, lambda: self.coordinator.replay_end_of_transaction(number, producer_id, is_commit=is_commit)
        )
