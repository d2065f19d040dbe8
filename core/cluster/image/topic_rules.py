"""Checks requests to a controller about topics (names, counts and assignments), with ZooKeeper and without.

Checks and their messages are Kafka's (org.apache.kafka.controller.ReplicationControlManager).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from core.cluster.image.broker_metadata import NewTopic
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import ensure_valid_topic_name, name_in_metrics
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.files.log_config import parse_topic_configs

MOST_PARTITIONS = 10_000
"""The most that one request may create: Kafka's MAX_PARTITIONS_PER_BATCH."""

Assignments = dict[int, Sequence[int]]


def too_many(partitions: int) -> str:
    return f"{partitions} partitions are more than the {MOST_PARTITIONS} that are allowed at once."


def ensure_may_be_made(
    topic: NewTopic, topics: Collection[str], names: Mapping[str, str], *, is_kafka_3: bool = False
) -> None:
    """Raises KafkaError if the topic may not be created beside `topics`; `names` are theirs, by name in metrics. With
    `is_kafka_3` its settings may have values that Kafka 3 still allowed.
    """
    ensure_valid_topic_name(topic.name)
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
    other = names.get(name_in_metrics(topic.name))
    if topic.name in topics or other == topic.name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {other}"
        )
    null = next((name for name, value in topic.configs.items() if value is None), None)
    if null is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {null}")
    parse_topic_configs(topic.configs, is_kafka_3=is_kafka_3)


def wanted_replicas(
    topic: NewTopic, default_partitions: int, default_replication: int, brokers: Collection[int]
) -> tuple[int, int] | Assignments:
    """Returns the number of partitions and of replicas for a topic, or the assignments of its request. Raises
    KafkaError if they are not possible.
    """
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions or replicationFactor "
                "was not set to -1.",
            )
        assignments = dict(topic.assignments)
        if len(assignments) < len(topic.assignments):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Found multiple manual partition assignments.")
        return checked_assignments(assignments, first=0, brokers=brokers)
    partitions = default_partitions if topic.num_partitions == -1 else topic.num_partitions
    replication = default_replication if topic.replication_factor == -1 else topic.replication_factor
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if replication <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if replication > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication} time(s): "
            "The target replication factor of "
            f"{replication} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    return partitions, replication


def checked_assignments(
    assignments: Mapping[int, Sequence[int]], *, first: int, brokers: Collection[int]
) -> Assignments:
    """Returns the assignments, of partitions from `first` on. Raises KafkaError if partitions are missing, if replicas
    are repeated, differ in number, or are on unknown brokers.
    """
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    for number, replicas in assignments.items():
        if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(brokers):
            listed = ", ".join(map(str, sorted(brokers)))
            only = f"broker {listed} is" if len(brokers) == 1 else f"brokers {listed} are"
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment of partition {number} includes {list(replicas)}, "
                f"but only {only} registered.",
            )
    if len({len(replicas) for replicas in assignments.values()}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment has partitions with different replication factors.",
        )
    return dict(assignments)


def ensure_has_no_gaps(name: str, numbers: Collection[int]) -> None:
    """Raises KafkaError unless partitions are numbered from 0 on: growth would create an existing partition again, with
    other replicas than those with its records.
    """
    if sorted(numbers) != list(range(len(numbers))):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} has the partitions {', '.join(map(str, sorted(numbers)[:10]))}, and lacks one before "
            "its last; it can't grow until that is mended in ZooKeeper.",
        )


def ensure_grows(name: str, present: int, count: int, assignments: Sequence[Sequence[int]] | None) -> None:
    """Raises KafkaError unless a topic of `present` partitions can grow to `count`."""
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {present} partition(s); {count} would not be an increase.",
        )
    if assignments is not None and len(assignments) != count - present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {count - present} additional partition(s), "
            f"but only {len(assignments)} assignment(s) were specified.",
        )
