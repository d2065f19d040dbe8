"""Requests of the command line to a cluster's controller: elect leaders, move replicas, and finalize features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from core.client.admin.controller_connection import at_controller, at_controller_itself
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, ensure_success
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.protocol.message import Api
from core.protocol.schema.cluster_nodes import (
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from core.protocol.schema.metadata import DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest
from core.protocol.schema.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

_TIMEOUT_MS = 20_000
_ELECTION_MS = 5_000
_ELECTION_TRIES = 4
_FIRST_VERSION_WITH_UNCLEAN = 1  # KIP-460
_FIRST_UPDATE_WITH_TYPES = 1  # KIP-778, which has validate_only too

Refusals = dict[TopicPartition, KafkaError]
Result = TypeVar("Result")

_RIGHTS = {
    ELECT_LEADERS.key: "Alter",
    ALTER_PARTITION_REASSIGNMENTS.key: "Alter",
    LIST_PARTITION_REASSIGNMENTS.key: "Describe",
    UPDATE_FEATURES.key: "Alter",
}
_TOO_OLD = {UPDATE_FEATURES.key: "Apache Kafka 2.7 and later can do it, 3.3 and later also a dry run"}


class ElectionType(IntEnum):
    """Numbers of org.apache.kafka.common.ElectionType."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition whose replicas are being moved. `replicas` are the old and the new ones together."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)


@dataclass(frozen=True, slots=True)
class TopicBeingDeleted:
    """The replicas left of a topic under deletion, and their brokers. The deletion waits for dead brokers."""

    replicas: int
    brokers: list[int]
    waits_for: list[int]


