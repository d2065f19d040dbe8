"""Checks files, partitions and data directories against their formats and against each other. Reads only.

A directory that a broker owns just now may be checked too: the last segment of a partition may then end in a batch
that is being written, and its indexes may lag behind.

Logs: frames, checksums, offsets and epochs that rise, counts. Indexes: every entry against the batch that it points at.
Transaction indexes against the abort markers in the log. Snapshots, checkpoints and the small text files parse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import access_error
from core.index.transaction_index import AbortedTransaction, parse_transaction_index
from core.inspector.batch_walk import BatchWalk, first_offset
from core.inspector.file_kind import FileKind, kind_of
from core.inspector.findings import Code, Finding, Severity, corrupt_code
from core.inspector.index_check import OffsetIndexCheck, TimeIndexCheck
from core.log.checkpoint_file import parse_offset_checkpoint
from core.log.directory_lock import find_lock_holder
from core.log.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from core.log.gap_ledger import parse_gaps
from core.log.leader_epoch_cache import parse_leader_epochs
from core.log.meta_properties import parse_meta_properties
from core.log.partition_metadata_file import parse_partition_metadata
from core.log.producer_snapshot import parse_producer_snapshot
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

OnBytes = Callable[[int], None]
"""Told, now and then, how many bytes more were checked."""


def _ignore(_size_bytes: int) -> None:
    """Nobody wants to be told."""


def verify(path: Path, on_bytes: OnBytes = _ignore) -> Iterator[Finding]:
    """Everything wrong with a file, a partition's folder or a data directory. AccessError where it can't be read."""
    if not path.exists():
        raise AccessError(f"no such file or directory: {path}", where=str(path))
    if path.is_dir():
        yield from _verify_directory(path, on_bytes)
        return
    log = path.with_suffix(LOG_SUFFIX)
    if kind_of(path) in _INDEXES and log.exists():
        yield from (finding for finding in verify_file(log, on_bytes) if finding.path == str(path))
    else:
        yield from verify_file(path, on_bytes)


def _verify_directory(path: Path, on_bytes: OnBytes) -> Iterator[Finding]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise access_error(error, path, "read") from error
    logs = [entry.name for entry in entries if entry.name.endswith(LOG_SUFFIX)]
    is_live = bool(logs) and find_lock_holder(path.resolve().parent) is not None
    for entry in entries:
        inner = path / entry.name
        if entry.is_dir(follow_symlinks=False):
            if parse_partition_directory_name(entry.name) is not None:
                yield from _verify_directory(inner, on_bytes)
        elif entry.name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)):
            yield _warning(
                Code.UNFINISHED_SWAP, inner, "a compaction was not finished; the next start of a broker does it"
            )
        elif entry.is_file() and kind_of(inner) is not None:
            yield from _verify_found(inner, on_bytes, is_active=is_live and entry.name == logs[-1])


def _verify_found(path: Path, on_bytes: OnBytes, *, is_active: bool) -> list[Finding]:
    """Of a file in a folder, which its broker may delete at any time: that is no finding."""
    try:
        findings = list(verify_file(path, on_bytes, is_active=is_active))
    except AccessError:
        if path.exists():
            raise
        return []
    return findings if path.exists() else []


def verify_file(path: Path, on_bytes: OnBytes = _ignore, *, is_active: bool = False) -> Iterator[Finding]:
    """Everything wrong with one file: a `.log` with its indexes, an index only where it has no `.log`. AccessError as
    of `verify`.
    """
    match kind_of(path):
        case FileKind.LOG:
            yield from _LogCheck(path, on_bytes, is_active=is_active).run()
        case FileKind.METADATA_SNAPSHOT:
            yield from _LogCheck(path, on_bytes, has_indexes=False).run()
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX | FileKind.TRANSACTION_INDEX:
            # Its log's check covers it.
            if not path.with_suffix(LOG_SUFFIX).exists():
                yield from _verify_lone_index(path)
        case None:
            raise AccessError(
                f"{path} is no file that Kafka or plog writes",
                where=str(path),
                hint="a .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, or a directory of them",
            )
        case kind:
            yield from _verify_small(path, kind)


def _verify_small(path: Path, kind: FileKind) -> Iterator[Finding]:
    data = _read_bytes(path)
    text = data.decode("utf-8", "replace")
    try:
        match kind:
            case FileKind.PRODUCER_SNAPSHOT:
                parse_producer_snapshot(data, str(path))
            case FileKind.OFFSET_CHECKPOINT:
                if data:  # Kafka makes the cleaner's checkpoint empty
                    parse_offset_checkpoint(text, str(path))
            case FileKind.DAMAGED_RANGES:
                parse_gaps(text, str(path))
            case FileKind.LEADER_EPOCHS:
                _ensure_rising(parse_leader_epochs(text, str(path)), path)
            case FileKind.PARTITION_METADATA:
                parse_partition_metadata(text, str(path))
            case FileKind.META_PROPERTIES:
                parse_meta_properties(text, str(path))
    except CorruptRecordError as error:
        yield Finding(Severity.ERROR, corrupt_code(kind), str(path), error.cause, error.position)


def _ensure_rising(epochs: Sequence[tuple[int, int]], path: Path) -> None:
    for before, after in pairwise(epochs):
        if after[0] <= before[0] or after[1] < before[1]:
            raise CorruptRecordError(
                f"epoch {after[0]} from offset {after[1]} follows epoch {before[0]} from offset {before[1]}",
                path=str(path),
            )


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise access_error(error, path, "read") from error


def _verify_lone_index(path: Path) -> Iterator[Finding]:
    yield _warning(Code.INDEX_CORRUPT, path, "there is no .log that this index could be of")


def _warning(code: Code, path: Path, message: str) -> Finding:
    return Finding(Severity.WARNING, code, str(path), message)


class _LogCheck:
    """One walk over a `.log`, its indexes checked beside it."""

    def __init__(self, path: Path, on_bytes: OnBytes, *, has_indexes: bool = True, is_active: bool = False) -> None:
        self._path = path
        self._on_bytes = on_bytes
        self._has_indexes = has_indexes
        self._is_active = is_active
        parsed = parse_offset_file_name(path.name)
        self._base_offset = parsed[0] if parsed else -1
        self._last_offset = -1
        self._last_epoch = -1
        self._findings: list[Finding] = []
        self._aborted_ends: dict[int, int] = {}  # last offset -> producer id

    def run(self) -> Iterator[Finding]:
        walk = BatchWalk(self._path)
        try:
            if not self._has_indexes:
                for batch in walk:
                    self._check(batch)
                    yield from self._take()
                yield from walk.findings
                return
            offset_index = OffsetIndexCheck(self._path.with_suffix(INDEX_SUFFIX), self._base_offset)
            time_index = TimeIndexCheck(self._path.with_suffix(TIME_INDEX_SUFFIX), self._base_offset)
            done = 0
            for batch in walk:
                self._check(batch)
                offset_index.see(batch)
                time_index.see(batch)
                if walk.valid_bytes - done > _REPORT_BYTES:
                    self._on_bytes(walk.valid_bytes - done)
                    done = walk.valid_bytes
                if self._findings:
                    yield from self._take()
            self._on_bytes(walk.size_bytes - done)
            yield from (f for f in walk.findings if not (self._is_active and f.code is Code.TORN_TAIL))
            has_batches = walk.valid_bytes > 0
            yield from offset_index.findings(has_batches=has_batches, may_lag=self._is_active)
            yield from time_index.findings(has_batches=has_batches, may_lag=self._is_active)
            yield from self._check_transaction_index()
        finally:
            walk.close()

    def _take(self) -> list[Finding]:
        found, self._findings = self._findings, []
        return found

    def _report(self, code: Code, message: str, batch: Batch, severity: Severity = Severity.ERROR) -> None:
        self._findings.append(Finding(severity, code, str(self._path), message, batch.position, first_offset(batch)))

    def _check(self, batch: Batch) -> None:
        computed = batch.computed_crc()
        if computed != batch.crc:
            self._report(Code.CRC_MISMATCH, f"stored crc {batch.crc:08x}, computed {computed:08x}", batch)
            return
        first, last = first_offset(batch), batch.last_offset
        if first <= self._last_offset or first < self._base_offset:
            before = f"the batch before ends at {self._last_offset}" if self._last_offset >= 0 else "the segment begins"
            at = "" if self._last_offset >= 0 else f" at {self._base_offset}"
            self._report(Code.OFFSETS_NOT_RISING, f"offsets {first} to {last}, {before}{at}", batch)
        self._last_offset = max(self._last_offset, last)
        if isinstance(batch, RecordBatch):
            self._check_current(batch)

    def _check_current(self, batch: RecordBatch) -> None:
        if batch.partition_leader_epoch < self._last_epoch:
            self._report(
                Code.EPOCHS_NOT_RISING,
                f"leader epoch {batch.partition_leader_epoch}, the batch before has {self._last_epoch}",
                batch,
            )
        self._last_epoch = max(self._last_epoch, batch.partition_leader_epoch)
        if batch.count < 0 or batch.last_offset_delta < 0 or batch.count > batch.last_offset_delta + 1:
            self._report(
                Code.BAD_COUNT,
                f"{batch.count} records with a last offset delta of {batch.last_offset_delta}",
                batch,
            )
        elif batch.is_control and batch.has_producer_id and batch.count:
            self._note_marker(batch)

    def _note_marker(self, batch: RecordBatch) -> None:
        try:
            marker = read_end_transaction_marker(batch.records()[0])
        except CorruptRecordError as error:
            self._report(Code.BAD_BATCH, error.cause, batch)
            return
        if marker is not None and not marker.is_commit:
            self._aborted_ends[batch.last_offset] = batch.producer_id

    def _check_transaction_index(self) -> Iterator[Finding]:
        path = self._path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        if not path.exists():
            return
        try:
            entries = parse_transaction_index(_read_bytes(path), str(path))
        except CorruptRecordError as error:
            yield Finding(Severity.ERROR, Code.TRANSACTION_INDEX_CORRUPT, str(path), error.cause, error.position)
            return
        for entry in entries:
            problem = self._problem_of(entry)
            if problem is not None:
                yield Finding(
                    Severity.ERROR, Code.TRANSACTION_INDEX_MISMATCH, str(path), problem, offset=entry.last_offset
                )

    def _problem_of(self, entry: AbortedTransaction) -> str | None:
        producer_id = self._aborted_ends.get(entry.last_offset)
        if producer_id is None:
            return f"no transaction was aborted at offset {entry.last_offset} of the log"
        if producer_id != entry.producer_id:
            return f"producer {producer_id} aborted at offset {entry.last_offset}, the index says {entry.producer_id}"
        return None


_REPORT_BYTES = 8 * 1024 * 1024
