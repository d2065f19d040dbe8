"""Checks files, partitions and data directories against their formats and against each other. Reads only.

A directory that a running broker owns may be checked too: the last segment of a partition may then end in a batch that
is being written, and its indexes may lack the newest batches.

Logs: frames, checksums, offsets and epochs that rise, counts, producers' sequences, transactions. Indexes: every entry
against the batch that it points at. Transaction indexes, snapshots, leader epochs, checkpoints and topic ids against
the logs. Small files parse.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import access_error, accessing, scan_growing
from core.common.salvaging_file import open_salvaging, read_small_text, unreadable_error
from core.common.topic_partition import TopicPartition, uuid_text
from core.files.checkpoint_file import (
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_partition_metadata,
    read_partition_metadata,
)
from core.files.directory_lock import find_lock_holder
from core.files.file_names import (
    CLEANED_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    base_offset_of,
    find_following,
    find_foreign_folders,
    find_offset_files,
    find_partition_folders,
    find_unreadable,
    holds_segments,
    is_folder,
    is_misnamed_partition,
    locate_partition,
    parse_offset_file_name,
)
from core.files.meta_properties import parse_meta_properties
from core.files.producer_snapshot import iter_producer_snapshot
from core.forensics.cut_off_tails import CUT_AT
from core.forensics.known_offsets import KnownOffsets
from core.forensics.missing_offsets import FULL_SIZE_UNIT, TailKind
from core.forensics.recovery_journal import read_lost_offsets
from core.inspector.check.file_kind import (
    FileKind,
    ensure_regular,
    ensure_there,
    foreign_file_error,
    is_named_by_kafka,
    kind_of,
)
from core.inspector.check.findings import (
    Code,
    Finding,
    Severity,
    corrupt_code,
    corrupt_finding,
    unreadable_finding,
    wrong_start_finding,
    wrong_watermark_finding,
)
from core.inspector.check.partition_check import DataDirectoryMetadata, check_partition, map_findings
from core.inspector.check.producer_check import ProducerCheck
from core.inspector.check.segment_check import OddLogError, OnBytes, SegmentCheck, VerifyOptions, check_again_if_odd
from core.log.damaged_ranges import parse_damaged_ranges
from core.records.record_batch import HEADER_SIZE

if TYPE_CHECKING:
    from core.forensics.log_map import LogMap

_BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""The features with which Kafka formatted the directory of a node with KRaft; the name has no offset."""
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_DEFAULT_OPTIONS = VerifyOptions()


def _ignore(_size_bytes: int) -> None:
    """Does nothing: nobody wants the progress."""


def verify(path: Path, on_bytes: OnBytes = _ignore, options: VerifyOptions = _DEFAULT_OPTIONS) -> Iterator[Finding]:
    """Finds everything wrong with a file, a partition's folder or a data directory. Raises AccessError if it can't be
    read.
    """
    ensure_there(path)
    if not path.is_dir():
        yield from _verify_file(path, on_bytes, options)
    elif _is_partition(path):
        yield from _verify_partition(path, DataDirectoryMetadata(locate_partition(path)[1]), on_bytes, options)
    else:
        yield from _verify_directory(path, on_bytes, options)


def size_to_check(path: Path) -> int:
    """Sums the bytes of the logs under a path, for the progress alone: unreadable files count for nothing."""
    try:
        if path.is_file():
            return path.stat().st_size
        folders = [path, *find_partition_folders(path).values()]
    except OSError:
        return 0
    total = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            total += sum(log.stat().st_size for _, log in find_offset_files(folder, LOG_SUFFIX))
    return total


def find_unchecked(path: Path) -> list[Path]:
    """Finds the files that `verify` passes over without a finding: in a data directory folders that are no partition's,
    files that only end like a segment's, and last segments with zeros up to the size that `preallocate=true` gave them.
    """
    try:
        if not path.is_dir():
            return []
        if holds_segments(path):
            return list(filter(None, [_find_preallocated(path)]))
        others = [path / entry.name for entry in _entries(path) if _is_anothers(entry)]
        preallocated = filter(None, map(_find_preallocated, find_partition_folders(path).values()))
        return [*find_foreign_folders(path), *others, *preallocated]
    except (AccessError, OSError):  # verify has reported it
        return []


def _find_preallocated(folder: Path) -> Path | None:
    logs = find_offset_files(folder, LOG_SUFFIX)
    if not logs or not _ends_in_zeros(logs[-1][1]):
        return None
    from core.forensics.partition_reader import PartitionReader  # which most directories don't need

    with contextlib.closing(PartitionReader(folder)) as reader:
        tail = reader.reading.tail
        return tail.path if tail is not None and tail.kind is TailKind.PREALLOCATED else None