class ClusterAdmin:
    """Owned by one task. Every method raises KafkaError if the cluster refuses the whole, or is too old for it."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    # --- deletions

    def topics_being_deleted(self) -> dict[str, TopicBeingDeleted]:
        """Finds the topics of which brokers still have to delete replicas, by name; none with KRaft, where they are
        gone at once. Raises KafkaError(UNSUPPORTED_VERSION) for a controller of Kafka's with ZooKeeper.
        """

        def find(connection: ClientConnection) -> dict[str, TopicBeingDeleted]:
            request, found = DescribeTopicPartitionsRequest(), dict[str, TopicBeingDeleted]()
            while True:
                answer = connection.call(DESCRIBE_TOPIC_PARTITIONS, request)
                for topic in answer.topics:
                    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        left = {broker for one in topic.partitions for broker in one.replica_nodes}
                        dead = {broker for one in topic.partitions for broker in one.offline_replicas}
                        found[topic.name or ""] = TopicBeingDeleted(
                            sum(len(one.replica_nodes) for one in topic.partitions), sorted(left), sorted(dead)
                        )
                if answer.next_cursor is None:
                    return found
                request.cursor = answer.next_cursor

        try:
            return at_controller_itself(self._client, find)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                error.hint = (
                    "Kafka's controllers don't list topics that are being deleted; in ZooKeeper they are below "
                    "/admin/delete_topics"
                )
            raise

    # --- elections

    def elect_leaders(
        self, kind: ElectionType, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders; returns the error of each partition, or None. An election that was not needed is an error,
        too (ELECTION_NOT_NEEDED).

        Kafka's controller with ZooKeeper elects at once and may answer late: the request is repeated for partitions
        that timed out.
        """
        found: dict[TopicPartition, KafkaError | None] = {}
        left = list(partitions)
        for _ in range(_ELECTION_TRIES):
            found |= self._elect(kind, left)
            left = [p for p in left if (error := found[p]) is not None and error.code is ErrorCode.REQUEST_TIMED_OUT]
            if not left:
                break
        return found

    def _elect(self, kind: ElectionType, partitions: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        numbers = by_topic((partition, partition.partition) for partition in sorted(partitions))
        asked = [TopicPartitions(topic, found) for topic, found in numbers.items()]
        request = ElectLeadersRequest(kind, asked, _ELECTION_MS)

        def elect(connection: ClientConnection) -> dict[TopicPartition, KafkaError | None]:
            if kind is ElectionType.UNCLEAN and connection.version_of(ELECT_LEADERS) < _FIRST_VERSION_WITH_UNCLEAN:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, "the cluster is too old for unclean elections on request"
                )
            answer = connection.call(ELECT_LEADERS, request)
            ensure_success(answer.error_code, "election")
            results: dict[TopicPartition, KafkaError | None] = dict.fromkeys(partitions)
            for topic in answer.replica_election_results:
                for one in topic.partition_result:
                    partition = TopicPartition(topic.topic, one.partition_id)
                    results[partition] = _refusal(one.error_code, one.error_message, partition)
            return results

        return self._at_controller(ELECT_LEADERS, elect)

    def forget_broker(self, broker_id: int) -> None:
        """Tells the controller not to wait for that broker's replicas: it is gone for good. Raises
        KafkaError(UNSUPPORTED_VERSION) if the controller is not plog's in a cluster with ZooKeeper, and what
        `ClusterController.forget` raises.
        """

        def forget(connection: ClientConnection) -> None:
            answer = connection.call(UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id))
            ensure_success(answer.error_code, f"broker {broker_id}", answer.error_message)

        at_controller_itself(self._client, forget)

    # --- reassignments

    def alter_reassignments(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> Refusals:
        """Begins to move each partition to those brokers, the preferred leader first; None cancels a reassignment.
        Returns the refusals. It does not wait for the end of the moves.
        """
        topics = [
            ReassignableTopic(
                topic,
                [ReassignablePartition(number, _listed(targets[TopicPartition(topic, number)])) for number in numbers],
            )
            for topic, numbers in by_topic((partition, partition.partition) for partition in sorted(targets)).items()
        ]
        request = AlterPartitionReassignmentsRequest(_TIMEOUT_MS, topics=topics)

        def alter(connection: ClientConnection) -> Refusals:
            answer = connection.call(ALTER_PARTITION_REASSIGNMENTS, request)
            ensure_success(answer.error_code, "reassignment", answer.error_message)
            refused = Refusals()
            for partition, one in by_partition(answer.responses):
                error = _refusal(one.error_code, one.error_message, partition)
                if error is not None:
                    refused[partition] = error
            return refused

        return self._at_controller(ALTER_PARTITION_REASSIGNMENTS, alter)

    def list_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """Returns all reassignments of the cluster, whoever began them."""

        def list_(connection: ClientConnection) -> dict[TopicPartition, OngoingReassignment]:
            request = ListPartitionReassignmentsRequest(_TIMEOUT_MS, None)
            answer = connection.call(LIST_PARTITION_REASSIGNMENTS, request)
            ensure_success(answer.error_code, "reassignments", answer.error_message)
            return {
                partition: OngoingReassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for partition, one in by_partition(answer.topics)
            }

        return self._at_controller(LIST_PARTITION_REASSIGNMENTS, list_)

    # --- features

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError]:
        """Finalizes these levels; returns the refused features. Kafka 4 and plog do all or none, and raise the error of
        one. `validate_only` changes nothing.
        """

        def update(connection: ClientConnection) -> dict[str, KafkaError]:
            version = connection.version_of(UPDATE_FEATURES)
            if validate_only and version < _FIRST_UPDATE_WITH_TYPES:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the cluster is too old to check features only")
            keys = [_feature_key(one, version) for one in updates]
            answer = connection.call(UPDATE_FEATURES, UpdateFeaturesRequest(_TIMEOUT_MS, keys, validate_only))
            ensure_success(answer.error_code, "features", answer.error_message)
            return {
                one.feature: KafkaError(ErrorCode.of(one.error_code), one.error_message or one.feature)
                for one in answer.results
                if one.error_code
            }

        return self._at_controller(UPDATE_FEATURES, update)

    def _at_controller(self, api: Api[Any, Any], work: Callable[[ClientConnection], Result]) -> Result:
        try:
            return at_controller(self._client, work)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                error.hint = _TOO_OLD.get(
                    api.key,
                    "Apache Kafka 2.4 and later can do it; a lone plog serve has no other broker to move anything to",
                )
            elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                error.hint = f"{api.name} needs the right {_RIGHTS[api.key]} on the cluster (kafka-acls.sh --cluster)"
            raise


def _listed(replicas: tuple[int, ...] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _refusal(code: int, message: str | None, partition: TopicPartition) -> KafkaError | None:
    """Raises KafkaError(NOT_CONTROLLER), which is about the broker, and not about the partition."""
    if not code:
        return None
    error = KafkaError(ErrorCode.of(code), message or f"{partition}: {ErrorCode.of(code).text}")
    if error.code is ErrorCode.NOT_CONTROLLER:
        raise error
    return error


def _feature_key(update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    if version >= _FIRST_UPDATE_WITH_TYPES:
        return FeatureUpdateKey(update.name, update.level, upgrade_type=update.way)
    return FeatureUpdateKey(update.name, update.level, allow_downgrade=update.way is not UpgradeType.UPGRADE)
