"""Cleans a log: of each key in the part that can be cleaned the last record stays, at its offset.

1. the offset map is made of the dirty part, up to where it is full or the part ends
2. segments up to there are put together in groups as large as one segment may be, and each group is copied without
   what nobody needs: a record whose key has a later one, or none; a tombstone past its horizon; aborted transactions'
   records; markers, past their horizon, of transactions that nothing is left of
3. a batch that keeps all its records is copied byte for byte; one that loses some, or has a tombstone without a horizon
   yet, is made again; one that keeps none goes, unless it has the last sequence of an active producer, or ends the part
   that was cleaned: it stays without records then

A `BatchVerdict` says which. In the dirty part the map's own offsets say which records stay: batches that stay or go
whole are not opened again.

Source: org.apache.kafka.storage.internals.log.Cleaner; docs/compaction.md has the differences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError, UndecodableError
from core.common.filesystem import FileSystem
from core.compaction.cleaned_segment import CleanedSegment
from core.compaction.cleaned_transactions import CleanedTransactions
from core.compaction.cleaner_reader import CleanerReader, Group
from core.compaction.cleaner_stats import CleanerStats
from core.compaction.key_digest import KeyDigest
from core.compaction.log_to_clean import LogToClean, group_by_size
from core.compaction.offset_map import LatestOffsets, OffsetMap
from core.compaction.rebuilt_batches import Rebuilt, Rows, empty_batch, rebuild_batches, rebuild_legacy
from core.forensics.batch_location import offsets_text
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch, read_batch, stated_offset
from core.records.columns import RecordKeys, decode_keys, locate_records
from core.records.record_batch import RecordBatch

_NONE: Rows = np.empty(0, np.int64)


@dataclass(slots=True)
class BatchVerdict:
    """The fate of a batch. `rows`: the numbers of the records that stay, valid once `is_settled`."""

    batch: Batch
    count: int = 0
    kept: int = 0
    rows: Rows = field(default_factory=lambda: _NONE)
    is_settled: bool = False
    stays_empty: bool = False
    needs_horizon: bool = False
    rebuilt: bytes | None = None
    max_timestamp: int = 0
    last_offset: int = 0
    """The last offset of the batch as written: in magic 0 and 1 that of the last record that stays."""

    def __post_init__(self) -> None:
        self.max_timestamp, self.last_offset = self.batch.max_timestamp, self.batch.last_offset
        if isinstance(self.batch, RecordBatch):
            self.count = self.kept = self.batch.count

    def settle(self, rows: Rows, *, needs_horizon: bool) -> None:
        self.rows = rows
        self.kept = len(rows)
        self.needs_horizon = needs_horizon
        self.is_settled = True

    @property
    def is_rebuilt(self) -> bool:
        """Whether records stay, but the batch must be rebuilt."""
        return self.kept > 0 and (self.kept < self.count or self.needs_horizon)

    @property
    def is_changed(self) -> bool:
        return self.rebuilt is not None or self.kept < self.count or (self.count == 0 and not self.stays_empty)

    def data(self) -> bytes | memoryview | None:
        """Returns the batch as the cleaner writes it, or None if it is dropped."""
        batch = self.batch
        if self.rebuilt is not None:
            return self.rebuilt
        if self.kept == 0 and self.count:
            return empty_batch(batch) if self.stays_empty and isinstance(batch, RecordBatch) else None
        if self.kept < self.count:
            assert not isinstance(batch, RecordBatch)
            rebuilt = rebuild_legacy(batch, self.rows.tolist())
            self.max_timestamp = rebuilt.max_timestamp
            self.last_offset = read_batch(memoryview(rebuilt.data), 0).last_offset
            return rebuilt.data
        if self.count == 0 and not self.stays_empty:
            return None
        return batch.buffer[batch.start : batch.start + batch.size_bytes]


_NO_HORIZON = -1


@dataclass(slots=True)
class Cleaner:
    """Owned by one task; one log at a time. Without a `filesystem` nothing is written, only counted; then segments are
    read through `reading`, which also takes the writes of indexes that turn out to be wrong.

    `leaves_unchanged`: a segment that cleaning would not change is left alone. `on_bytes` is called with the number of
    bytes read or written since the last call; it may show progress, sleep, or raise to stop the cleaning.
    """

    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    filesystem: FileSystem | None = None
    reading: FileSystem = field(default_factory=FileSystem)
    leaves_unchanged: bool = True
    on_bytes: Callable[[int], None] = lambda _: None
    stats: CleanerStats = field(default_factory=CleanerStats)
    end_offset: int = 0
    """The end of the clean part; known when `clean` is done."""

    def clean(self, log: LogToClean, now_ms: int) -> Iterator[CleanedSegment]:
        """Yields the segments that replace others, each when it is complete and fsynced. Raises CorruptRecordError for
        an invalid batch, and the disk's OSError; files of an unfinished segment stay then, under names that the next
        start deletes.
        """
        self.stats = CleanerStats()
        cleaning = _Cleaning(log, self, now_ms)
        cleaning.build_map()
        self.end_offset = cleaning.map.latest_offset + 1
        yield from cleaning.clean_groups(self.end_offset)


class _Cleaning:
    """One cleaning of one log; owned by one task."""

    def __init__(self, log: LogToClean, cleaner: Cleaner, now_ms: int) -> None:
        self._log = log
        self._cleaner = cleaner
        self._now_ms = now_ms
        self._stats = cleaner.stats
        self._reader = CleanerReader(log, cleaner.filesystem or cleaner.reading, cleaner.on_bytes)
        self._key_digest = KeyDigest()
        self.map = OffsetMap(cleaner.dedupe_buffer_bytes, cleaner.load_factor)
        self._latest = LatestOffsets(np.empty(0, np.int64), np.empty(0, np.int32))
        self._dirty_without_key = 0
        self._transactions = CleanedTransactions(log.aborted)

    # --- the map

    def build_map(self) -> None:
        log = self._log
        transactions = CleanedTransactions([a for a in log.aborted if a.last_offset >= log.first_dirty_offset])
        first = log.first_dirty_segment
        runs = [[first], *self._reader.runs(range(first + 1, len(log.segments)))] if first < len(log.segments) else []
        for numbers in runs:
            if not self._put_joined(numbers, transactions):
                for number in numbers:
                    if not self._put_segment(number, transactions):
                        return
            self.map.advance(log.end_offset_of(numbers[-1]) - 1)

    def _put_joined(self, numbers: Sequence[int], transactions: CleanedTransactions) -> bool:
        """Puts the segments into the map together; returns False, with none of them in it, if that can't be done."""
        headers = self._reader.join(numbers)
        if headers is None or len(self.map) + int(headers.field("count").sum()) > self.map.capacity:
            return False
        try:
            return self._put(headers, transactions)
        except CorruptRecordError:  # found again when the segment is read by itself
            return False

    def _put_segment(self, number: int, transactions: CleanedTransactions) -> bool:
        with self._reader.open(number) as segment:
            found = segment.translate_offset(self._log.first_dirty_offset)
            for group in self._reader.groups(segment, found[0]) if found else ():
                if not self._put(group, transactions):
                    return False
                self.map.advance(group[-1].last_offset)
        self.map.advance(self._log.end_offset_of(number) - 1)
        return True

    def _put(self, batches: Group, transactions: CleanedTransactions) -> bool:
        data: Sequence[Batch] = batches
        if isinstance(batches, BatchHeaders):
            batches.ensure_valid()
            self._stats.map_bytes += int(batches.sizes.sum())
        else:
            for batch in batches:
                batch.ensure_valid()
            self._stats.map_bytes += sum(batch.size_bytes for batch in batches)
            kept = (one for one in batches if not isinstance(one, RecordBatch) or not transactions.may_discard(one))
            data = [batch for batch in kept if not batch.is_control]
        return self._put_records(data)

    def _put_records(self, data: Sequence[Batch]) -> bool:
        try:
            keys = decode_keys(data)
        except CorruptRecordError as error:
            if len(data) == 1:
                raise _undecodable(data[0], error) from None
            return all(self._put_records([batch]) for batch in data)  # they may be too large only together
        self._stats.map_records += len(keys.offsets)
        is_dirty = keys.offsets >= self._log.first_dirty_offset
        rows = np.flatnonzero((keys.key_lengths >= 0) & is_dirty)
        digests = self._key_digest.digest(keys.places.buffer, keys.key_positions[rows], keys.key_lengths[rows])
        is_whole = self.map.put(digests, keys.offsets[rows], keys.is_tombstone[rows]) == len(rows)
        in_map = is_dirty if is_whole else is_dirty & (keys.offsets <= self.map.latest_offset)
        self._dirty_without_key += int(np.count_nonzero((keys.key_lengths < 0) & in_map))
        return is_whole

    # --- the groups

    def clean_groups(self, end_offset: int) -> Iterator[CleanedSegment]:
        self._latest = self.map.latest()
        numbers = [n for n, segment in enumerate(self._log.segments) if segment.base_offset < end_offset]
        for group in group_by_size(self._log, numbers):
            cleaned = self._clean_group(group)
            if cleaned is not None:
                yield cleaned
        # dirty records without a key were counted as superseded
        self._stats.superseded -= self._dirty_without_key
        self._stats.without_key += self._dirty_without_key

    def _clean_group(self, numbers: Sequence[int]) -> CleanedSegment | None:
        log = self._log
        segments = [log.segments[number] for number in numbers]
        out = CleanedSegment(log.directory, [s.base_offset for s in segments], log.config, self._cleaner.filesystem)
        is_changed = len(segments) > 1
        for run in self._reader.runs(numbers):
            is_dirty = log.segments[run[0]].base_offset >= log.first_dirty_offset
            joined = self._reader.join(run) if is_dirty else None
            if joined is not None and self._are_dirty(joined):
                written = out.size_bytes
                is_changed |= self._copy_dirty(joined, out)
                self._cleaner.on_bytes(out.size_bytes - written)
                continue
            for number in run:
                is_changed |= self._copy_segment(number, out)
        while self._transactions.kept:
            out.add_aborted(self._transactions.kept.pop(0))
        if not is_changed and self._cleaner.leaves_unchanged:
            out.discard()
            return None
        out.is_changed = is_changed
        out.finish(segments[-1].modified_ms)
        return out

    def _copy_segment(self, number: int, out: CleanedSegment) -> bool:
        is_changed = False
        is_legacy_kept = self._keeps_legacy_tombstones(number)
        with self._reader.open(number) as segment:
            for group in self._reader.groups(segment, 0):
                written = out.size_bytes
                is_changed |= self._copy(group, out, keeps_legacy_tombstones=is_legacy_kept)
                self._cleaner.on_bytes(out.size_bytes - written)
        return is_changed

    def _keeps_legacy_tombstones(self, number: int) -> bool:
        """Magic 0 and 1 have no delete horizon: the time counts from the last write to the last clean segment."""
        segments, first_dirty = self._log.segments, self._log.first_dirty_offset
        clean = bisect_left(segments, first_dirty, key=lambda segment: segment.base_offset)
        if not clean:
            return True
        last_written_ms = segments[clean - 1].modified_ms
        return segments[number].modified_ms > last_written_ms - self._log.config.delete_retention_ms

    def _copy(self, batches: Group, out: CleanedSegment, *, keeps_legacy_tombstones: bool) -> bool:
        """Copies the records that stay; returns whether anything was dropped or changed."""
        if isinstance(batches, BatchHeaders) and self._are_dirty(batches):
            return self._copy_dirty(batches, out)
        verdicts = [self._judge(batch) for batch in batches]
        self._open_batches(verdicts, keeps_legacy_tombstones=keeps_legacy_tombstones)
        is_changed = False
        for verdict in verdicts:
            data = verdict.data()
            batch = verdict.batch
            self._stats.bytes_before += batch.size_bytes
            self._stats.records_before += verdict.count
            self._stats.records_after += verdict.kept
            is_changed |= verdict.is_changed
            if data is not None:
                self._stats.bytes_after += len(data)
                out.append(data, verdict.last_offset, verdict.max_timestamp)
        return is_changed

    def _are_dirty(self, headers: BatchHeaders) -> bool:
        return bool(
            headers.field("base_offset")[0] >= self._log.first_dirty_offset
            and headers.next_offsets()[-1] <= self.map.latest_offset + 1
            and headers.have_all_offsets
        )

    def _copy_dirty(self, headers: BatchHeaders, out: CleanedSegment) -> bool:
        """As `_copy`, for batches for which the map's offsets alone decide, all at once."""
        offsets, counts, bases = self._latest.offsets, headers.field("count"), headers.field("base_offset")
        next_offsets = headers.next_offsets()
        starts, stops = np.searchsorted(offsets, bases), np.searchsorted(offsets, next_offsets)
        kept = stops - starts
        has_tombstone = self._latest.have_tombstone(starts, stops)
        is_rebuilt = (kept > 0) & ((kept < counts) | has_tombstone)
        rebuilt = self._rebuild_dirty(headers.select(is_rebuilt), starts[is_rebuilt], kept[is_rebuilt])
        stays_empty = self._stay_empty(headers, next_offsets) & (kept == 0)
        ends = (headers.starts + headers.sizes).tolist()
        maxima = headers.field("max_timestamp").tolist()
        view = memoryview(headers.buffer)
        size_before = out.size_bytes
        for number in np.flatnonzero((kept > 0) | stays_empty).tolist():
            last_offset = int(next_offsets[number]) - 1
            if is_rebuilt[number]:
                data, max_timestamp = next(rebuilt)
                out.append(data, last_offset, max_timestamp)
            elif stays_empty[number]:
                out.append(empty_batch(RecordBatch(view, int(headers.starts[number]))), last_offset, maxima[number])
            else:
                out.append(view[int(headers.starts[number]) : ends[number]], last_offset, maxima[number])
        self._stats.bytes_before += int(headers.sizes.sum())
        self._stats.bytes_after += out.size_bytes - size_before
        self._stats.records_before += int(counts.sum())
        self._stats.records_after += int(kept.sum())
        self._stats.superseded += int((counts - kept).sum())
        return bool((is_rebuilt | (kept == 0)).any())

    def _rebuild_dirty(self, headers: BatchHeaders, starts: Rows, kept: Rows) -> Iterator[Rebuilt]:
        """`starts` and `kept`, per batch: where its offsets begin in the map's sorted offsets, and how many stay."""
        if not len(headers):
            return iter(())
        places = locate_records(headers)
        first_rows = np.searchsorted(places.batch_numbers, np.arange(len(headers)))
        before = np.cumsum(kept) - kept
        latest = np.repeat(starts - before, kept) + np.arange(int(kept.sum()))
        rows = np.repeat(first_rows - headers.field("base_offset"), kept) + self._latest.offsets[latest]
        has_tombstone = self._latest.have_tombstone(starts, starts + kept)
        return rebuild_batches(places, rows, np.where(has_tombstone, self._new_horizon, _NO_HORIZON))

    def _stay_empty(self, headers: BatchHeaders, next_offsets: Rows) -> npt.NDArray[np.bool_]:
        """Returns which batches stay if they keep no record."""
        stays: npt.NDArray[np.bool_] = next_offsets == self._log.first_uncleanable_offset
        for number in np.flatnonzero(headers.field("producer_id") >= 0).tolist():
            last = self._log.producers.get(int(headers.rows["producer_id"][number]))
            stays[number] |= last is not None and last.last_data_offset == next_offsets[number] - 1
        return stays

    @property
    def _new_horizon(self) -> int:
        return self._now_ms + self._log.config.delete_retention_ms

    def _judge(self, batch: Batch) -> BatchVerdict:
        batch.ensure_valid()
        verdict = BatchVerdict(batch)
        if not isinstance(batch, RecordBatch):
            return verdict
        may_discard = self._transactions.may_discard(batch)
        verdict.stays_empty = self._is_last_of_producer(batch) or (
            batch.next_offset == self._log.first_uncleanable_offset
        )
        horizon = batch.delete_horizon_ms
        if batch.is_control:
            if may_discard and horizon is not None and horizon <= self._now_ms:
                verdict.settle(_NONE, needs_horizon=False)
                self._stats.markers += batch.count
            else:
                needs_horizon = may_discard and horizon is None and batch.count > 0
                verdict.settle(np.arange(batch.count), needs_horizon=needs_horizon)
        elif may_discard:
            verdict.settle(_NONE, needs_horizon=False)
            self._stats.aborted += batch.count
        elif not batch.count:
            verdict.is_settled = True
        return verdict

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._log.producers.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    # --- the records

    def _open_batches(self, verdicts: Sequence[BatchVerdict], *, keeps_legacy_tombstones: bool) -> None:
        self._settle_dirty([v for v in verdicts if not v.is_settled and self._is_dirty(v.batch)])
        unsettled = [v for v in verdicts if not v.is_settled]
        if unsettled:
            self._settle_by_keys(unsettled, keeps_legacy_tombstones=keeps_legacy_tombstones)
        self._rebuild([v for v in verdicts if isinstance(v.batch, RecordBatch) and v.is_rebuilt])

    def _is_dirty(self, batch: Batch) -> bool:
        """Whether the map covers the batch, and the records' offsets have no gaps."""
        return (
            isinstance(batch, RecordBatch)
            and batch.base_offset >= self._log.first_dirty_offset
            and batch.last_offset <= self.map.latest_offset
            and batch.count == batch.last_offset_delta + 1
            and batch.delete_horizon_ms is None
        )

    def _settle_dirty(self, verdicts: Sequence[BatchVerdict]) -> None:
        """Decides by the offsets in the map alone."""
        offsets = self._latest.offsets
        bases = np.fromiter((v.batch.base_offset for v in verdicts), np.int64, len(verdicts))
        ends = np.fromiter((v.batch.next_offset for v in verdicts), np.int64, len(verdicts))
        starts, stops = np.searchsorted(offsets, bases), np.searchsorted(offsets, ends)
        has_tombstone = self._latest.have_tombstone(starts, stops)
        for verdict, start, stop, is_dead in zip(
            verdicts, starts.tolist(), stops.tolist(), has_tombstone.tolist(), strict=True
        ):
            verdict.settle(offsets[start:stop] - verdict.batch.base_offset, needs_horizon=is_dead)
            self._stats.superseded += verdict.count - verdict.kept

    def _settle_by_keys(self, verdicts: Sequence[BatchVerdict], *, keeps_legacy_tombstones: bool) -> None:
        batches = [v.batch for v in verdicts]
        try:
            keys = decode_keys(batches)
        except CorruptRecordError as error:
            if len(verdicts) == 1:
                raise _undecodable(batches[0], error) from None
            for verdict in verdicts:
                self._settle_by_keys([verdict], keeps_legacy_tombstones=keeps_legacy_tombstones)
            return
        stays, is_tombstone, is_past = self._judge_records(
            keys, batches, keeps_legacy_tombstones=keeps_legacy_tombstones
        )
        numbers = keys.places.batch_numbers
        firsts = np.searchsorted(numbers, np.arange(len(batches)))
        lasts = np.searchsorted(numbers, np.arange(len(batches)), side="right")
        for verdict, first, last in zip(verdicts, firsts.tolist(), lasts.tolist(), strict=True):
            verdict.count = last - first
            rows = np.flatnonzero(stays[first:last])
            has_tombstone = bool(is_tombstone[first:last][rows].any())
            is_legacy = not isinstance(verdict.batch, RecordBatch)
            needs_horizon = has_tombstone and not is_legacy and verdict.batch.delete_horizon_ms is None
            verdict.settle(rows, needs_horizon=needs_horizon)
            if is_legacy and not len(rows) and verdict.batch.next_offset == self._log.first_uncleanable_offset:
                verdict.settle(np.array([last - first - 1]), needs_horizon=False)  # it can't stay empty
                self._uncount(keys, last - 1, is_past=bool(is_past[last - 1]))

    def _judge_records(
        self, keys: RecordKeys, batches: Sequence[Batch], *, keeps_legacy_tombstones: bool
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns which records stay, which are tombstones, and which tombstones are past their horizon."""
        has_key = keys.key_lengths >= 0
        is_tombstone = keys.is_tombstone
        is_beyond_map = keys.offsets > self.map.latest_offset
        is_latest = np.zeros(len(has_key), np.bool_)
        rows = np.flatnonzero(has_key)
        digests = self._key_digest.digest(keys.places.buffer, keys.key_positions[rows], keys.key_lengths[rows])
        is_latest[rows] = self.map.find(digests) <= keys.offsets[rows]
        keeps_tombstones = np.array(
            [self._keeps_tombstones(batch, keeps_legacy_tombstones=keeps_legacy_tombstones) for batch in batches]
        )[keys.places.batch_numbers]
        is_past = is_tombstone & ~keeps_tombstones & ~is_beyond_map & is_latest
        stats = self._stats
        is_clean = keys.offsets < self._log.first_dirty_offset
        stats.without_key += int(np.count_nonzero(~has_key & is_clean))
        stats.superseded += int(np.count_nonzero(~is_latest & ~is_beyond_map & (has_key | ~is_clean)))
        stats.tombstones += int(np.count_nonzero(is_past))
        return is_beyond_map | (is_latest & ~is_past), is_tombstone, is_past

    def _uncount(self, keys: RecordKeys, row: int, *, is_past: bool) -> None:
        if keys.key_lengths[row] < 0:
            self._stats.without_key -= 1
        elif is_past:
            self._stats.tombstones -= 1
        else:
            self._stats.superseded -= 1

    def _keeps_tombstones(self, batch: Batch, *, keeps_legacy_tombstones: bool) -> bool:
        if not isinstance(batch, RecordBatch):
            return keeps_legacy_tombstones
        return batch.delete_horizon_ms is None or self._now_ms < batch.delete_horizon_ms

    def _rebuild(self, verdicts: Sequence[BatchVerdict]) -> None:
        if not verdicts:
            return
        try:
            places = locate_records([v.batch for v in verdicts])
        except CorruptRecordError as error:
            if len(verdicts) == 1:
                raise _undecodable(verdicts[0].batch, error) from None
            for verdict in verdicts:
                self._rebuild([verdict])
            return
        firsts = np.searchsorted(places.batch_numbers, np.arange(len(verdicts)))
        rows = np.concatenate([first + v.rows for first, v in zip(firsts, verdicts, strict=True)])
        horizons = np.array([self._new_horizon if v.needs_horizon else _NO_HORIZON for v in verdicts])
        for verdict, rebuilt in zip(verdicts, rebuild_batches(places, rows, horizons), strict=True):
            verdict.rebuilt, verdict.max_timestamp = rebuilt


def _undecodable(batch: Batch, error: CorruptRecordError) -> UndecodableError:
    cause = f"the records of {offsets_text(batch)} do not decode: {error.cause}"
    return UndecodableError(cause, position=batch.position, offset=stated_offset(batch))
