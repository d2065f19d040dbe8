"""Metrics of a broker's replicas: which there are, who is in sync, what goes from leaders to followers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from core.broker.observe.metric_families import counter, gauge, gauges
from core.broker.requests.services import Services


def replication_metrics(services: Services) -> Iterator[Metric]:
    yield from _replica_metrics(services)
    yield from _in_sync_metrics(services)
    yield from _traffic_metrics(services)


def _replica_metrics(services: Services) -> Iterator[Metric]:
    unloaded = len(services.log_manager.unloaded)
    served, offline = len(services.replicas.partitions) + unloaded, len(services.log_manager.offline)
    prefix = "kafka_server_replicamanager"
    yield gauge(f"{prefix}_partitioncount", "Partitions of this broker.", served + offline)
    led = sum(partition.is_leading for partition in services.replicas.partitions.values())
    led += sum(services.replicas.leads(name) for name in services.log_manager.unloaded)
    yield gauge(f"{prefix}_leadercount", "Partitions that it leads.", led)
    yield gauge("plog_unloaded_partitions", "Those of them that are yet to be read after the start.", unloaded)
    yield gauge(f"{prefix}_offlinereplicacount", "Partitions that the disk refuses.", offline)


def _in_sync_metrics(services: Services) -> Iterator[Metric]:
    prefix = "kafka_server_replicamanager"
    partitions = services.replicas.partitions.values()
    yield gauge(
        f"{prefix}_underreplicatedpartitions",
        "Partitions led here with fewer replicas in sync than they have; those that are being added do not count.",
        sum(partition.is_under_replicated for partition in partitions),
    )
    yield gauge(
        f"{prefix}_underminisrpartitioncount",
        "Partitions led here that refuse acks=all.",
        sum(partition.is_under_min_isr for partition in partitions),
    )
    yield gauge(
        f"{prefix}_atminisrpartitioncount",
        "Partitions led here that would refuse acks=all with one replica less in sync.",
        sum(partition.is_at_min_isr for partition in partitions),
    )
    yield gauge(
        f"{prefix}_reassigningpartitions",
        "Partitions led here whose replicas are being moved.",
        sum(partition.is_reassigning for partition in partitions),
    )
    counts = services.replicas.counts
    yield counter(f"{prefix}_isrshrinks", "Times that replicas left those in sync.", counts.isr_shrinks)
    yield counter(f"{prefix}_isrexpands", "Times that a replica joined those in sync.", counts.isr_expands)
    yield counter(f"{prefix}_failedisrupdates", "Times that the controller refused either.", counts.failed_isr_updates)


def _traffic_metrics(services: Services) -> Iterator[Metric]:
    prefix, counts = "kafka_server_brokertopicmetrics", services.replicas.counts
    for name, doc, value in (
        ("replicationbytesin", "Bytes of record batches that came from leaders.", counts.bytes_in),
        ("replicationbytesout", "Bytes of record batches that went to followers.", counts.bytes_out),
        ("reassignmentbytesin", "Those that came for replicas being added here.", counts.reassignment_bytes_in),
        ("reassignmentbytesout", "Those that went to replicas being added.", counts.reassignment_bytes_out),
    ):
        yield counter(f"{prefix}_{name}", doc, value)
    for role, quota in services.quotas._asdict().items():
        doc = f"Bytes per second of throttled partitions, of late, as a {role}; counted while a rate is set."
        yield gauge(f"kafka_server_{role}replication_byte_rate", doc, quota.byte_rate)
    lag = 0 if services.membership is None else services.membership.max_lag
    yield gauges(
        "kafka_server_replicafetchermanager_maxlag",
        "Committed records that the replica lacks that lacks most of those that follow here.",
        ("clientid",),
        [(("Replica",), lag)],
    )
