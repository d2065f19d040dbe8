"""The batches of a `.log` (or KRaft `.checkpoint`) that a dump asks for, and the damage on the way to them.

After damage the rows of a dump continue with the next sound batch. Kafka's text ends there as Kafka's tool does, which
follows frames through the damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, accessing
from core.files.file_names import base_offset_of, find_following
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage, DamageKind
from core.forensics.log_scanner import SegmentReader
from core.inspector.check.file_kind import FileKind, kind_of
from core.inspector.check.findings import Finding, claimed_finding, undecodable_finding
from core.inspector.dump.dump_options import DumpOptions
from core.records.batches import CURRENT_MAGIC, ENTRY_HEADER_SIZE, Batch, group_batches
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record import Record
from core.records.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, RecordBatch

_READ_BYTES = 4 * 1024 * 1024
"""The size of a read. A group of batches lies in one buffer, to be decoded where it is."""

_SMALL_BYTES = 4 * 1024 * 1024
_NEGATIVE = 0x80
"""A magic from here on is negative to Java, and Kafka knows no header of it."""


class SegmentBatches:
    """One file; owned by one task."""

    def __init__(self, path: Path, options: DumpOptions, findings: list[Finding], *, is_for_text: bool) -> None:
        """Adds damage that is met to `findings`. Raises AccessError if the file can't be read. `is_for_text`: damage is
        met as Kafka's tool meets it.
        """
        self.path = path
        self._options = options
        self._findings = findings
        self.invalid_bytes = 0
        """How many bytes at the end Kafka's tool takes for no batch."""
        self.blind: set[int] = set()
        """Where frames begin that were followed through damage."""
        self.is_broken_off = False
        """Nothing more is said, as Kafka's tool ends with an exception there."""
        self.damaged: set[int] = set()
        """Where batches begin that are shown though they are damaged."""
        self.left = options.max_records
        """How many more are wanted; None if all are."""
        self._scanner = BatchScanner(path, base_offset_of(path), partial(find_following, path), read_bytes=_READ_BYTES)
        self._is_for_text = is_for_text
        self._awaited = options.start_timestamp
        """The timestamp that the first wanted batch has or passes; None once it was met."""
        self._max_position = 1 << 63 if options.max_bytes is None else options.max_bytes
        is_whole = self.left is None and options.key is None and not options.skips_metadata
        self.is_hidden = options.find_secrets(path)
        """Says whether to hide the value of a record; None if all are shown."""
        self.is_large = is_whole and self._scanner.size_bytes > _SMALL_BYTES

    def groups(self) -> Iterator[list[Batch]]:
        """Batches in groups to be decoded together, or one by one."""
        pages = self._pages()
        batches = ([batch] for page in pages for batch in page)
        groups = chain.from_iterable(map(group_batches, pages)) if self.is_large else batches
        while (self.left is None or self.left > 0) and (group := next(groups, None)) is not None:
            yield group
            if self.left is not None and not self._options.with_records:
                self.left -= 1
        self._scanner.close()

    def _pages(self) -> Iterator[Sequence[Batch]]:
        """Yields the wanted batches: those of one read together, up to damage."""
        for item in self._scanner.pages_from(self.start_position()):
            if isinstance(item, Damage):
                if self._scanner.position > self._max_position:
                    break
                batch = self._framed(item)
                if self._is_for_text:
                    frames = self._blind_batches(item.position)
                    if batch is None:
                        yield from ([frame] for frame in frames)
                        break
                    batch = next(frames, batch)  # of another magic to Kafka, perhaps
                    frames.close()
                    self.blind.discard(item.position)  # a batch is known to follow
                    self.is_broken_off = False
                page = [] if batch is None else [batch]
            else:
                page = [batch for batch in item if batch.position + batch.size_bytes <= self._max_position]
                for batch in page if self._findings else ():
                    self._bound_claim(batch.base_offset)
            yield [batch for batch in page if self._may_be_wanted(batch) and self._is_new_enough(batch)]
            if self._scanner.position >= self._max_position:
                break

    def _may_be_wanted(self, batch: Batch) -> bool:
        return batch.last_offset >= self._options.start_offset

    def _is_new_enough(self, batch: Batch) -> bool:
        if self._awaited is not None and batch.max_timestamp >= self._awaited:
            self._awaited = None
        return self._awaited is None

    def start_position(self) -> int:
        """Returns a position, by the indexes, before which no wanted batch begins."""
        offset, timestamp = self._options.start_offset, self._options.start_timestamp
        if kind_of(self.path) is not FileKind.LOG or (offset <= 0 and timestamp is None):
            return 0
        reader = SegmentReader(self.path, base_offset_of(self.path), FileSystem())
        try:
            newer_from = offset if timestamp is None else reader.find_time_entry(timestamp).offset
            return max(reader.position_before(offset), reader.position_before(newer_from))
        except CorruptRecordError:
            return 0
        finally:
            reader.close()

    def _framed(self, damage: Damage) -> Batch | None:
        """The damaged batch, where its frame is sound: it can be shown as it is."""
        self._findings.append(claimed_finding(damage, self.path))
        batch = damage.batch
        is_framed = batch is not None and batch.position + batch.size_bytes == damage.end_position
        if is_framed and damage.kind is not DamageKind.BAD_LENGTH:
            self.damaged.add(damage.position)
            return batch
        return None

    def _bound_claim(self, next_offset: int) -> None:
        """Ends the offsets that a damaged header claims where the next sound batch begins."""
        last = self._findings[-1]
        if last.offset < next_offset <= last.last_offset:
            self._findings[-1] = replace(last, last_offset=next_offset - 1)

    def _blind_batches(self, position: int) -> Generator[Batch]:
        """Yields the bytes that Kafka's tool takes for batches after damage: it goes from frame to frame, whatever they
        hold, until one does not fit in the file, or breaks off at one that has no header.
        """
        file = FileSystem().open_read(self.path)
        with contextlib.closing(file), accessing(self.path):
            end = min(self._scanner.size_bytes, self._max_position)
            while end - position >= ENTRY_HEADER_SIZE and not self.is_broken_off:
                head = file.read_at(HEADER_SIZE, position)
                length, magic = int.from_bytes(head[8:12], "big", signed=True), head[MAGIC_POSITION]
                size = LOG_OVERHEAD + length
                if length >= MIN_MESSAGE_SIZE and size > end - position:
                    break
                has_header = magic < CURRENT_MAGIC or (magic < _NEGATIVE and len(head) == HEADER_SIZE)
                if length < MIN_MESSAGE_SIZE or not has_header:
                    self.is_broken_off = True
                    return
                view = memoryview(file.read_at(max(size, HEADER_SIZE), position))
                is_legacy = magic < CURRENT_MAGIC
                batch = LegacyRecordBatch(view, 0, position) if is_legacy else RecordBatch(view, 0, position)
                self.damaged.add(position)
                self.blind.add(position)
                if self._may_be_wanted(batch):
                    yield batch
                position += size
            if self._options.max_bytes is None:
                self.invalid_bytes = self._scanner.size_bytes - position

    def is_wanted(self, record: Record) -> bool:
        """Says whether a record is wanted, and counts it. To be called for each record in order."""
        options = self._options
        if record.offset < options.start_offset or (options.key is not None and record.key != options.key):
            return False
        if self.left is not None:
            if not self.left:
                return False
            self.left -= 1
        return True

    def report(self, batch: Batch, error: CorruptRecordError) -> None:
        self._findings.append(undecodable_finding(batch, self.path, error))

    def without_secrets(self, record: Record) -> Record:
        """The record as it is shown: `[hidden]` is the value of one that holds secrets."""
        hides = self.is_hidden is not None and self.is_hidden(record.value)
        return record._replace(value=HIDDEN.encode()) if hides else record
