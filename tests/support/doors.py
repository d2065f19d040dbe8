"""The ways to ask plog what a damaged partition holds, each a small function: what tests/property/test_one_truth.py
holds against each other and against tests/support/log_model.py.

All work on a partition's folder, alone or in a data directory, and call core's functions in this process. Records are
given as (key, value) by offset, ranges of offsets in order and merged where they touch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from core.client.read.cluster_source import ClusterSource
from core.client.read.directory_source import DirectorySource
from core.client.read.record_source import ReadOptions, RecordSource
from core.common.errors import PlogError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.file_names import CLEAN_SHUTDOWN
from core.files.file_records import FileRecords
from core.forensics.damage import DamageKind
from core.forensics.gap_ledger import LOSING_REASONS, Gap, GapLedger, GapReason
from core.forensics.partition_reader import DirectoryReader
from core.forensics.recovery_journal import JOURNAL
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.index.offset_index import OffsetPosition
from core.inspector.check.findings import Finding, Severity
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.segment_dump import SegmentDump
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import FolderPlan, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from core.inspector.stats.offline_compaction import CompactionOptions, CompactionPlan, OfflineCompaction
from core.pipeline.session import Session
from core.records.columns import decode_whole_batches
from core.view.records.log_rows import BEHIND_OPEN, DirectoryRows, LogRow, RowKind
from tests.support.broker import open_broker
from tests.support.log_model import LogModel
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock
from tests.support.record_decoder import Record

Records = dict[int, Record]


@dataclass(frozen=True)
class Account:
    """What `plog gaps` says of a log."""

    start: int
    end: int
    gaps: list[Gap] = field(default_factory=list)

    def ranges(self, *, only: Iterable[GapReason] | None = None) -> list[range]:
        reasons = set(GapReason) if only is None else set(only)
        return [range(gap.start, gap.end) for gap in self.gaps if gap.reason in reasons]


def consume(directory: Path, *, read_committed: bool = False) -> Records:
    """As `plog consume --no-exit-on-error`, from the files."""
    reader = DirectoryReader(directory)
    source = DirectorySource(reader, options=ReadOptions(skips_damage=True, read_committed=read_committed))
    with contextlib.closing(source):
        return _read(source, *reader.partitions)


def served(directory: Path, *, read_committed: bool = False, is_owner: bool = False) -> Records:
    """As the same from `plog serve --read-only`, without the network; of a partition in a data directory. Or from a
    broker that owns the directory, and writes to it.
    """
    partition = _partition(directory)
    with Session(directory=directory.parent).open_client(is_read_only=not is_owner) as client:
        options = ReadOptions(skips_damage=True, read_committed=read_committed)
        return _read(ClusterSource(client, options), partition)


@dataclass(frozen=True)
class Answer:
    """`told`: what `plog consume` says on stderr before it ends with 1; `notes`: what else it says."""

    records: Records
    told: list[str]
    notes: list[str]


def ask_files(directory: Path, *, read_committed: bool, passes_over: bool = True) -> Answer:
    """As `plog consume` from the files, or with `passes_over` the same with `--no-exit-on-error`."""
    reader = DirectoryReader(directory)
    answer = Answer({}, [], [])
    options = _options(answer, read_committed=read_committed, passes_over=passes_over)
    with contextlib.closing(DirectorySource(reader, options=options)) as source:
        return _answered(source, *reader.partitions, answer)


def ask_server(directory: Path, *, read_committed: bool, passes_over: bool = True, is_owner: bool = False) -> Answer:
    """As of `served`."""
    answer = Answer({}, [], [])
    options = _options(answer, read_committed=read_committed, passes_over=passes_over)
    with Session(directory=directory.parent).open_client(is_read_only=not is_owner) as client:
        return _answered(ClusterSource(client, options), _partition(directory), answer)


def _answered(source: RecordSource, partition: TopicPartition, answer: Answer) -> Answer:
    """Without records if an error ends the reading."""
    try:
        answer.records.update(_read(source, partition))
    except PlogError as error:
        answer.told.append(str(error))
    return answer


def _options(answer: Answer, *, read_committed: bool, passes_over: bool) -> ReadOptions:
    return ReadOptions(
        skips_damage=passes_over,
        read_committed=read_committed,
        tell_left_out=answer.told.append,
        note=answer.notes.append,
    )


def _read(source: RecordSource, partition: TopicPartition) -> Records:
    """Records are decoded by columns, as the command does it; asserts that they come in order and once."""
    starts, ends = source.starts([partition]), source.ends([partition])
    found: list[tuple[int, Record]] = []
    for partition, batches in source.read(starts, ends):
        for columns in decode_whole_batches(batches, partial(source.leave_out, partition)):
            rows = zip(columns.offsets.tolist(), columns.keys().to_pylist(), columns.values().to_pylist(), strict=True)
            found += ((offset, (key, value)) for offset, key, value in rows)
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets)), "records come out of order, or twice"
    return {offset: record for offset, record in found if starts[partition] <= offset < ends[partition]}


def standing(path: Path, base_offset: int, end_offset: int) -> list[int]:
    """Positions of the batches that the owner of a log takes for its own in one segment, whose offsets lie in
    [base_offset, end_offset); asserts that they and what is damaged cover the file.
    """
    records = FileRecords(path, FileSystem().open_read)
    with contextlib.closing(records):
        reading = SegmentScanner(records, base_offset, OffsetPosition(end_offset, records.size_bytes))
        found, position, next_offset = [], 0, base_offset
        for item in reading.items():
            if isinstance(item, DamagedBytes):
                start, end, offsets = item.range.position, item.range.end_position, item.range[:2]
                assert offsets[0] == next_offset <= offsets[1], "offsets of damage do not follow"
                next_offset = offsets[1]
            else:
                start, end = item.position, item.position + item.size_bytes
                found.append(start)
                assert next_offset <= item.last_offset < end_offset, "offsets do not rise"
                next_offset = item.last_offset + 1
            assert start == position, "bytes are left out, or given twice"
            position = end
        assert position == records.size_bytes
    return found


def dumped(directory: Path, model: LogModel) -> set[int]:
    """Offsets of the data records of batches that `plog dump-segment` calls valid and that are the log's."""
    log = {(frame.path, frame.position) for frame in model.log}
    found = set()
    for _, path in model.files:
        valid = {row["position"] for row in SegmentDump(path, DumpOptions(), []).rows() if row["is_valid"]}
        for row in SegmentDump(path, DumpOptions(with_records=True), []).rows():
            position = row["batch_position"]
            if position in valid and (path, position) in log and not row["is_control"]:
                found.add(row["offset"])
    return {offset for offset in found if offset >= model.log_start}


