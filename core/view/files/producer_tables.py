"""Producer snapshots and transaction indexes, compared with the log.

`FolderLogs` has facts that need the whole log, if it is small: the findings of `plog verify` in a partition's folder,
and the producers of its batches.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from pathlib import Path

from core.common.errors import CorruptRecordError, PlogError, UnreadableFileError
from core.common.filesystem import accessing
from core.common.salvaging_file import open_salvaging
from core.files.file_names import LOG_SUFFIX, base_offset_of, find_offset_files
from core.files.producer_snapshot import (
    ProducerSnapshotEntry,
    count_producers,
    iter_producer_snapshot,
    position_of_producer,
    read_producer,
)
from core.index.transaction_index import ENTRY, AbortedTransaction, parse_transaction_index
from core.inspector.check.file_kind import FileKind
from core.inspector.check.findings import Finding
from core.inspector.check.producer_check import Producer, ProducerCheck
from core.inspector.check.segment_check import OddLogError, SegmentCheck, VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.dump.side_file_dump import producer_row, transaction_row
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch
from core.view.files.batches_near_entry import NoBatch, SegmentLog, open_log
from core.view.files.file_table import Comparison, FileRow, FileTable, Fit, LogPlace

MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of logs that are read: a tenth of a second for small batches."""


class FolderLogs:
    """The logs of a partition's folder, each opened at its first use; owned by one task. Raises OSError as the disk
    says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = find_offset_files(folder, LOG_SUFFIX)
        self._opened: dict[Path, SegmentLog | None] = {}

    @cached_property
    def why_not_read(self) -> str:
        """Returns why the log is not read, or "" if it is."""
        total = sum(path.stat().st_size for _, path in self.logs)
        if total <= MOST_BYTES:
            return ""
        return f"the log has more than {MOST_BYTES // 1024 // 1024} MB, plog verify reads it all"

    @cached_property
    def findings(self) -> list[Finding]:
        """Returns the findings of `plog verify` about the folder, or [] if the log is not read."""
        if self.why_not_read:
            return []
        try:
            return list(verify(self.folder))
        except PlogError:
            return []  # the opener of the files reports it

    def findings_of(self, path: Path) -> list[Finding]:
        return [finding for finding in self.findings if finding.path == str(path)]

    def producers_at(self, offset: int) -> ProducerCheck | str:
        """Returns the log's producers up to an offset, or the reason why they are not known."""
        if self.why_not_read:
            return self.why_not_read
        producers, end_offset = ProducerCheck(), self.logs[0][0] if self.logs else 0
        for number, (base_offset, path) in enumerate(self.logs):
            if base_offset >= offset:
                break
            if base_offset > end_offset:
                producers.meet_hole()
            following = self.logs[number + 1][0] if number + 1 < len(self.logs) else None
            check = SegmentCheck(
                path, base_offset, VerifyOptions(), producers, has_indexes=False, limit_offset=following
            )
            try:
                deque(check.run(lambda _size: None), maxlen=0)
            except OddLogError:
                return "the log is damaged before that"
            except PlogError as error:
                return error.message
            end_offset = check.end_offset
        following_bases = {base_offset for base_offset, _ in self.logs}
        if offset == end_offset or (offset in following_bases and end_offset <= offset):
            return producers
        return f"no segment begins at offset {offset}, and the log ends at {end_offset}"

    # --- places

    def batch_of(self, offset: int) -> tuple[SegmentLog, Batch] | NoBatch:
        """Finds the first batch that ends with the offset or after it, in the segment that it should be in."""
        path = next((path for base_offset, path in reversed(self.logs) if base_offset <= offset), None)
        if path is None:
            return NoBatch.END
        if path not in self._opened:
            self._opened[path] = open_log(path)
        log = self._opened[path]
        if log is None:
            return NoBatch.DAMAGED
        batch = log.batch_of(offset)
        return batch if isinstance(batch, NoBatch) else (log, batch)

    def place_of(self, offset: int) -> LogPlace | None:
        """Returns the place of the batch that holds an offset, if it is found."""
        found = self.batch_of(offset) if offset >= 0 else NoBatch.INSIDE
        return None if isinstance(found, NoBatch) else LogPlace(found[0].path, found[1].position)

    def close(self) -> None:
        for log in self._opened.values():
            if log is not None:
                log.close()


