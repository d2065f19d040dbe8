"""Topics that are named, or matched by regular expressions: what they hold, who uses them, and the confirmation before
those that match are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cli.options import ensure_meant
from cli.output import OutputFormat, Row, write_rows
from cli.progress import size_text
from cli.terminal import say
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.printable import did_you_mean, printable
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition, is_valid_topic_name, uuid_text
from core.pipeline.consume_request import ConsumeRequest

if TYPE_CHECKING:
    from cli.data_location import Place
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.cluster_description import PartitionDescription, TopicDescription

REGEX_HINT = "--regex takes regular expressions, as in 'flights.*'"


def pick_topics(
    names: Sequence[str], known: Iterable[str], *, is_regex: bool, with_internal: bool = False
) -> list[str]:
    """Returns those topics of `known` that the expressions match as a whole, or else the names themselves. Raises
    UsageError if none matches, KafkaError(UNKNOWN_TOPIC_OR_PARTITION) for a name that is not known.
    """
    there = sorted(known)
    if is_regex:
        found = _match(names, there, with_internal=with_internal)
        if not found:
            raise ConsumeRequest(topics=names, regex=True).no_topic_error()
        return found
    for name in names:
        if name not in there:
            meant = did_you_mean(name, there) or "plog topic list"
            hint = meant if is_valid_topic_name(name) else REGEX_HINT
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}", hint=hint)
    return list(names)


def _match(patterns: Sequence[str], known: Iterable[str], *, with_internal: bool) -> list[str]:
    pattern = ConsumeRequest(topics=patterns, regex=True).find_pattern()
    assert pattern is not None
    return [name for name in known if pattern.fullmatch(name) and (with_internal or not name.startswith("__"))]


def confirm_deletion(
    client: KafkaClient, patterns: Sequence[str], *, is_confirmed: bool, dry_run: bool, may_be_none: bool
) -> tuple[list[str], dict[str, str]]:
    """Shows the topics that match, and asks for a confirmation if there is none yet. Returns their names, and in a dry
    run a description of each topic's readers. Internal topics never match. Raises UsageError if the user does not
    confirm, and if no topic matches.
    """
    from core.client.admin.admin import Admin

    there = sorted(topic.name for topic in client.refresh().values() if not topic.is_internal)
    found = _match(patterns, there, with_internal=False)
    if not found:
        error = ConsumeRequest(topics=patterns, regex=True).no_topic_error()
        if not may_be_none:
            raise error
        say(error.message)
    if not found or (is_confirmed and not dry_run):
        return found, {}
    readers = _readers(client, found)
    if not dry_run:
        topics = [Admin(client).describe_topic(name) for name in found]
        for topic in topics:
            say(f"{topic.name} {client.place}: {sum_text(topic)}{readers[topic.name]}")
        offsets = sum(p.end_offset - p.start_offset for topic in topics for p in topic.partitions)
        count = f"{len(found)} topic{'s' * (len(found) != 1)}"
        ensure_meant(f"{count} with {offsets:,} offsets would be deleted", f"delete {count}")
    return found, readers


def sum_text(topic: TopicDescription) -> str:
    offsets = sum(p.end_offset - p.start_offset for p in topic.partitions)
    sizes = [p.size_bytes for p in topic.partitions if p.size_bytes is not None]
    text = f"{offsets:,} offsets, {size_text(float(sum(sizes)))}"
    if len(sizes) > 1 and any(sizes):
        largest = max(topic.partitions, key=lambda p: p.size_bytes or 0)
        skew = find_skew(topic, largest)
        text += f"; partition {largest.partition} is the largest, {skew} times the mean"
    return text


def find_skew(topic: TopicDescription, partition: PartitionDescription) -> float | None:
    """Divides the partition's size by the mean of the topic's partitions."""
    sizes = [p.size_bytes for p in topic.partitions if p.size_bytes is not None]
    if partition.size_bytes is None or not sum(sizes):
        return None
    return round(partition.size_bytes * len(sizes) / sum(sizes), 2)


def partition_rows(topic: TopicDescription) -> list[Row]:
    """Returns a row for each partition; unknown values are None."""
    return [
        {
            "topic": topic.name,
            "partition": p.partition,
            "leader": p.leader,  # -1 means no leader, as in Kafka
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "start_offset": p.start_offset if p.end_offset >= 0 else None,
            "end_offset": p.end_offset if p.end_offset >= 0 else None,
            "offsets": p.end_offset - p.start_offset if p.end_offset >= 0 else None,
            "size_bytes": p.size_bytes,
            "skew": find_skew(topic, p),
            "damaged": list(p.damaged) or None,
            "topic_id": uuid_text(topic.topic_id),
            "settings": dict(sorted(topic.configs.items())),
        }
        for p in topic.partitions
    ]


def _readers(client: KafkaClient, names: Sequence[str]) -> dict[str, str]:
    """Says which groups read each topic, after a semicolon."""
    from core.view.groups.topic_readers import find_topic_readers

    partitions = [TopicPartition(name, number) for name in names for number in client.topic(name).partitions]
    try:
        found = find_topic_readers(client, partitions, lambda text: say(f"note: {text}"), with_times=False)
    except KafkaError as error:
        return dict.fromkeys(names, f"; its groups are not known: {error.message}")
    told = dict.fromkeys(names, "; no group reads it")
    for name in {one.topic for one in found}:
        # a line break in the id of a group would make it a line of the confirmation
        texts = [f"{printable(one.group_id, keeps='')} ({one.state})" for one in found if one.topic == name]
        told[name] = f"; read by {', '.join(texts)}"
    return told


def show_usage(names: Sequence[str], place: Place, output: OutputFormat) -> None:
    """Prints a row for each fact that is known about the use of the topics."""
    from core.view.figures.topic_usage import find_usage

    session = place.session()
    is_directory = session.zookeeper is None and session.find_named_server() is None

    def rests_on(topic: str) -> bool:
        return topic in names or topic in ("__consumer_offsets", "__transaction_state")

    rows: list[Row] = []
    with session.open_client(is_read_only=True, rests_on=rests_on, opens_late=True) as client:
        for name in names:
            found = find_usage(
                client, name, session.directory if is_directory else None, lambda text: say(f"note: {text}")
            )
            rows += [
                {
                    **one._asdict(),
                    "topic": name,
                    "time": None if one.time_ms is None else time_text(one.time_ms),
                    "note": one.note or None,
                }
                for one in found
            ]
        columns = ["topic", "what", "who", "time", "partition", "offset", "note"]
        write_rows(rows, columns, output, drops=["offset", "partition", "topic"])