def gaps(directory: Path, *, read_committed: bool = False) -> Account:
    """As `plog gaps`; asserts that each offset is named once, and that the sum is right."""
    reader = DirectoryReader(directory)
    (partition,) = reader.partitions
    with contextlib.closing(reader.open(partition)) as log:
        start, end = log.start_offset, log.end_offset
        ledger = GapLedger(log, start, end, read_committed=read_committed)
        found = list(ledger)
    assert all(gap.start < gap.end for gap in found)
    assert all(one.end <= other.start for one, other in pairwise(found)), "gaps overlap"
    assert ledger.records + sum(gap.end - gap.start for gap in found) == end - start
    return Account(start, end, found)


def inspected(directory: Path, back: int = 61) -> tuple[Records, Account]:
    """As the rows of `plog inspect`: its records, and what it calls gaps or marks as hidden from readers of committed
    records. Asserts that the rows cover the log, and that it says the same when it is read from the end, `back` rows at
    a time.
    """
    reader = DirectoryReader(directory)
    (partition,) = reader.partitions
    with contextlib.closing(reader.open(partition)) as log:
        rows = DirectoryRows(log, partition)
        found = [row for row in rows.rows_from(rows.start_offset) if row is not None]
        _ensure_neighbours(found, rows.start_offset, rows.end_offset)
        backwards: list[LogRow] = []
        while (end := backwards[0].offset if backwards else rows.end_offset) > rows.start_offset:
            *_, before = rows.rows_before(end, back)
            assert before, f"nothing is found before offset {end}"
            backwards[:0] = before
        _ensure_neighbours(backwards, rows.start_offset, rows.end_offset)
        assert _merged_rows(found) == _merged_rows(backwards), "the rows are others when they are read backwards"
    records = {row.offset: (row.key, row.value) for row in found if row.kind is RowKind.RECORD}
    gaps = [Gap(row.offset, row.end, reason, row.text) for row in found if (reason := _reason(row)) is not None]
    return records, Account(rows.start_offset, rows.end_offset, gaps)


def _merged_rows(rows: list[LogRow]) -> list[tuple[object, int, int]]:
    """What the rows say, and of which offsets: a gap may be one row or several."""
    found: list[tuple[object, int, int]] = []
    for row in rows:
        said = row.kind, row.reason, row.fate
        if found and found[-1][0] == said and found[-1][2] == row.offset:
            found[-1] = said, found[-1][1], row.end
        else:
            found.append((said, row.offset, row.end))
    return found


