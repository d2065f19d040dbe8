"""Cuts a log that is being opened: at the bytes from which it can't be read on, or all of it if it can't begin there.

Every byte that goes is kept beside the log, under the names of `core/forensics/truncated_tails.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.java_numbers import LONG_MAX
from core.common.topic_partition import TopicPartition
from core.files.file_names import SNAPSHOT_SUFFIX, offset_file_name
from core.forensics.known_offsets import KnownOffsets
from core.forensics.missing_offsets import Tail, TailKind, tail_kind
from core.forensics.orphan_index import find_orphan_indexes
from core.forensics.recovered_layout import copy_bytes
from core.forensics.segment_scanner import DamagedBytes
from core.forensics.truncated_tails import cut_off_path, lost_end_path
from core.index.offset_index import OffsetPosition
from core.log.log_segment import LogSegment
from core.log.log_segments import LogSegments
from core.records.record_batch import RecordBatch

_log = logging.getLogger("plog.log")


class LogTruncation:
    """Takes bytes out of a log's segments, and keeps them beside it; owned by one task.

    It does not keep them if the files are another's, who still has them whole (`keeps_bytes`).
    """

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        segments: LogSegments,
        filesystem: FileSystem,
        *,
        keeps_bytes: bool,
        cuts_sound_records: bool,
    ) -> None:
        self._directory = directory
        self._partition = partition
        self._segments = segments
        self._filesystem = filesystem
        self._keeps_bytes = keeps_bytes
        self._cuts_sound_records = cuts_sound_records

    def cut(self, known: KnownOffsets, segment: LogSegment, damaged: DamagedBytes) -> bool:
        """Ends the log at the damaged bytes of that segment: later segments go, and the lone indexes after it. Returns
        whether that may cost records: not if there were none, in a file of its full size.

        Raises CorruptRecordError, and cuts nothing, if there are sound records after them and those may not be cut.
        """
        position = damaged.range.position
        later = [one for one in self._segments if one.base_offset > segment.base_offset]
        lost = _count_sound_records(segment, position) + sum(_count_sound_records(one, 0) for one in later)
        if lost and not self._cuts_sound_records:
            cause = f"{damaged.cause}, and {lost} sound record{'s' * (lost > 1)} after it"
            raise CorruptRecordError(cause, position=position, path=str(segment.records.path))
        cut_bytes = segment.size_bytes - position + sum(one.size_bytes for one in later)
        kind = None if later else _tail_kind(known, segment, damaged)
        keeps_bytes = self._keeps_bytes and kind is not TailKind.PREALLOCATED
        if keeps_bytes and position < segment.size_bytes:
            beside = self._copy_beside(segment, position, segment.size_bytes)
            self._filesystem.rename(beside, cut_off_path(segment.records.path, position, same_as=beside))
            self._filesystem.sync_directory(self._directory)  # before the log loses them: a power cut may take the name
        what = _describe(segment, damaged, kind)
        if segment.records.path.lstat().st_nlink > 1:
            self._detach(segment, position)
        segment.truncate_position(position)
        self._remove(later)
        for offset, path in find_orphan_indexes(self._directory, {one.base_offset for one in self._segments}):
            if offset > segment.base_offset:
                self.take_index_away(path)
        self._filesystem.sync_directory(self._directory)
        _log.log(
            logging.INFO if kind is TailKind.PREALLOCATED else logging.WARNING,
            "%s: %s; the log ends there now, at offset %d; the %d bytes after it, %d sound records among them, are %s",
            self._partition,
            what,
            segment.next_offset(),
            cut_bytes,
            lost,
            f"kept aside in *.cut-at-* in {self._directory}" if keeps_bytes else "passed over",
        )
        return kind is not TailKind.PREALLOCATED

    def remove_all(self, log_start_offset: int) -> None:
        """Takes all segments out of a log that ends below where it should begin, so that it begins again, empty, there.
        Its files were lost, or its start is wrong, which no checksum covers.
        """
        _log.warning(
            "%s: the log ends below its start offset %d; it goes on from there, empty; %s",
            self._partition,
            log_start_offset,
            f"what was there is kept aside in *.cut-at-0 in {self._directory}"
            if self._keeps_bytes
            else "what was there is left out",
        )
        self._remove(list(self._segments))
        self._filesystem.sync_directory(self._directory)

    def take_index_away(self, path: Path) -> None:
        """Takes an index away whose segment would come after the log's end. The segment's offsets are given again, and
        only the index shows that it was there, so it is kept aside.
        """
        if self._keeps_bytes:
            self._filesystem.rename(path, cut_off_path(path, 0))
        else:
            self._filesystem.unlink(path)

    def note_lost_end(self, log_end: int, known_end: int) -> None:
        """Keeps a proof that the log reached up to `known_end`: the snapshot there, or an empty file in its name."""
        snapshot = self._directory / offset_file_name(known_end, SNAPSHOT_SUFFIX)
        proof = lost_end_path(snapshot, log_end)
        if proof.exists():
            return  # of a start that was killed
        if snapshot.exists():
            self._filesystem.rename(snapshot, proof)
        else:
            self._filesystem.write_atomic(proof, b"")
        self._filesystem.sync_directory(self._directory)

    def _remove(self, segments: Sequence[LogSegment]) -> None:
        """Takes segments out of the log; a `.log` is kept unless it is empty. The indexes go first: without their logs
        they would be the traces of segments that are lost.
        """
        for segment in segments:
            for index in segment.paths[1:]:
                self._filesystem.unlink(index)
        self._filesystem.sync_directory(self._directory)
        for segment in segments:
            self._segments.remove(segment)
            segment.on_removed()
            is_empty = segment.size_bytes == 0
            segment.records.close()
            path = segment.records.path
            if self._keeps_bytes and not is_empty:
                self._filesystem.rename(path, cut_off_path(path, 0))
            self._filesystem.unlink(path)

    def _detach(self, segment: LogSegment, end: int) -> None:
        """Makes a file with another name one of its own, up to that position: what has that other name stays whole."""
        self._filesystem.rename(self._copy_beside(segment, 0, end), segment.records.path)
        segment.records.close()

    def _copy_beside(self, segment: LogSegment, start: int, end: int) -> Path:
        """Copies bytes [start, end) of the segment's log to a file beside it, and syncs that."""
        beside = segment.records.path.with_name(f"{segment.records.path.name}.tmp")
        self._filesystem.unlink(beside)
        with contextlib.closing(self._filesystem.open_append(beside)) as target:
            copy_bytes(segment.records.file, start, end, (), target, 0)
            target.sync()
        return beside


def _tail_kind(known: KnownOffsets, segment: LogSegment, damaged: DamagedBytes) -> TailKind | None:
    """Gives that of damage up to the end of the last segment; None if more follows it."""
    if damaged.damage is None or damaged.range.end_position < segment.size_bytes:
        return None
    return tail_kind(damaged.damage, known, damaged.range.start_offset, segment.base_offset)


def _describe(segment: LogSegment, damaged: DamagedBytes, kind: TailKind | None) -> str:
    """Says whether it is a tail that a crash left, or one that is wrong, or damage with more of the log after it."""
    if damaged.damage is None or kind is None:
        return f"damage: {segment.records.path} position {damaged.range.position}: {damaged.cause}"
    return f"{kind} tail: {Tail(kind, segment.records.path, damaged.damage)}"


def _count_sound_records(segment: LogSegment, position: int) -> int:
    """Counts those of magic 2, from that position on."""
    batches = segment.reading(OffsetPosition(LONG_MAX, segment.size_bytes)).items()
    return sum(one.count for one in batches if isinstance(one, RecordBatch) and one.position >= position)