def _ends_in_zeros(log: Path) -> bool:
    """Says so of all the bytes that a batch's header would have there."""
    size = log.stat().st_size
    if size < FULL_SIZE_UNIT:
        return False
    with log.open("rb") as file:
        file.seek(size - HEADER_SIZE)
        return not any(file.read())


def _is_anothers(entry: os.DirEntry[str]) -> bool:
    """Says whether a file beside partitions only ends like a file of Kafka's: `serve.log` is no segment."""
    path = Path(entry.path)
    if entry.name == _BOOTSTRAP_CHECKPOINT:
        return False
    return kind_of(path) is not None and not is_named_by_kafka(path) and not is_folder(entry)


def _is_partition(directory: Path) -> bool:
    with accessing(directory):
        return holds_segments(directory)


# --- a data directory


def _verify_directory(path: Path, on_bytes: OnBytes, options: VerifyOptions) -> Iterator[Finding]:
    is_empty = True
    surroundings = DataDirectoryMetadata(path)
    ids = dict(surroundings.topic_ids)
    topic_ids = _TopicIds(ids, {topic_id: name for name, topic_id in ids.items()})
    folders = {folder.name: (partition, folder) for partition, folder in find_partition_folders(path).items()}
    misnamed: list[Path] = []
    for entry in _entries(path):
        inner = path / entry.name
        if entry.name in folders:
            is_empty = False
            yield from _verify_folder(*folders[entry.name], surroundings, topic_ids, on_bytes, options)
        elif not _is_anothers(entry):
            is_empty &= kind_of(inner) is None
            yield from _verify_beside(inner, entry)
            if is_misnamed_partition(entry):
                misnamed.append(inner)
    if is_empty:
        raise nothing_there(path)
    for folder in misnamed:
        message = (
            "it has segments, and its name is not that of a partition's folder: no command reads it here, and Kafka "
            "does not start beside it; move it out of the data directory, or give it its name"
        )
        yield Finding(Severity.ERROR, Code.FOLDER_MISNAMED, str(folder), message, records=None)


class _TopicIds(NamedTuple):
    """The topics' ids that are known so far, by name, and their names by id."""

    ids: dict[str, bytes]
    names: dict[bytes, str]


def _verify_folder(
    partition: TopicPartition,
    path: Path,
    surroundings: DataDirectoryMetadata,
    topic_ids: _TopicIds,
    on_bytes: OnBytes,
    options: VerifyOptions,
) -> Iterator[Finding]:
    """Checks one partition. If it can't be read, that is a finding, and does not end the check of the others."""
    try:
        os.scandir(path).close()
        yield from _check_topic_id(path, partition, topic_ids)
        yield from _verify_partition(path, surroundings, on_bytes, options)
    except OSError as error:
        if not os.path.lexists(path):
            return  # its broker deleted it meanwhile
        yield unreadable_finding(unreadable_error(error, path))
    except AccessError as error:
        if os.path.lexists(path):
            yield Finding(Severity.ERROR, Code.UNREADABLE, error.where or str(path), error.message, records=None)


def nothing_there(path: Path) -> AccessError:
    return AccessError(
        f"{path} holds no file of Kafka's or plog's",
        where=str(path),
        hint="name a data directory (an entry of log.dirs), a partition's folder, or a file of it",
    )


def _entries(path: Path) -> list[os.DirEntry[str]]:
    with accessing(path):
        return sorted(scan_growing(path), key=lambda entry: entry.name)


def _check_topic_id(directory: Path, partition: TopicPartition, topic_ids: _TopicIds) -> Iterator[Finding]:
    """Compares a partition's topic id with that of the metadata log, or else of the topic's first partition, and with
    those of other topics.
    """
    ids, names = topic_ids
    try:
        topic_id = read_partition_metadata(directory)
    except CorruptRecordError:
        return  # a finding of its own
    if topic_id is None or partition.topic == CLUSTER_METADATA_TOPIC:
        return
    expected = ids.setdefault(partition.topic, topic_id)
    if topic_id != expected:
        why = (
            f", that of {partition.topic} is {uuid_text(expected)}: the folder is of another topic of this name, and a "
            "broker would set it aside"
        )
    elif (owner := names.setdefault(topic_id, partition.topic)) != partition.topic:
        why = (
            f" is that of {owner} as well: one of the two is a copy, or has the other's file, and a broker would leave "
            "it alone, or set it aside; without the file, it gets an id of its own"
        )
    else:
        return
    path, message = str(directory / PARTITION_METADATA), f"topic id {uuid_text(topic_id)}{why}"
    yield Finding(Severity.ERROR, Code.TOPIC_ID_MISMATCH, path, message)


