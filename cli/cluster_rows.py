"""The rows of `plog cluster` and their tables: brokers, versions of APIs, topics and replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.output import OutputFormat, Row, write_rows
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.cluster_health import partition_health
from core.cluster.description.feature_args import features_of
from core.cluster.description.replicated_partition import PartitionReport, ReplicatedPartition
from core.protocol.api_names import API_NAMES

if TYPE_CHECKING:
    from core.client.cluster_admin.log_dirs_query import LogDirsQuery
    from core.cluster.controller.leaderless_partition import LeaderlessPartition

STATUS_COLUMNS = ["broker", "listeners", "rack", "controller", "state", "zookeeper_silence_ms", "apis", "failure"]
OF_CLUSTER = [
    "cluster_id",
    "controller_id",
    "voters",
    "features",
    "partitions",
    "leaderless",
    "under_replicated",
    "under_min_isr",
    "offline_replicas",
    "not_preferred",
    "problems",
    "waiting",
]
"""Shown once above the table; other formats have it with each broker."""


def status_rows(
    found: ClusterDescription,
    placed: Sequence[ReplicatedPartition] | None,
    problems: Sequence[str] | None,
    leaderless: Sequence[LeaderlessPartition] = (),
) -> list[Row]:
    """Returns a row for each broker, each with the facts about the whole; `placed` and `problems` are None without a
    server.
    """
    of_cluster = {
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id if found.controller_id >= 0 else None,
        "voters": list(found.voters),
        "features": found.features,
        "partitions": len(placed) if placed is not None else None,
        **(partition_health(placed).counts if placed is not None else {}),
        "problems": list(problems) if problems is not None else None,
        "waiting": [one.as_row for one in leaderless] if placed is not None else None,
    }
    return [
        {
            "broker": broker.broker_id,
            "listeners": [f"{name}://{address}" if name else address for name, address in broker.listeners.items()],
            "rack": broker.rack,
            "controller": broker.broker_id == found.controller_id,
            "state": _state(broker),
            "zookeeper_silence_ms": broker.zookeeper_silence_ms,
            "apis": len(broker.versions) if broker.versions is not None else None,
            "failure": broker.failure.message if broker.failure is not None else None,
            **of_cluster,
        }
        for broker in found.brokers
    ]


def _state(broker: BrokerDescription) -> str:
    if broker.is_fenced:
        return "fenced"
    if broker.failure is not None:
        return "unreachable"
    if broker.versions is not None:
        return "reachable"
    return "registered" if broker.listeners else "not registered"


def api_rows(found: ClusterDescription, *, shows_all: bool) -> list[Row]:
    """Returns one row for each range of an API's versions, with its brokers; `shows_all`: even if all have it."""
    asked = sum(broker.versions is not None for broker in found.brokers)
    brokers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for broker in found.brokers:
        for key, (low, high) in (broker.versions or {}).items():
            brokers[key, low, high].append(broker.broker_id)
    return [
        {
            "key": key,
            "api": API_NAMES.get(key, "of a newer Kafka"),
            "min": low,
            "max": high,
            "brokers": "all" if shows_all and len(ids) == asked else ids,
        }
        for (key, low, high), ids in sorted(brokers.items())
    ]


FEATURE_COLUMNS = ["feature", "finalized", "min", "max", "brokers"]


def feature_rows(found: ClusterDescription, *, shows_all: bool) -> list[Row]:
    """Returns one row for each range of a feature's levels, with the brokers that support it: a broker that reports no
    level supports only 0. Level 0 is finalized if no other is. `shows_all`: says so if all asked brokers do.
    """
    known = {broker.broker_id: broker.features for broker in found.brokers if broker.features is not None}
    brokers: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for name in features_of(found):
        for broker_id, levels in known.items():
            brokers[name, *levels.get(name, (0, 0))].append(broker_id)
    return [
        {
            "feature": name,
            "finalized": found.features.get(name, 0),
            "min": low,
            "max": high,
            "brokers": "all" if shows_all and len(ids) == len(known) else ids,
            "epoch": found.features_epoch if found.features_epoch >= 0 else None,
        }
        for (name, low, high), ids in sorted(brokers.items())
    ]


BROKER_COLUMNS = [
    "broker",
    "address",
    "rack",
    "version",
    "state",
    "replicas",
    "leaders",
    "lagging",
    "size_bytes",
    "failed_dirs",
]