def _ensure_neighbours(rows: list[LogRow], start: int, end: int) -> None:
    bounds = [start, *(bound for row in rows for bound in (row.offset, row.end)), end]
    assert bounds[::2] == bounds[1::2], "rows overlap, or leave offsets out"


def _reason(row: LogRow) -> GapReason | None:
    if row.kind is RowKind.MARKER:
        return GapReason.CONTROL
    if row.fate == BEHIND_OPEN:
        return GapReason.OPEN  # gaps does not tell them apart
    return GapReason(row.fate) if row.fate else row.reason


def hidden(account: Account) -> list[range]:
    return account.ranges(only=(GapReason.ABORTED, GapReason.OPEN, GapReason.UNDECIDED))


def losses(account: Account) -> list[range]:
    return merged(account.ranges(only=LOSING_REASONS))


def found(directory: Path) -> list[Finding]:
    """As `plog verify --deep`, which decodes as readers and `gaps` do: of the partition and, where it is in a data
    directory, of that.
    """
    return list(verify(_whole(directory), options=VerifyOptions(is_deep=True)))


def lost_by(findings: Iterable[Finding]) -> list[range]:
    """The offsets that findings call lost or at stake; asserts that each is named once, and counted right. Where a
    transaction's marker was, or a batch that a cleaner emptied, an offset is lost without any record.
    """
    losing = [finding for finding in findings if finding.records != 0 or _is_damage(finding)]
    for finding in losing:
        assert finding.records is not None, f"how many is not told: {finding}"
        assert 0 <= finding.offset <= finding.last_offset, finding
        assert 0 <= finding.records <= finding.last_offset + 1 - finding.offset, finding
        assert finding.severity is Severity.ERROR, f"what loses records is an error: {finding}"
    ranges = sorted((range(f.offset, f.last_offset + 1) for f in losing), key=lambda r: r.start)
    for one, other in pairwise(ranges):
        assert one.stop <= other.start, f"offsets {other.start} to {min(one.stop, other.stop) - 1} are lost twice"
    return merged(ranges)


def _is_damage(finding: Finding) -> bool:
    """Whether bytes are damaged that held the offsets that it names."""
    return finding.code in set(DamageKind) and finding.last_offset >= finding.offset >= 0


def recover(directory: Path) -> list[FolderPlan]:
    """As `plog recover --apply`; what was planned."""
    root = directory.parent
    with Recovery(root) as recovery:
        plans = list(plan_recovery(_whole(directory), RecoveryOptions(), is_locked=True))
        recovery.apply(plans)
    return plans


def undo(directory: Path) -> None:
    """As `plog recover --undo`."""
    root = directory.parent
    with Recovery(root) as recovery:
        recovery.undo([folder for folder in (root, directory) if (folder / JOURNAL).exists()])


def compacted(directory: Path) -> tuple[Records, CompactionPlan]:
    """As `plog compact --apply` of the folder, then `consume`: what is left, and what it says it did. Asserts that so
    many records are gone as it gives reasons for.
    """
    options = CompactionOptions({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    compaction = OfflineCompaction(directory, options, clock=ManualClock(NOW))
    with compaction.locked():
        (partition,) = compaction.partitions()
        plan = compaction.apply(partition)
    if (did := plan.stats) is not None:
        reasons = did.superseded + did.tombstones + did.aborted + did.markers + did.without_key
        assert did.records_before - did.records_after == reasons, f"{did}"
    return consume(directory), plan


def cleaned(directory: Path) -> Records:
    """As a broker that starts after a crash, and whose cleaner works once, leaves a partition of a compacted topic."""
    (directory.parent / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    clock = ManualClock(NOW)
    broker = open_broker(directory.parent, clock=clock, log_cleaner_backoff_ms="1000")
    try:
        clock.advance(1000)
        broker.housekeeping.step()
    finally:
        broker.close()
    return consume(directory)


def contents(directory: Path) -> dict[str, bytes]:
    """Of every file of the folder and beside it, but for the lock's."""
    files = [*directory.iterdir(), *directory.parent.iterdir()]
    return {str(path): path.read_bytes() for path in files if path.is_file() and path.name != ".lock"}


def merged(ranges: Iterable[range]) -> list[range]:
    """Ranges that touch as one."""
    whole: list[range] = []
    for some in ranges:
        if whole and whole[-1].stop == some.start:
            whole[-1] = range(whole[-1].start, some.stop)
        else:
            whole.append(some)
    return whole


def is_in_data_directory(directory: Path) -> bool:
    return (directory.parent / "meta.properties").exists()


def _whole(directory: Path) -> Path:
    return directory.parent if is_in_data_directory(directory) else directory


def _partition(directory: Path) -> TopicPartition:
    (partition,) = DirectoryReader(directory).partitions
    return partition
