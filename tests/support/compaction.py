"""Logs to compact, at random; their compaction by plog; and what any compaction must leave, by replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from core.common.filesystem import FileSystem
from core.compaction.cleaned_segment import CleanedSegment
from core.compaction.cleaner import Cleaner
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.files.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, find_offset_files
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, finish_swaps
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.logs import append, append_marker, make_batch, open_log

MANY_BYTES = 1 << 20

Latest = dict[bytes, tuple[int, bytes | None]]
"""Of each key the last record's offset and value."""


class RandomWriter:
    """Appends to a log what plain, idempotent and transactional producers may: keys that come again, tombstones,
    headers, records without a key; `latest` is what a consumer that reads committed records would have of each key.
    """

    def __init__(
        self,
        log: PartitionLog,
        random: Random,
        now_ms: int,
        *,
        codecs: Sequence[CompressionType] = tuple(CompressionType),
        keys: int = 12,
        with_nulls: bool = True,
        with_transactions: bool = True,
        producer_id: int = 100,
    ) -> None:
        self._log = log
        self._random = random
        self._now_ms = now_ms
        self._codecs = codecs
        self._keys = keys
        self._with_nulls = with_nulls
        self._sequences = {producer_id + n: 0 for n in range(4)}
        self._transactional = (producer_id, producer_id + 1) if with_transactions else ()
        self._open: dict[int, list[Record]] = {}
        self.latest: Latest = {}

    def continue_on(self, log: PartitionLog) -> None:
        """The same log, opened again."""
        self._log = log

    def write(self, batches: int) -> None:
        for _ in range(batches):
            producer = self._random.choice((-1, -1, *self._sequences))
            if producer in self._open and self._random.random() < 0.5:
                self.end(producer, is_commit=self._random.random() < 0.6)
            else:
                self._write_batch(producer)

    def _write_batch(self, producer: int) -> None:
        random = self._random
        self._now_ms += random.choice((0, 0, 1, 1000))
        records = [self._record() for _ in range(random.choice((1, 1, 2, 5, 9)))]
        fields: dict[str, object] = {"compression": random.choice(self._codecs)}
        if producer >= 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": self._sequences[producer]}
            self._sequences[producer] += len(records)
        is_transactional = producer in self._transactional
        base = self._log.log_end_offset
        placed = [r._replace(offset=base + n) for n, r in enumerate(records)]
        if is_transactional:
            fields["is_transactional"] = True
            self._open.setdefault(producer, []).extend(placed)
        else:
            self._note(placed)
        append(self._log, RecordBatch(memoryview(bytearray(batch_of(records, **fields)))))

    def _record(self) -> Record:
        random = self._random
        key = b"key-%d" % random.randrange(self._keys)
        if self._with_nulls and random.random() < 0.05:
            return Record(0, self._now_ms, None, b"without a key")
        value = None if random.random() < 0.2 else random.randbytes(random.choice((0, 5, 100, 200)))
        headers = ((b"name", b"value"), (b"name", None)) if random.random() < 0.2 else ()
        return Record(0, self._now_ms + random.choice((0, 0, 1, 5, -300)), key, value, headers)

    def end(self, producer: int, *, is_commit: bool) -> None:
        append_marker(self._log, producer, is_commit=is_commit)
        records = self._open.pop(producer)
        if is_commit:
            self._note(records)

    def end_all(self) -> None:
        for producer in list(self._open):
            self.end(producer, is_commit=self._random.random() < 0.5)

    def _note(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.key is not None and record.offset >= self.latest.get(record.key, (-1, b""))[0]:
                self.latest[record.key] = record.offset, record.value


def compact(
    log: PartitionLog, checkpoint: int | None, now_ms: int, filesystem: FileSystem | None = None, **options: int
) -> tuple[int, Cleaner]:
    """Cleans what can be cleaned, and swaps it in on the disk: the log, which is open, must be opened again. Gives the
    new checkpoint; `options` as of `Cleaner`.
    """
    filesystem = filesystem or FileSystem()
    cleaner = Cleaner(filesystem=filesystem, leaves_unchanged=False, **options)  # type: ignore[arg-type]
    cleaned: list[CleanedSegment] = list(
        cleaner.clean(log_to_clean(log, find_cleanable_part(log, checkpoint, now_ms)), now_ms)
    )
    if cleaned:
        begin_swap(log.directory, [segment.base_offset for segment in cleaned], filesystem)
        finish_swaps(log.directory, filesystem)
    return cleaner.end_offset, cleaner


def log_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def write_thinned_log(directory: Path, batches: int = 60) -> list[int]:
    """A partition's folder from whose segments, but for the last, every other batch is gone, as a cleaner takes them.
    Nothing in it proves that it was one. The offsets that are left.
    """
    log = open_log(directory, segment_bytes=2000)
    for number in range(batches):
        append(log, make_batch(b"%03d" % number, key=b"k"))
    last = log.segments.active.base_offset
    log.close()
    left = list(range(last, batches))
    for base_offset, path in find_offset_files(directory, LOG_SUFFIX)[:-1]:
        data = path.read_bytes()
        size = 12 + int.from_bytes(data[8:12], "big")
        count = len(data) // size
        kept = [number for number in range(count) if number % 2 == 0 or number == count - 1]
        path.write_bytes(b"".join(data[number * size : (number + 1) * size] for number in kept))
        left += [base_offset + number for number in kept]
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path.with_suffix(suffix).unlink()
    return sorted(left)