class _FolderTable(FileTable):
    """Shared by both kinds: the file, and the log of its folder."""

    def __init__(self, path: Path, kind: FileKind, columns: list[str]) -> None:
        super().__init__(path, kind, columns)
        with accessing(path):
            self._logs = FolderLogs(path.parent)
            self._file = open_salvaging(path)

    def close(self) -> None:
        self._file.close()
        self._logs.close()


class SnapshotTable(_FolderTable):
    """Producers, compared with those of the log up to the offset in the file's name."""

    def __init__(self, path: Path) -> None:
        none = ProducerSnapshotEntry(*range(8))
        super().__init__(path, FileKind.PRODUCER_SNAPSHOT, list(producer_row(none)))
        self.offset = base_offset_of(path)
        self._count = 0
        try:
            with accessing(path):
                next(iter_producer_snapshot(path), None)  # this checks the whole file
                self._count = count_producers(self._file.size())
        except UnreadableFileError as error:
            self.problems.append(error.message)
        except CorruptRecordError as error:
            self.problems.append(error.cause)

    @property
    def count(self) -> int:
        return self._count

    @cached_property
    def _producers(self) -> ProducerCheck | str:
        return self._logs.producers_at(self.offset)

    @cached_property
    def _wrong(self) -> dict[int, str]:
        """Messages of `plog verify`, by producer id."""
        messages = (finding.message for finding in self._logs.findings_of(self.path))
        parted = (message.removeprefix("producer ").partition(": ") for message in messages)
        return {int(producer_id): said for producer_id, _, said in parted if producer_id.lstrip("-").isdecimal()}

    def _row(self, number: int) -> FileRow:
        entry = read_producer(self._file, number)
        if entry is None:
            raise FileNotFoundError(f"{self.path} was cut meanwhile")
        return FileRow(number, producer_row(entry), self._compare(entry), position_of_producer(number))

    def _compare(self, entry: ProducerSnapshotEntry) -> Comparison:
        producers = self._producers
        place = self._logs.place_of(entry.last_offset)
        offset = None if entry.last_offset < 0 else entry.last_offset
        if isinstance(producers, str):
            return Comparison(Fit.UNKNOWN, producers, place, offset)
        if entry.producer_id in self._wrong:
            return Comparison(Fit.NO, self._wrong[entry.producer_id], place, offset)
        producer = producers.find_producer(entry.producer_id)
        if producer is None:
            return Comparison(Fit.UNKNOWN, "the log does not show this producer", place, offset)
        start_offset = self._logs.logs[0][0]
        is_other = any(True for _ in producers.check_snapshot([entry], self.path, start_offset))
        said = _producer_text(producer)
        if is_other:
            return Comparison(Fit.UNKNOWN, f"{said}, as far as it goes: something is missing from it", place, offset)
        return Comparison(Fit.YES, said, place, offset)


def _producer_text(producer: Producer) -> str:
    said = f"epoch {producer.epoch}"
    if producer.is_sequence_known and producer.last_offset >= 0:
        said += f", last sequence {producer.last_sequence}, last offset {producer.last_offset}"
    if producer.first_offset is not None:
        said += f", open transaction from offset {producer.first_offset}"
    return said


