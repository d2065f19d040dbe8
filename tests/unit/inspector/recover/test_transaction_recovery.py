"""Transactions whose markers are damaged: what readers, traces and recoveries say of them, and what is left of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.producer_snapshot import iter_producer_snapshot
from core.forensics.gap_ledger import GapLedger, GapReason
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.forensics.recovery_journal import undo
from core.index.transaction_index import parse_transaction_index
from core.inspector.check.verify import verify
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import Action, FolderPlan, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from core.inspector.stats.trace import Tracer
from tests.support import doors
from tests.support.damage import Place, places
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, append_marker, fingerprint, make_batch, open_log

MARKER_CUT = GOLDEN.parent / "damage" / "05-abort-marker-cut"
GOLDEN_COMMITTED = [1, 2, 3, 4, 5, 8, 9, 10, 13, 14, 17, 18, 19, 25, 26, 29, 30, 31, 32, 39, 40, 41, 42, 44, 45, 46,
                    52, 59, 60, 62, 63, 64, 66, 67]  # fmt: skip
"""As Kafka's index has them: without what .txnindex lists, 53 and 55 among it."""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MARKER_CUT, tmp_path / "data")) / "txn_interleaved-0"


def committed(folder: Path, *, passes_over: bool = True) -> tuple[list[int], list[str]]:
    """(offsets that read_committed gives, what was told)."""
    log = PartitionReader(folder)
    told: list[str] = []
    try:
        batches = log.read(
            0,
            log.end_offset,
            on_hole=(lambda hole: told.append(hole.error().message)) if passes_over else None,
        )
        return [record.offset for batch in batches for record in batch.records()], told
    finally:
        log.close()


def plan_of(folder: Path, **options: bool) -> FolderPlan:
    (plan,) = plan_recovery(folder, RecoveryOptions(**options), is_locked=True)
    return plan


def recover(folder: Path, **options: bool) -> None:
    with Recovery(folder.parent) as recovery:
        recovery.apply(list(plan_recovery(folder, RecoveryOptions(**options), is_locked=True)))


def spoil(place: Place, *positions: int) -> None:
    """Flips two bits of each of the bytes: no fix is known."""
    data = bytearray(place.path.read_bytes())
    for position in positions or (30,):
        data[place.position + position] ^= 0x28
        data[place.position + position + 25] ^= 0x81
    place.path.write_bytes(data)


# --- the reproducer


def test_what_was_aborted_stays_so_when_its_marker_is_lost(golden: Path) -> None:
    before = fingerprint(golden)
    index = (golden / f"{0:020}.txnindex").read_bytes()
    plan = plan_of(golden)
    (step,) = [step for step in plan.steps if step.marker is not None]
    assert step.action is Action.WRITE_MARKER
    assert step.marker is not None
    assert (step.marker.producer_id, step.marker.producer_epoch, step.marker.offset) == (40, 5, 61)
    assert "records 53, 55" in step.why
    assert fingerprint(golden) == before
    recover(golden)
    assert list(verify(golden)) == []
    assert committed(golden, passes_over=False)[0] == GOLDEN_COMMITTED
    assert (golden / f"{0:020}.txnindex").read_bytes() == index
    log = open_log(golden, had_clean_shutdown=False)  # everything is made again from the log
    assert log.last_stable_offset == log.log_end_offset == 70
    assert parse_transaction_index((golden / f"{0:020}.txnindex").read_bytes()) == parse_transaction_index(index)
    log.close()


def lost_by(plan: FolderPlan) -> int | None:
    return sum(step.records or 0 for step in plan.steps)


def test_a_marker_is_no_record_that_is_lost(golden: Path) -> None:
    """By its header, or else by the index, which says that a marker stood there."""
    assert [finding.records for finding in verify(golden)] == [0]
    assert lost_by(plan_of(golden)) == 0
    log = golden / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[7022 + 12 : 7022 + 61] = b"#" * 49
    log.write_bytes(data)
    assert [finding.records for finding in verify(golden)] == [1]
    assert lost_by(plan_of(golden)) == 0
    (golden / f"{0:020}.txnindex").unlink()
    assert lost_by(plan_of(golden)) == 1