# --- a partition


def _verify_partition(
    path: Path, surroundings: DataDirectoryMetadata, on_bytes: OnBytes, options: VerifyOptions
) -> Iterator[Finding]:
    partition, root = locate_partition(path)
    is_live = not options.is_locked and find_lock_holder(root) is not None
    lone_indexes: list[Path] = []
    is_cleaned = yield from _verify_entries(path, lone_indexes, is_live=is_live)
    missing: list[range] = []
    try:
        around = surroundings.of(partition, path)
        if around.evidence.wrong_start is not None:
            yield wrong_start_finding(around.evidence.wrong_start)
        if around.evidence.wrong_watermark is not None:
            yield wrong_watermark_finding(around.evidence.wrong_watermark)
        for finding in check_partition(path, options, around, on_bytes, is_live=is_live):
            if finding.code is Code.SEGMENT_MISSING:
                missing.append(range(_base_of_missing(finding), finding.last_offset + 1))
            yield finding
    except AccessError:
        if path.exists():
            raise
    yield from _verify_cut_offs(path, options)
    if is_live:
        lone_indexes = [] if is_cleaned else [index for index in lone_indexes if not _is_at_work(index)]
    for index in lone_indexes:
        yield from _verify_lone_index(index, missing)


def _base_of_missing(finding: Finding) -> int:
    """Returns where the missing segment begins: below the first offset that is missed if the log starts within it."""
    parsed = parse_offset_file_name(Path(finding.path).name)
    return parsed[0] if parsed is not None and not os.path.lexists(finding.path) else finding.offset


def _verify_entries(path: Path, lone_indexes: list[Path], *, is_live: bool) -> Generator[Finding, None, bool]:
    """Checks the files beside the logs, and collects the indexes without a log. Returns whether a cleaning is going on
    there.
    """
    is_cleaned = False
    for entry in _entries(path):
        inner = path / entry.name
        if entry.name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)):
            if is_live:  # the broker that owns it is compacting
                is_cleaned = True
                continue
            message = "a compaction was not finished; the next start of a broker does it"
            yield Finding(Severity.WARNING, Code.UNFINISHED_SWAP, str(inner), message)
        elif kind_of(inner) is FileKind.LOG and parse_offset_file_name(inner.name) is None:
            message = (
                "its name is no offset: no command reads it, and Kafka does not start beside it; if the log lacks what "
                "it holds, give it its name"
            )
            yield Finding(Severity.ERROR, Code.SEGMENT_MISNAMED, str(inner), message)
        elif kind_of(inner) in (FileKind.LOG, *_INDEXES):
            if kind_of(inner) in _INDEXES and not os.path.lexists(inner.with_suffix(LOG_SUFFIX)):
                lone_indexes.append(inner)
        else:
            yield from _verify_beside(inner, entry)
    return is_cleaned


def _verify_cut_offs(path: Path, options: VerifyOptions) -> Iterator[Finding]:
    """Reports the bytes that starts cut off the log's end; most logs have none."""
    if not path.exists() or not any(CUT_AT in entry.name for entry in os.scandir(path)):
        return
    from core.forensics.partition_reader import PartitionReader
    from core.inspector.check.cut_off_tail_check import cut_off_findings

    with contextlib.closing(PartitionReader(path, is_locked=options.is_locked)) as reader:
        yield from cut_off_findings(reader)


def _verify_beside(path: Path, entry: os.DirEntry[str]) -> list[Finding]:
    """Checks a small file in a folder. Its broker may delete it at any time, which is no finding."""
    if kind_of(path) is None or (is_folder(entry) and not is_named_by_kafka(path)):
        return []
    error = find_unreadable(path)
    if error is not None:
        return [unreadable_finding(error)]
    try:
        findings = list(_verify_file(path, _ignore, _DEFAULT_OPTIONS))
    except AccessError as failure:
        if not path.exists():
            return []
        return [Finding(Severity.ERROR, Code.UNREADABLE, str(path), failure.message)]
    return findings if path.exists() else []


# --- a file


