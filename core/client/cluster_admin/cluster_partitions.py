"""The partitions of a cluster: their replicas, how far each has come, and why one is not in the ISR."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from core.client.admin.admin import Admin
from core.client.cluster_admin.cluster_admin import ClusterAdmin
from core.client.cluster_admin.log_dirs_query import LogDirsQuery, Offsets, survey_brokers
from core.client.net.kafka_client import KafkaClient, PartitionInfo, TopicInfo
from core.client.net.retry import Retry
from core.cluster.controller.leaderless_partition import LeaderlessPartition
from core.cluster.controller.unclean_recovery import LogEnd
from core.cluster.description.cluster_description import ClusterDescription
from core.cluster.description.replicated_partition import PartitionReport, ReplicaReport, ReplicatedPartition
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.cluster_nodes import UNREGISTER_BROKER
from core.protocol.schema.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

_MIN_ISR = "min.insync.replicas"
_HEARD_SECONDS = 10.0
_ANSWER_SECONDS = 3.0


def read_partitions(client: KafkaClient, topics: Sequence[str] | None, notes: list[str]) -> list[ReplicatedPartition]:
    """Reads all partitions, or those of these topics, in order; adds to `notes` facts that are unknown."""
    found = client.refresh(topics)
    try:
        settings = Admin(client).find_topic_setting(sorted(found), _MIN_ISR) if found else {}
    except KafkaError as error:
        settings = {}
        notes.append(f"{_MIN_ISR} is not known: {error.message}")
    return [
        ReplicatedPartition(
            TopicPartition(name, number),
            leader=info.leader,
            leader_epoch=info.leader_epoch,
            replicas=info.replicas,
            isr=info.isr,
            offline=info.offline,
            min_isr=int(settings[name]) if name in settings else None,
        )
        for name, topic in sorted(found.items())
        for number, info in sorted(topic.partitions.items())
    ]


def read_leaders_when_heard(
    client: KafkaClient, before: Sequence[ReplicatedPartition], elected: Container[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the leader of each of the partitions, -1 without a leader, once the answering broker knows of new leaders
    of the `elected` ones: the controller tells each broker by itself. Partitions of which it does not know after some
    seconds are missing, and so are deleted ones.

    Asks on connections of its own, with a short timeout. Raises ConnectionFailedError if no broker answers in these
    seconds.
    """
    topics = sorted({p.partition.topic for p in before})
    waiting = Retry(_HEARD_SECONDS)
    with closing(client.another(timeout_s=_ANSWER_SECONDS)) as asked:
        while True:
            try:
                found = asked.refresh(topics, skips_unknown=True)
                known = {p.partition: now for p in before if (now := _find(found, p.partition)) is not None}
                late = {p.partition for p in before if p.partition in elected and _is_led_as_before(p, known)}
                if not late or not waiting.wait():
                    return {partition: now.leader for partition, now in known.items() if partition not in late}
            except ConnectionFailedError:
                asked.forget_connections()
                if not waiting.wait():
                    raise


def _find(topics: Mapping[str, TopicInfo], partition: TopicPartition) -> PartitionInfo | None:
    topic = topics.get(partition.topic)
    return topic.partitions.get(partition.partition) if topic is not None else None


def _is_led_as_before(placed: ReplicatedPartition, known: Mapping[TopicPartition, PartitionInfo]) -> bool:
    now = known.get(placed.partition)
    return now is not None and (now.leader, now.leader_epoch) == (placed.leader, placed.leader_epoch)


def with_moves(
    client: KafkaClient, placed: Sequence[ReplicatedPartition], notes: list[str]
) -> list[ReplicatedPartition]:
    """Adds to each partition its adding replicas. Asks the controller for them, unless all ISRs are complete; `notes`
    gets the error. A cluster without reassignments, as one broker alone, adds none.
    """
    if not any(p.out_of_sync for p in placed):
        return list(placed)
    try:
        ongoing = ClusterAdmin(client).list_reassignments()
    except PlogError as error:
        if not (isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION):
            notes.append(f"which replicas are being added is not known: {error.message}")
        return list(placed)
    return [replace(p, adding=ongoing[p.partition].adding) if p.partition in ongoing else p for p in placed]


def report_partitions(
    client: KafkaClient, cluster: ClusterDescription, placed: Sequence[ReplicatedPartition], notes: list[str]
) -> list[PartitionReport]:
    """Asks the brokers that have replicas of them; adds to `notes` what could not be found out, and why."""
    holders = {replica for p in placed for replica in p.replicas}
    asked = [broker for broker in cluster.brokers if broker.broker_id in holders]
    surveys = survey_brokers(client, asked, [p.partition for p in placed])
    notes += [f"broker {broker.broker_id}: {broker.failure.message}" for broker in asked if broker.failure is not None]
    notes += survey_notes(surveys)
    elrs = _read_elrs(client, cluster, sorted({p.partition.topic for p in placed if p.out_of_sync}), notes)
    return [_report(cluster, p, surveys, elrs.get(p.partition, None if p.out_of_sync else ())) for p in placed]