def test_a_record_is_no_marker_because_one_field_of_its_header_says_so(tmp_path: Path) -> None:
    *_, plain = write(tmp_path / "t-0")
    data = bytearray(plain.path.read_bytes())
    data[plain.position + 22] |= 0x30  # control, transactional
    plain.path.write_bytes(data)
    assert lost_by(plan_of(tmp_path / "t-0")) == 1


def test_without_its_index_nothing_tells_whether_it_was_aborted(golden: Path) -> None:
    (golden / f"{0:020}.txnindex").unlink()
    offsets, told = committed(golden)
    assert not {53, 55} & set(offsets)
    assert any("records 53, 55: aborted or not can't be told" in text for text in told)
    with pytest.raises(CorruptRecordError, match="records 53, 55: aborted or not can't be told"):
        committed(golden, passes_over=False)
    plan = plan_of(golden)
    (doubt,) = plan.doubts
    assert doubt.why.startswith("records 53, 55: aborted or not can't be told; they will be visible to read_committed")
    assert doubt.doubtful == 2
    recover(golden, accepts_visible=True)
    assert list(verify(golden)) == []
    assert committed(golden, passes_over=False)[0] == sorted([*GOLDEN_COMMITTED, 53, 55])
    undo(golden, FileSystem())


def test_trace_and_gaps_say_the_same(golden: Path) -> None:
    partition = TopicPartition("txn_interleaved", 0)
    for is_index_there in (True, False):
        if not is_index_there:
            (golden / f"{0:020}.txnindex").unlink()
        reader = DirectoryReader(golden.parent)
        found = Tracer(reader, NOW).trace(partition, 53).transaction
        assert found is not None
        assert (found.state, found.first_offset) == ("aborted" if is_index_there else "unknown", 53)
        assert found.marker_offset == (61 if is_index_there else None)
        log = reader.open(partition)
        reasons = {offset: gap for gap in GapLedger(log, 0, 70) for offset in range(gap.start, gap.end)}
        assert log.last_stable_offset == 70
        log.close()
        assert reasons[55].reason is (GapReason.ABORTED if is_index_there else GapReason.UNDECIDED)
        assert reasons[61].reason is GapReason.DAMAGED
        assert 62 not in reasons
        assert reasons[65].reason is GapReason.ABORTED


# --- others


def write(folder: Path, *, has_snapshots: bool = True, ends: Sequence[bool] = (True, False, True)) -> list[Place]:
    """Producer 7: offsets 0 to 1 committed, 3 to 4 aborted, 6 to 7 committed (epoch 0, version 1), or with other ends;
    9 is plain.
    """
    log = open_log(folder)
    for number, is_commit in enumerate(ends):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number, "is_transactional": True}
        append(log, make_batch(b"%d" % number, b"x", **fields))
        append_marker(log, 7, is_commit=is_commit)
    append(log, make_batch(b"plain" * 30))
    log.close()
    for path in folder.glob("*.snapshot"):
        if not has_snapshots:
            path.unlink()
    return places(folder)


def lose(place: Place) -> None:
    """Every byte of it, and all transaction indexes."""
    data = place.path.read_bytes()
    place.path.write_bytes(data[: place.position] + data[place.end :])
    for path in place.path.parent.glob("*.txnindex"):
        path.unlink()


