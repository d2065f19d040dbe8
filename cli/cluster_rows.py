"""The rows of `plog cluster` and their tables: brokers, versions of APIs, topics and replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.output import Listing, OutputFormat, Row
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.cluster_health import partition_health
from core.cluster.description.feature_args import features_of
from core.cluster.description.replicated_partition import PartitionReport, ReplicatedPartition
from core.protocol.api_names import API_NAMES

if TYPE_CHECKING:
    from core.client.cluster_admin.log_dirs_query import LogDirsQuery
    from core.cluster.controller.leaderless_partition import LeaderlessPartition

STATUS = Listing(
    "broker listeners rack controller state zookeeper_silence_ms apis",
    further="failure cluster_id controller_id voters features partitions leaderless under_replicated under_min_isr "
    "offline_replicas not_preferred problems waiting",
    optional="rack controller state zookeeper_silence_ms apis",
    drops="apis rack",
)


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


APIS = Listing("key api min max brokers", drops="key")


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


FEATURES = Listing("feature finalized min max brokers", further="epoch")


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


BROKERS = Listing(
    "broker address rack version state replicas leaders lagging size_bytes failed_dirs",
    optional="rack version state failed_dirs",
    drops="version address rack",
)


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


TOPICS = Listing(
    "topic partitions replicas min_isr under_replicated leaderless under_min_isr offline_replicas not_preferred",
    optional="leaderless under_min_isr offline_replicas not_preferred",
    drops="not_preferred offline_replicas min_isr",
)


def topic_row(name: str, placed: Sequence[ReplicatedPartition]) -> Row:
    factors = sorted({len(p.replicas) for p in placed})
    return {
        "topic": name,
        "partitions": len(placed),
        "replicas": factors[0] if len(factors) == 1 else factors,
        "min_isr": placed[0].min_isr,
        **partition_health(placed).counts,
    }


REPLICAS = Listing(
    "partition broker role in_sync eligible start_offset end_offset lag size_bytes lag_bytes why_out_of_sync",
    further="leader leader_epoch replicas isr elr min_isr log_end high_watermark",
    drops="start_offset eligible size_bytes lag_bytes",
    hides_unknown=True,
)


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
    if output is OutputFormat.table:
        rows = [{**row, "controller": _yes(row["controller"])} for row in rows]
    STATUS.write(rows, output)


def write_brokers(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is OutputFormat.table:
        is_well = all(row["state"] == "reachable" for row in rows)
        rows = [{**row, "lagging": len(row["lagging"]), "state": None if is_well else row["state"]} for row in rows]
    BROKERS.write(rows, output)


def write_replicas(rows: Sequence[Row], output: OutputFormat) -> None:
    if output is OutputFormat.table:
        is_one = len({row["partition"] for row in rows}) == 1  # and the line above says which
        rows = [
            {
                **row,
                "partition": None if is_one else row["partition"],
                "in_sync": _yes(row["in_sync"]),
                "eligible": _yes(row["eligible"]),
                "why_out_of_sync": row["why_out_of_sync"] or None,
            }
            for row in rows
        ]
    REPLICAS.write(rows, output)


def _yes(value: object) -> str | None:
    return "yes" if value else None
