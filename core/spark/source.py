"""Opens the sources of Spark's reads (data directories or servers), and plans their ranges, one for each task.

options -> partitions -> the offsets to begin and to end at -> ranges of about 64 MB of log, cut where batches begin
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.client.read.record_source import ReadOptions
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition, uuid_text
from core.files.checkpoint_file import read_partition_metadata
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.spark.offset_range import OffsetRange
from core.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions

if TYPE_CHECKING:
    from core.forensics.partition_reader import PartitionReader

Offsets = Mapping[TopicPartition, int]

_NO_LIMIT = 1 << 62
_INTERNAL = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}
"""Topics that are read only if they are named, not by a pattern."""


class Piece(NamedTuple):
    """Offsets [start, end) of a partition, about `size_bytes` of log."""

    start: int
    end: int
    size_bytes: int


def open_source(options: SourceOptions) -> Source:
    """Opens the source. Raises AccessError if it is missing, ConnectionFailedError if no server answers."""
    if options.servers:
        return ServersSource(options.servers, options.access, read_committed=options.read_committed)
    return FilesSource(list(map(Path, options.paths)), read_committed=options.read_committed)


class FilesSource:
    """Reads data directories (a broker's log.dirs) and partitions' folders, without a lock; owned by one task."""

    def __init__(self, paths: Sequence[Path], *, read_committed: bool) -> None:
        from core.client.read.directory_source import DirectorySource
        from core.forensics.partition_reader import DirectoryReader

        self.records = DirectorySource(*map(DirectoryReader, paths), options=ReadOptions(read_committed=read_committed))

    def split(self, partition: TopicPartition, start: int, end: int, target_bytes: int) -> list[Piece]:
        """Splits the offsets [start, end), in order, into pieces of about `target_bytes`."""
        return split_by_index(self.records.log(partition), start, end, target_bytes)

    def where(self, partition: TopicPartition) -> tuple[str, str]:
        """Returns (directory, servers) of an `OffsetRange` of the partition."""
        return str(self.records.log(partition).directory.resolve()), ""

    def doubt(self, partition: TopicPartition, start: int, end: int) -> str:
        """Describes the offsets [start, end) that are missing for no known reason, as far as the source shows them; ""
        if there are none.
        """
        log = self.records.log(partition)
        holes = log.unexplained(start, end)
        return holes.text(log.root) if holes.count else ""

    def topic_id(self, partition: TopicPartition) -> str:
        """Returns the topic's id in Kafka's text form; "" if it has none, as before Kafka 2.8. Another id is another
        topic.
        """
        return topic_id_in(self.records.log(partition).directory)

    def close(self) -> None:
        self.records.close()


class ServersSource:
    """Reads over the wire, with the methods of `FilesSource`; owned by one task."""

    def __init__(self, servers: str, access: str, *, read_committed: bool) -> None:
        from core.client.admin.admin import Admin
        from core.client.read.cluster_source import ClusterSource
        from core.spark.cluster_access import connect

        self._servers = servers
        self._client = connect(servers, access)
        self._admin = Admin(self._client)
        self.records = ClusterSource(self._client, ReadOptions(read_committed=read_committed))

    def split(self, partition: TopicPartition, start: int, end: int, target_bytes: int) -> list[Piece]:
        """Splits by the mean size of an offset of the partition."""
        size = self._admin.log_sizes([partition]).get(partition, 0)
        first, last = (self.records.starts([partition])[partition], self.records.ends([partition])[partition])
        bytes_per_offset = size / max(last - first, 1)
        count = math.ceil((end - start) * bytes_per_offset / target_bytes)
        return [Piece(a, b, int((b - a) * bytes_per_offset)) for a, b in _cut(start, end, count)]

    def where(self, partition: TopicPartition) -> tuple[str, str]:  # noqa: ARG002 - the client finds the leader
        return "", self._servers

    def doubt(self, partition: TopicPartition, start: int, end: int) -> str:  # noqa: ARG002 - as of its own log
        return ""

    def topic_id(self, partition: TopicPartition) -> str:
        return _id_text(self._client.topic(partition.topic).topic_id)

    def close(self) -> None:
        self._client.close()


Source = FilesSource | ServersSource


def topic_id_in(directory: Path) -> str:
    """Returns what `FilesSource.topic_id` returns, of the partition with that folder, whose log is not opened."""
    return _id_text(read_partition_metadata(directory))


def _id_text(topic_id: bytes | None) -> str:
    return uuid_text(topic_id) if topic_id and any(topic_id) else ""


def split_by_index(reader: PartitionReader, start: int, end: int, target_bytes: int) -> list[Piece]:
    """Cuts where segments end, and where index entries say that a batch ends."""
    pieces: list[Piece] = []
    first, size = start, 0
    for segment, following in zip(reader.segments, [*reader.segments[1:], None], strict=True):
        segment_end = following.base_offset if following else reader.end_offset
        if segment_end <= start or segment.base_offset >= end:
            continue
        before = segment.position_before(start) if segment.base_offset < start else 0
        # an entry's batch begins at its position, and ends with its offset
        for last_offset, position in [*segment.index_entries(), (segment_end - 1, segment.records.size_bytes)]:
            if position <= before or last_offset < start:
                continue
            size += position - before
            before = position
            if last_offset + 1 >= end:
                break
            if size >= target_bytes and first <= last_offset:
                pieces.append(Piece(first, last_offset + 1, size))
                first, size = last_offset + 1, 0
    return [*pieces, Piece(first, end, size)] if first < end else pieces


def _cut(start: int, end: int, pieces: int) -> list[tuple[int, int]]:
    cuts = [start + (end - start) * n // max(pieces, 1) for n in range(max(pieces, 1) + 1)]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


# --- which partitions, from where to where


def find_partitions(source: Source, options: SourceOptions) -> list[TopicPartition]:
    """Finds the partitions; raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) for a missing topic, UsageError for a missing
    partition.
    """
    records = source.records
    if options.assigned:
        for partition in options.assigned:
            if partition.partition not in records.partitions(partition.topic):
                raise UsageError(f"option assign: there is no partition {partition}")
        return sorted(options.assigned)
    topics = list(options.topics)
    if not topics:
        pattern = re.compile(options.pattern)  # found anywhere in a name, as the Kafka source does it
        topics = [name for name in records.topics() if pattern.search(name) and name not in _INTERNAL]
    return [TopicPartition(topic, number) for topic in topics for number in records.partitions(topic)]


def resolve(
    bound: Bound, source: Source, partitions: Sequence[TopicPartition], *, is_time_met: bool = False
) -> dict[TopicPartition, int]:
    """Finds the offset of each partition. Raises UsageError if its option does not fit the partitions, or, with
    `is_time_met`, if no record is as new as the time.
    """
    places = dict.fromkeys(partitions, bound.places) if isinstance(bound.places, int) else bound.places
    if set(places) != set(partitions):
        lacking = "".join(f"; it lacks {tp}" for tp in sorted(set(partitions) - set(places))[:3])
        strange = "".join(f"; there is no {tp}" for tp in sorted(set(places) - set(partitions))[:3])
        raise UsageError(f"option {bound.option} must name every partition that is read{lacking}{strange}")
    if bound.is_time:
        return _at_times(places, bound.option, source, is_met=is_time_met)
    words = {EARLIEST: source.records.starts(partitions), LATEST: source.records.ends(partitions)}
    return {tp: words[offset][tp] if offset in words else offset for tp, offset in places.items()}


def _at_times(times: Offsets, option: str, source: Source, *, is_met: bool) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for timestamp in set(times.values()):
        found |= source.records.offsets_at([tp for tp, t in times.items() if t == timestamp], timestamp)
    ends = source.records.ends(list(times)) if is_met else {}
    for partition, end in ends.items():
        if found[partition] >= end:
            raise UsageError(
                f"option {option}: no record of {partition} is as new as {times[partition]}",
                hint="startingOffsetsByTimestampStrategy=latest begins at the end there",
            )
    return found


def plan_ranges(
    source: Source, options: SourceOptions, starts: Offsets, ends: Offsets, lost: Offsets | None = None
) -> list[OffsetRange]:
    """Plans one range for each task, in order of partitions and offsets. `lost`: of some partitions, an offset before
    the start; what is gone since then is part of the first range, whose reader reports it. Raises PlogError if offsets
    are missing.
    """
    pieces: list[tuple[TopicPartition, Piece]] = []
    for partition in sorted(starts):
        start, end = _what_is_there(source, partition, starts[partition], ends[partition], options)
        found = []
        if start < end:
            target_bytes = _NO_LIMIT if options.latest_per_key else options.range_bytes
            found = source.split(partition, start, end, target_bytes)
        if lost and partition in lost:
            first = found[0] if found else Piece(start, start, 0)
            found[:1] = [first._replace(start=lost[partition])]
        pieces += [(partition, piece) for piece in found]
    if options.max_records_per_partition:
        pieces = [p for tp, piece in pieces for p in _split(tp, piece, 1 / options.max_records_per_partition)]
    if pieces and options.min_partitions > len(pieces):
        total = sum(piece.end - piece.start for _, piece in pieces)
        pieces = [p for tp, piece in pieces for p in _split(tp, piece, options.min_partitions / total)]
    ranges = []
    for partition, piece in pieces:
        directory, servers = source.where(partition)
        ranges.append(
            OffsetRange(
                *partition,
                *piece,
                read_committed=options.read_committed,
                fails_if_gone=options.fails_on_data_loss,
                latest_per_key=options.latest_per_key,
                nulls_bad_timestamps=options.nulls_bad_timestamps,
                max_expansion=options.max_expansion,
                directory=directory,
                servers=servers,
                access=options.access if servers else "",
            )
        )
    return ranges


def _what_is_there(
    source: Source, partition: TopicPartition, start: int, end: int, options: SourceOptions
) -> tuple[int, int]:
    first, last = source.records.starts([partition])[partition], source.records.ends([partition])[partition]
    if options.fails_on_data_loss and start < end and (start < first or end > last):
        raise PlogError(
            f"{partition} holds offsets {first} to {last}: some of {start} to {end} are not there",
            hint="failOnDataLoss=false reads what there is",
        )
    return max(start, first), min(end, last)


def _split(partition: TopicPartition, piece: Piece, parts_per_offset: float) -> list[tuple[TopicPartition, Piece]]:
    count = piece.end - piece.start
    cuts = _cut(piece.start, piece.end, math.ceil(count * parts_per_offset))
    return [(partition, Piece(a, b, piece.size_bytes * (b - a) // count)) for a, b in cuts]