def test_a_commit_marker_is_written_again_where_the_index_lists_only_others(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    spoil(write(folder)[5])  # offset 8
    assert committed(folder)[0] == [0, 1, 6, 7, 9]
    (step,) = [step for step in plan_of(folder).steps if step.marker is not None]
    assert f"; {0:020d}.txnindex has no abort there; " in step.why
    recover(folder)
    assert committed(folder, passes_over=False)[0] == [0, 1, 6, 7, 9]
    log = open_log(folder, had_clean_shutdown=False)
    assert log.last_stable_offset == 10, "nothing stays open"
    log.close()


def test_a_transaction_that_nothing_ends_stays_open(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    spoil(write(folder, has_snapshots=False)[5])
    log = PartitionReader(folder)
    assert log.last_stable_offset == 6
    log.close()
    plan = plan_of(folder)
    assert [step.action for step in plan.steps if "records 6 to 7" in step.why] == [Action.LEAVE_OPEN]
    recover(folder)
    assert committed(folder)[0] == [0, 1]
    snapshot = max(folder.glob("*.snapshot"))
    assert [e.current_txn_first_offset for e in iter_producer_snapshot(snapshot)] == [6]


def test_a_cut_like_kafkas_names_what_it_leaves_open(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    spoil(write(folder)[3])  # offset 5, the abort
    plan = plan_of(folder, is_like_kafka=True)
    (step,) = [step for step in plan.steps if step.action is Action.LEAVE_OPEN]
    assert "records 3 to 4" in step.why
    recover(folder, is_like_kafka=True)
    assert committed(folder)[0] == [0, 1]


def test_a_broker_that_reads_its_log_again_keeps_what_the_index_knew(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    spoil(write(folder)[3])
    log = open_log(folder, had_clean_shutdown=False, recovery_point=10)
    assert [tuple(entry)[:3] for entry in log.segments.active.transaction_index.entries()] == [(7, 3, 5)]
    assert log.last_stable_offset == 10
    log.close()


def test_the_index_of_a_lost_last_segment_may_have_listed_what_no_other_lists(tmp_path: Path) -> None:
    """The marker was the segment's only batch; the snapshot at the log's end knows of it."""
    folder = tmp_path / "t-0"
    log = open_log(folder)
    for number in range(2):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number, "is_transactional": True}
        append(log, make_batch(b"%d" % number, b"x", **fields))
        if number == 1:
            log.roll()
        append_marker(log, 7, is_commit=False)
    log.close()
    (tmp_path / ".kafka_cleanshutdown").touch()  # each index was synced
    for path in folder.glob(f"{5:020d}.[!s]*"):
        path.unlink()
    offsets, told = committed(folder)
    assert offsets == []
    assert any("records 3 to 4: aborted or not can't be told" in text for text in told)


# --- offsets that are missing, and not given up


def write_without_marker(folder: Path) -> None:
    """As `write`, without the abort marker at offset 5; another thing is damaged, so that a recovery has something to
    do in the same segment.
    """
    marker, plain = (place for place in write(folder) if place.offset in (5, 9))
    spoil(plain, 70)
    lose(marker)


def seen(folder: Path) -> tuple[list[int], list[int], list[int]]:
    """What files, a read-only server and an owner give of what is committed."""
    of_files = sorted(doors.consume(folder, read_committed=True))
    served, owned = (sorted(doors.served(folder, read_committed=True, is_owner=one)) for one in (False, True))
    return of_files, served, owned


def test_a_plan_that_leaves_offsets_missing_shows_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_without_marker(folder)
    plan = plan_of(folder)
    assert plan.is_needed
    assert plan.doubts == []
    (step,) = [step for step in plan.steps if "records 3 to 4" in step.why]
    assert (step.action, step.doubtful) == (Action.NONE, 2)
    assert "readers of the files leave them out, a broker goes by its producer's next marker" in step.why
    recover(folder)
    assert list(folder.glob("*.txnindex.before*")) == []
    of_files, served, owned = seen(folder)
    assert of_files == served == [0, 1, 6, 7]
    assert owned == [0, 1, 3, 4, 6, 7]


def test_given_up_they_are_visible_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_without_marker(folder)
    (doubt,) = plan_of(folder, accepts_missing=True).doubts
    assert "records 3 to 4: aborted or not can't be told; they will be visible" in doubt.why
    recover(folder, accepts_missing=True, accepts_visible=True)
    assert seen(folder) == ([0, 1, 3, 4, 6, 7],) * 3


def test_an_index_that_a_recovery_made_proves_no_commit(tmp_path: Path) -> None:
    """It was made from the log that had lost the marker; it lists another abort, as of a whole index's."""
    folder = tmp_path / "t-0"
    lose(next(place for place in write(folder, ends=(False, False, True)) if place.offset == 5))
    assert committed(folder)[0] == [6, 7, 9]
    recover(folder)
    index = parse_transaction_index((folder / f"{0:020}.txnindex").read_bytes())
    assert [entry.last_offset for entry in index] == [2]
    offsets, told = committed(folder)
    assert offsets == [6, 7, 9]
    assert any("a recovery made 00000000000000000000.txnindex again from the log" in text for text in told)
