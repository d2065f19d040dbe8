"""`plog cluster check`: compares the replicas of partitions while they serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from cli.cluster.served_cluster import PARTITIONS, find_partitions, open_cluster
from cli.data_location import Place, ReadPlace, typed_place
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.progress import Progress
from cli.terminal import say
from core.cluster.description.cluster_health import names_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.client.cluster_admin.replica_check import ReplicaComparison
    from core.client.net.kafka_client import KafkaClient

_LISTING = Listing(
    "partition brokers start_offset end_offset compared only_in_some result",
    further="compacted differences not_compared",
    optional="only_in_some",
    drops="only_in_some compared start_offset brokers",
)
_EXIT_DIFFERENT, _EXIT_NOT_COMPARED = 1, 3


def check(
    names: list[str] | None = PARTITIONS,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Compare the replicas of partitions while they serve: each is read from its own broker, and nothing is changed.

    The exit code is 1 if replicas differ, and 3 if one could not be compared.
    """
    from core.client.cluster_admin.cluster_partitions import read_partitions
    from core.client.cluster_admin.replica_check import ReplicaCheck

    found: list[ReplicaComparison] = []
    with open_cluster("check", place) as client:
        wanted = set(find_partitions(client, names or ()))
        topics = sorted({partition.topic for partition in wanted})
        compacted = _find_compacted(client, topics)
        with Progress("compared", "batches") as progress:
            checker = ReplicaCheck(client, note_progress=progress.add)
            for placed in read_partitions(client, topics, []):
                if placed.partition in wanted:
                    one = checker.compare(placed, is_compacted=placed.partition.topic in compacted)
                    found.append(one)
                    progress.done()
                    _say_differences(one)
    _say_rest(found)
    _LISTING.write([_row(one) for one in found], output)
    if any(one.differences for one in found):
        raise typer.Exit(_EXIT_DIFFERENT)
    raise typer.Exit(_EXIT_NOT_COMPARED if any(one.not_compared for one in found) else 0)


def _find_compacted(client: KafkaClient, topics: Sequence[str]) -> set[str]:
    from core.client.admin.admin import Admin

    policies = Admin(client).find_topic_setting(topics, "cleanup.policy") if topics else {}
    unknown = [topic for topic in topics if topic not in policies]
    if unknown:
        say(f"note: cleanup.policy of {', '.join(unknown)} is not known: taken as not compacted")
    return {topic for topic, policy in policies.items() if "compact" in policy}


def _say_differences(one: ReplicaComparison) -> None:
    for difference in one.differences:
        say(f"error: {one.partition} differs from offset {difference.first} to {difference.last}: {difference.text}")
    if one.more_differences:
        say(f"error: {one.partition} differs in {one.more_differences:,} more places")


def _say_rest(found: Sequence[ReplicaComparison]) -> None:
    reasons: dict[tuple[int, str], list[TopicPartition]] = {}
    for one in found:
        for broker, error in one.not_compared.items():
            reasons.setdefault((broker, error.message), []).append(one.partition)
    for (broker, message), partitions in reasons.items():
        say(f"warning: broker {broker} was not compared for {names_text(partitions)}: {message}")
    if any(one.is_compacted for one in found):
        say(
            "note: of compacted topics only records that all replicas have are compared: each broker compacts by "
            "itself, so batches and removed records may differ"
        )
    if any(one.differences for one in found):
        different = next(one for one in found if one.differences)
        say(f"hint: plog cluster describe {different.partition}{typed_place()}; plog verify finds damage on a disk")


def _row(one: ReplicaComparison) -> Row:
    return {
        "partition": str(one.partition),
        "brokers": one.brokers,
        "start_offset": one.start if one.has_range else None,
        "end_offset": one.end if one.has_range else None,
        "compared": one.compared,
        "only_in_some": one.only_in_some,
        "result": _result(one),
        "compacted": one.is_compacted,
        "differences": [{"start_offset": d.first, "last_offset": d.last, "what": d.text} for d in one.differences],
        "not_compared": {str(broker): error.message for broker, error in one.not_compared.items()},
    }


def _result(one: ReplicaComparison) -> str:
    if one.differences:
        count = len(one.differences) + one.more_differences
        return f"{count:,} difference{'s' if count > 1 else ''}"
    if len(one.brokers) < 2:
        return "not compared" if one.not_compared else "one replica"
    return "equal" if not one.not_compared else "equal, without some"