def report_leaderless(
    client: KafkaClient, cluster: ClusterDescription, placed: Sequence[ReplicatedPartition], notes: list[str]
) -> list[LeaderlessPartition]:
    """Finds for each partition without a leader what it waits for: asks the controller, and the brokers that have
    replicas. Adds to `notes` what could not be found out, and why.
    """
    leaderless = [p for p in placed if not p.has_leader]
    if not leaderless:
        return []
    replicas = {replica for p in leaderless for replica in p.replicas}
    asked = [broker for broker in cluster.brokers if broker.broker_id in replicas]
    surveys = survey_brokers(client, asked, [p.partition for p in leaderless])
    needs_all = has_plogs_controller(cluster)
    is_told = needs_all or cluster.has_quorum
    topics = sorted({p.partition.topic for p in leaderless}) if is_told else []
    elrs = _read_elrs(client, cluster, topics, notes)
    plogs = {broker.broker_id for broker in asked if _is_plog(cluster, broker.broker_id)}
    found = []
    for p in leaderless:
        ends = {
            replica: LogEnd(surveys[replica].epochs.get(p.partition) if replica in plogs else None, end)
            for replica in p.replicas
            if replica in surveys and (end := _known(surveys[replica].ends, p.partition)) is not None
        }
        candidates = (*p.isr, *(one for one in elrs.get(p.partition, ()) if one not in p.isr))
        found.append(LeaderlessPartition(p.partition, p.replicas, candidates, ends, needs_all))
    return found


def has_plogs_controller(cluster: ClusterDescription) -> bool:
    """Returns whether the controller is plog's, in a cluster with ZooKeeper."""
    return _is_plog(cluster, cluster.controller_id)


def _is_plog(cluster: ClusterDescription, broker_id: int) -> bool:
    """Returns whether a broker of a cluster with ZooKeeper is plog's: Kafka's have no UnregisterBroker there."""
    versions = next((one.versions for one in cluster.brokers if one.broker_id == broker_id), None)
    return not cluster.has_quorum and versions is not None and UNREGISTER_BROKER.key in versions


def survey_notes(surveys: Mapping[int, LogDirsQuery]) -> list[str]:
    return [f"broker {broker_id}: {note}" for broker_id, survey in surveys.items() for note in survey.notes]


def _read_elrs(
    client: KafkaClient, cluster: ClusterDescription, topics: Sequence[str], notes: list[str]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas that are not in the ISR, and have, or may have, all committed records. Asks about `topics`
    alone, as only these have such replicas. With ZooKeeper only the controller knows them.
    """
    found = dict[TopicPartition, tuple[int, ...]]()
    if not topics:
        return found
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in topics])
    try:
        controller = next((one for one in cluster.brokers if one.broker_id == cluster.controller_id), None)
        if cluster.has_quorum or controller is None:
            connection = client.any_connection()
        elif controller.failure is not None:
            raise controller.failure
        else:
            connection = client.connection_to(controller.broker_id)
        while True:
            answer = connection.call(DESCRIBE_TOPIC_PARTITIONS, request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.eligible_leader_replicas is not None:
                        where = TopicPartition(topic.name or "", partition.partition_index)
                        witnesses = () if cluster.has_quorum else partition.last_known_elr or ()
                        found[where] = (*partition.eligible_leader_replicas, *witnesses)
            if answer.next_cursor is None:
                return found
            request.cursor = answer.next_cursor
    except PlogError as error:
        notes.append(f"eligible leader replicas are not known: {error.message}")
        return found


def _report(
    cluster: ClusterDescription,
    placed: ReplicatedPartition,
    surveys: Mapping[int, LogDirsQuery],
    elr: tuple[int, ...] | None,
) -> PartitionReport:
    partition, leader = placed.partition, surveys.get(placed.leader, LogDirsQuery())
    end, size = _known(leader.ends, partition), (leader.sizes or {}).get(partition)
    replicas = []
    for replica in placed.replicas:
        survey = surveys.get(replica, LogDirsQuery())
        own_end, own_size = _known(survey.ends, partition), (survey.sizes or {}).get(partition)
        lag = max(end - own_end, 0) if end is not None and own_end is not None else None
        is_in_sync = replica in placed.isr
        replicas.append(
            ReplicaReport(
                broker_id=replica,
                is_leader=replica == placed.leader,
                is_in_sync=is_in_sync,
                is_eligible=None if elr is None else replica in elr,
                start_offset=_known(survey.starts, partition),
                end_offset=own_end,
                lag=lag,
                size_bytes=own_size,
                lag_bytes=max(size - own_size, 0) if size is not None and own_size is not None else None,
                why_out_of_sync=None if is_in_sync else _why_out_of_sync(cluster, placed, replica, survey, lag),
            )
        )
    return PartitionReport(placed, elr, _known(leader.high_watermarks, partition), end, replicas)


def _known(offsets: Offsets, partition: TopicPartition) -> int | None:
    found = offsets.get(partition)
    return None if isinstance(found, ErrorCode) else found


def _why_out_of_sync(
    cluster: ClusterDescription, placed: ReplicatedPartition, replica: int, survey: LogDirsQuery, lag: int | None
) -> str:
    """Returns the reason, as far as it is known from outside: only the leader knows what it waits for."""
    broker = next((broker for broker in cluster.brokers if broker.broker_id == replica), None)
    if broker is None:
        return "its broker is not registered: it is stopped, or cut off from the cluster"
    if broker.is_fenced:
        return "its broker is fenced: it is stopped, or the controller does not hear from it"
    if broker.failure is not None:
        return f"its broker can't be reached from here: {broker.failure.message}"
    error = survey.ends.get(placed.partition)
    if replica in placed.offline or error is ErrorCode.KAFKA_STORAGE_ERROR:
        if not survey.failed_dirs:
            return "its broker does not serve it: the disk has failed, or has lost records; the broker's log says which"
        return f"its disk has failed: {', '.join(survey.failed_dirs)}"
    if isinstance(error, ErrorCode):
        return f"its broker does not serve it: {error.text}"
    if not placed.has_leader:
        return "there is no leader that it could follow"
    if lag is None:
        return "how far it has copied is not known"
    if lag and replica in placed.adding:
        return f"it is being added, and has {lag:,} records to copy"
    return f"it lags by {lag:,} records" if lag else "it has caught up, and the leader has not added it to the ISR yet"