class TransactionIndexTable(_FolderTable):
    """Aborted transactions, beside their markers and their first batches."""

    def __init__(self, path: Path) -> None:
        none = AbortedTransaction(*range(4))
        super().__init__(path, FileKind.TRANSACTION_INDEX, list(transaction_row(none)))
        size_bytes = self._file.size()
        if size_bytes % ENTRY.size:
            self.problems.append(f"transaction index of {size_bytes} bytes, expected a multiple of {ENTRY.size}")
        found = [finding.message for finding in self._logs.findings_of(path) if finding.position < 0]
        self.problems += [message for message in found if message not in self.problems]

    @property
    def count(self) -> int:
        return self._file.size() // ENTRY.size

    @cached_property
    def _wrong(self) -> dict[int, str]:
        """Messages of `plog verify`, by the number of the entry."""
        found = [finding for finding in self._logs.findings_of(self.path) if finding.position >= 0]
        return {one.position // ENTRY.size: one.message.partition(": ")[2] or one.message for one in found}

    def _row(self, number: int) -> FileRow:
        """Reads it with the entry before, above which it must be."""
        position, before = number * ENTRY.size, min(number, 1) * ENTRY.size
        data = self._file.read_at(before + ENTRY.size, position - before)
        try:
            parse_transaction_index(data[before:])
        except CorruptRecordError as error:
            fields = AbortedTransaction(*ENTRY.unpack(data[before:])[1:])
            return FileRow(number, transaction_row(fields), Comparison(Fit.NO, error.cause), position)
        entry = AbortedTransaction(*ENTRY.unpack(data[before:])[1:])
        comparison = self._compare(number, entry)
        if before and (end := ENTRY.unpack(data[:before])[3]) >= entry.last_offset:
            comparison = comparison._replace(fit=Fit.NO, log=f"the transaction before it ends at offset {end}")
        return FileRow(number, transaction_row(entry), comparison, position)

    def _compare(self, number: int, entry: AbortedTransaction) -> Comparison:
        found = self._look(entry)
        if number in self._wrong:
            return found._replace(fit=Fit.NO, log=self._wrong[number])
        if found.fit is Fit.NO and not self._logs.why_not_read:
            return found._replace(fit=Fit.UNKNOWN)  # as the index is believed, by the rules
        return found

    def _look(self, entry: AbortedTransaction) -> Comparison:
        found = self._logs.batch_of(entry.last_offset)
        if isinstance(found, NoBatch):
            return Comparison(Fit.UNKNOWN, f"its marker: {found.value}", offset=entry.last_offset)
        log, batch = found
        place = LogPlace(log.path, batch.position)
        if log.path != self.path.with_suffix(LOG_SUFFIX):
            return Comparison(Fit.NO, "its marker would be in another segment", place, entry.last_offset)
        said = _said_of_marker(log, batch, entry)
        if said is not None:
            return Comparison(Fit.NO, said, place, entry.last_offset)
        return self._look_at_first(entry, place)

    def _look_at_first(self, entry: AbortedTransaction, place: LogPlace) -> Comparison:
        aborted = f"producer {entry.producer_id} aborted at offset {entry.last_offset}"
        found = self._logs.batch_of(entry.first_offset)
        if isinstance(found, NoBatch):
            return Comparison(Fit.UNKNOWN, f"{aborted}; its first batch: {found.value}", place, entry.last_offset)
        batch = found[1]
        if (
            isinstance(batch, RecordBatch)
            and (batch.base_offset, batch.producer_id) == (entry.first_offset, entry.producer_id)
            and batch.is_transactional
            and not batch.is_control
        ):
            said = f"{aborted} what it wrote from offset {entry.first_offset} on"
            return Comparison(Fit.YES, said, place, entry.last_offset)
        is_complete = self._logs.logs[0][0] == 0
        said = f"{aborted}; no batch of its transaction begins at offset {entry.first_offset}"
        return Comparison(Fit.NO if is_complete else Fit.UNKNOWN, said, place, entry.last_offset)


def _said_of_marker(log: SegmentLog, batch: Batch, entry: AbortedTransaction) -> str | None:
    """Describes what is there instead of the transaction's abort marker; returns None if the marker is there."""
    no_marker = f"no transaction was aborted at offset {entry.last_offset} of the log"
    if not isinstance(batch, RecordBatch) or not batch.is_control or batch.last_offset != entry.last_offset:
        return no_marker
    try:
        whole = log.records.read_batch(batch.position)
        marker = read_end_transaction_marker(whole.records()[0])
    except (CorruptRecordError, IndexError):
        return no_marker
    if marker is None or marker.is_commit:
        return no_marker
    if batch.producer_id != entry.producer_id:
        return f"producer {batch.producer_id} aborted at offset {entry.last_offset}"
    return None