def broker_row(
    broker: BrokerDescription, placed: Sequence[ReplicatedPartition], survey: LogDirsQuery
) -> dict[str, Any]:
    number = broker.broker_id
    return {
        "broker": number,
        "address": next(iter(broker.listeners.values()), None),
        "rack": broker.rack,
        "version": broker.release,
        "state": _state(broker),
        "replicas": sum(number in p.replicas for p in placed),
        "leaders": sum(number == p.leader for p in placed),
        "lagging": [str(p.partition) for p in placed if number in p.out_of_sync],
        "size_bytes": survey.size_bytes,
        "failed_dirs": survey.failed_dirs,
    }


TOPIC_COLUMNS = ["topic", "partitions", "replicas", "min_isr", "under_replicated"]
TOPIC_FAULTS = ["leaderless", "under_min_isr", "offline_replicas", "not_preferred"]


def topic_row(name: str, placed: Sequence[ReplicatedPartition]) -> Row:
    factors = sorted({len(p.replicas) for p in placed})
    return {
        "topic": name,
        "partitions": len(placed),
        "replicas": factors[0] if len(factors) == 1 else factors,
        "min_isr": placed[0].min_isr,
        **partition_health(placed).counts,
    }


REPLICA_COLUMNS = [
    "partition",
    "broker",
    "role",
    "in_sync",
    "eligible",
    "start_offset",
    "end_offset",
    "lag",
    "size_bytes",
    "lag_bytes",
    "why_out_of_sync",
]
OF_PARTITION = ["leader", "leader_epoch", "replicas", "isr", "elr", "min_isr", "log_end", "high_watermark"]
"""Shown once above the table; other formats have it with each replica."""


def replica_rows(report: PartitionReport) -> list[Row]:
    placed = report.placed
    of_partition = {
        "leader": placed.leader if placed.has_leader else None,
        "leader_epoch": placed.leader_epoch,
        "replicas": list(placed.replicas),
        "isr": list(placed.isr),
        "elr": list(report.elr) if report.elr is not None else None,
        "min_isr": placed.min_isr,
        "log_end": report.end_offset,
        "high_watermark": report.high_watermark,
    }
    return [
        {
            **asdict(replica),
            "partition": str(placed.partition),
            "broker": replica.broker_id,
            "role": "leader" if replica.is_leader else "follower",
            "in_sync": replica.is_in_sync,
            "eligible": replica.is_eligible,
            **of_partition,
        }
        for replica in report.replicas
    ]


# --- tables


def write_status(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        write_rows(rows, [*STATUS_COLUMNS, *OF_CLUSTER], output)
        return
    shown = [{**row, "controller": _yes(row["controller"])} for row in rows]
    kept = [name for name in STATUS_COLUMNS[:-1] if name in ("broker", "listeners") or any(row[name] for row in shown)]
    write_rows(shown, kept, output, drops=["apis", "rack"])


def write_brokers(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        write_rows(rows, BROKER_COLUMNS, output)
        return
    shown = [{**row, "lagging": len(row["lagging"])} for row in rows]
    kept = [
        name for name in BROKER_COLUMNS if name not in ("rack", "version", "failed_dirs") or any(r[name] for r in rows)
    ]
    if all(row["state"] == "reachable" for row in rows):
        kept.remove("state")
    write_rows(shown, kept, output, drops=["version", "address", "rack"])


def write_topics(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        write_rows(rows, [*TOPIC_COLUMNS, *TOPIC_FAULTS], output)
        return
    faults = [name for name in TOPIC_FAULTS if any(row[name] for row in rows)]
    write_rows(rows, [*TOPIC_COLUMNS, *faults], output, drops=["not_preferred", "offline_replicas", "min_isr"])


def write_replicas(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        write_rows(rows, [*REPLICA_COLUMNS, *OF_PARTITION], output)
        return
    shown = [{**row, "in_sync": _yes(row["in_sync"]), "eligible": _yes(row["eligible"])} for row in rows]
    kept = [name for name in REPLICA_COLUMNS if any(row[name] not in (None, "") for row in shown)]
    if len({row["partition"] for row in rows}) == 1:
        kept.remove("partition")  # the line above says which
    write_rows(shown, kept, output, drops=["start_offset", "eligible", "size_bytes", "lag_bytes"])


def _yes(value: object) -> str:
    return "yes" if value else ""
