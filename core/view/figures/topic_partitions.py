"""The partitions of a topic, as `plog topic describe` has them."""

from __future__ import annotations

from typing import Any

from core.cluster.description.directory_topics import DirectoryTopics
from core.view.target.inspect_target import InspectTarget


def partition_rows(inspected: InspectTarget, topic: str) -> list[dict[str, Any]]:
    """Describes each partition; what is not known is None. Raises KafkaError if there is no such topic, and what
    reading the directory or asking the server raises.
    """
    if inspected.reader is not None:
        described = DirectoryTopics(inspected.reader).describe(topic)
    else:
        from core.client.admin.admin import Admin

        described = Admin(inspected.client).describe_topic(topic)
    return [
        {
            "partition": one.partition,
            "leader": one.leader if one.leader >= 0 else None,
            "start_offset": one.start_offset if one.end_offset >= 0 else None,
            "end_offset": one.end_offset if one.end_offset >= 0 else None,
            "offsets": one.end_offset - one.start_offset if one.end_offset >= 0 else None,
            "size_bytes": one.size_bytes,
            "isr": f"{len(one.isr)} of {len(one.replicas)}" if one.replicas else None,
            "findings": "; ".join(one.damaged) or None,
        }
        for one in described.partitions
    ]