def _verify_file(path: Path, on_bytes: OnBytes, options: VerifyOptions) -> Iterator[Finding]:
    kind = kind_of(path)
    if kind is None:
        raise foreign_file_error(path)
    ensure_regular(path)
    if kind is FileKind.LOG:
        yield from _verify_alone(path, on_bytes, options)
    elif kind is FileKind.METADATA_SNAPSHOT:
        yield from _verify_alone(path, on_bytes, options, has_indexes=False)
    elif kind not in _INDEXES:
        yield from _verify_small(path, kind)
    elif (log := path.with_suffix(LOG_SUFFIX)).exists():
        yield from (finding for finding in _verify_alone(log, on_bytes, options) if finding.path == str(path))
    else:
        yield from _verify_lone_index(path)


def _verify_alone(
    path: Path, on_bytes: OnBytes, options: VerifyOptions, *, has_indexes: bool = True
) -> Iterator[Finding]:
    """Checks one log, and the files of its name beside it; the name of the next segment says where it ends. As with a
    partition, a map of it is made only if something is odd.
    """
    known_end = find_following(path) or 0
    base_offset = base_offset_of(path) if has_indexes else 0  # a snapshot has none

    def check(on_bytes: OnBytes, log_map: LogMap | None = None) -> Iterator[Finding]:
        producers = ProducerCheck()
        segment = SegmentCheck(path, base_offset, options, producers, has_indexes=has_indexes, log_map=log_map)
        yield from segment.run(on_bytes)
        if log_map is None and (segment.holes or known_end > segment.end_offset):
            raise OddLogError
        if has_indexes:
            yield from segment.check_transaction_index(is_complete=base_offset == 0)
            if not segment.is_compacted and not segment.has_damage and not segment.holes:
                yield from producers.sequence_findings

    def check_by_map(on_bytes: OnBytes) -> Iterator[Finding]:
        from core.forensics.log_map import LogFile, LogMap  # most logs need none

        with contextlib.closing(open_salvaging(path)) as file:
            given_up = read_lost_offsets(path.parent)
            evidence = KnownOffsets(known_end=known_end, source="the name of the next segment", given_up=given_up)
            log_map = LogMap([LogFile(base_offset, path, file)], evidence)
            yield from map_findings(log_map)
            yield from check(on_bytes, log_map)

    return check_again_if_odd(check, check_by_map, on_bytes)


def _verify_small(path: Path, kind: FileKind) -> Iterator[Finding]:
    try:
        if kind is FileKind.PRODUCER_SNAPSHOT:
            deque(iter_producer_snapshot(path), maxlen=0)
            return
        text = read_small_text(path)
        match kind:
            case FileKind.OFFSET_CHECKPOINT:
                if text:  # Kafka makes the cleaner's checkpoint empty
                    parse_offset_checkpoint(text, str(path))
            case FileKind.DAMAGED_RANGES:
                parse_damaged_ranges(text, str(path))
            case FileKind.LEADER_EPOCHS:
                if text or has_records(path.parent):  # Kafka makes it empty, until there is a record
                    _ensure_rising(parse_leader_epochs(text, str(path)), path)
            case FileKind.PARTITION_METADATA:
                parse_partition_metadata(text, str(path))
            case FileKind.META_PROPERTIES:
                parse_meta_properties(text, str(path))
    except CorruptRecordError as error:
        yield corrupt_finding(corrupt_code(kind), error, path)
    except OSError as error:
        raise access_error(error, path, "read") from error


def has_records(partition: Path) -> bool:
    return any(log.stat().st_size for _, log in find_offset_files(partition, LOG_SUFFIX))


def _ensure_rising(epochs: Sequence[tuple[int, int]], path: Path) -> None:
    for before, after in pairwise(epochs):
        if after[0] <= before[0] or after[1] < before[1]:
            raise CorruptRecordError(
                f"epoch {after[0]} from offset {after[1]} follows epoch {before[0]} from offset {before[1]}",
                path=str(path),
            )


def _is_at_work(index: Path) -> bool:
    """Says whether the log's owner is creating that segment, the newest, whose indexes come before its `.log`; or
    deleting it, whose `.log` goes first.
    """
    log = index.with_suffix(LOG_SUFFIX)
    newest = max((path for _, path in find_offset_files(index.parent, LOG_SUFFIX)), default=log)
    return newest <= log or os.path.lexists(f"{log}{DELETED_SUFFIX}") or not os.path.lexists(index)


def _verify_lone_index(path: Path, missing: Sequence[range] = ()) -> Iterator[Finding]:
    """Reports an index without a log, unless its segment is among the `missing`, which are findings already."""
    parsed = parse_offset_file_name(path.name)
    if parsed is not None and any(parsed[0] in offsets for offsets in missing):
        return
    message = "there is no .log that this index could be of"
    yield Finding(Severity.WARNING, Code.INDEX_CORRUPT, str(path), message)
