"""Logs put together batch by batch, and what the commands say of them: each of these was said wrongly once."""

from __future__ import annotations

import contextlib
import shutil
import struct
import zlib
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from core.common.topic_partition import TopicPartition
from core.forensics.gap_ledger import GapReason
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import Action, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from core.inspector.stats.log_diff import LogDiff
from core.inspector.stats.log_stats import collect_stats, find_log
from core.inspector.stats.trace import Tracer
from core.records.checksum import crc32c
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record import encode_record
from core.records.record_batch_builder import build_batch
from tests.support import doors
from tests.support.golden import GOLDEN, case
from tests.support.log_model import LogModel
from tests.support.logs import NOW, append, make_batch, open_log

OPEN = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def batch(base_offset: int, records: int = 2, *, count: int | None = None, **fields: object) -> bytes:
    """`count`: what its header says instead of how many there are."""
    section = b"".join(encode_record(n, 0, b"key", b"%d" % (base_offset + n)) for n in range(records))
    data = build_batch(section, count=records, base_timestamp=NOW, max_timestamp=NOW, base_offset=base_offset, **fields)
    if count is None:
        return data
    changed = bytearray(
        build_batch(section, count=count, base_timestamp=NOW, max_timestamp=NOW, base_offset=base_offset)
    )
    return with_delta(changed, records - 1)


def old_message(offset: int) -> bytes:
    """A message of magic 0 with its offset."""
    body = b"\0\0" + struct.pack(">i3si3s", 3, b"key", 3, b"%03d" % offset)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def with_delta(data: bytearray, last_offset_delta: int) -> bytes:
    """With another last offset delta, and the checksum that fits."""
    data[23:27] = last_offset_delta.to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def damaged(data: bytes) -> bytes:
    return data[:-3] + b"#!?"


def at_offset(data: bytes, base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + data[8:]


def write(folder: Path, logs: dict[int, Iterable[bytes]]) -> Path:
    folder.mkdir(parents=True)
    for base_offset, batches in logs.items():
        (folder / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
    return folder


def recover(folder: Path, options: RecoveryOptions) -> None:
    with Recovery(folder.parent) as recovery:
        recovery.apply(list(plan_recovery(folder, options, is_locked=True)))


@pytest.mark.parametrize("base", [0, 1 << 41, (1 << 62) - 100])
def test_transactions_end_whatever_their_offsets(tmp_path: Path, base: int) -> None:
    marker = end_transaction_batch(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        producer_id=7, producer_epoch=0, timestamp=NOW, base_offset=base + 21,
    )  # fmt: skip
    whole = [batch(base, 1, **OPEN), damaged(batch(base + 1, 20)), marker, batch(base + 22, 1)]
    folder = write(tmp_path / "t-0", {base: whole})
    assert sorted(doors.consume(folder, read_committed=True)) == [base, base + 22]


def test_more_records_than_offsets_prove_no_compaction(tmp_path: Path) -> None:
    sound = [batch(2 * number) for number in range(3)]
    folder = write(tmp_path / "t-0", {0: [*sound, batch(6, 1, count=2), batch(20)], 22: [batch(22)]})
    missing = [f for f in verify(folder) if f.code is Code.OFFSETS_MISSING]
    assert [(f.offset, f.last_offset) for f in missing] == [(7, 19)]
    unknown = [gap for gap in doors.gaps(folder).gaps if gap.reason is GapReason.UNKNOWN]
    assert [(gap.start, gap.end) for gap in unknown] == [(7, 20)]


def test_a_flipped_batch_that_stands_twice_is_mended_once(tmp_path: Path) -> None:
    flipped = at_offset(batch(10), 10 ^ 64)
    before, after = ([batch(2 * n) for n in numbers] for numbers in (range(5), range(6, 20)))
    folder = write(tmp_path / "t-0", {0: [*before, flipped, flipped, *after]})
    recover(folder, RecoveryOptions(fixes_bits=True))
    assert sorted(doors.consume(folder)) == list(range(40))
    assert list(verify(folder)) == []


def test_stats_and_diff_know_what_was_given_up(tmp_path: Path) -> None:
    whole = [batch(2 * number) for number in range(10)]
    folder = write(tmp_path / "t-0", {0: [*whole[:4], damaged(whole[4]), *whole[5:]]})
    assert collect_stats(find_log(folder), NOW).findings
    recover(folder, RecoveryOptions())
    assert list(verify(folder)) == []
    stats = collect_stats(find_log(folder), NOW)
    assert (stats.findings, stats.records, stats.missing_offsets) == ([], 18, 2)
    diff = LogDiff(folder, folder)
    assert not list(diff)
    assert not diff.findings


def test_a_batch_that_stands_elsewhere_is_shown_where_it_stands(tmp_path: Path) -> None:
    whole = [batch(2 * number) for number in range(20)]
    folder = write(tmp_path / "t-0", {0: [*whole[:10], whole[14]], 20: [*whole[10:14], *whole[15:]]})
    found = Tracer(DirectoryReader(tmp_path), NOW).trace(TopicPartition("t", 0), 28)
    assert found.file == folder / f"{0:020d}.log"
    assert found.batch is not None
    assert found.batch.position == sum(map(len, whole[:10]))


def test_the_last_record_of_a_key_is_doubted_where_something_after_it_is_damaged(tmp_path: Path) -> None:
    whole = [batch(2 * number) for number in range(4)]
    write(tmp_path / "t-0", {0: [*whole[:3], damaged(whole[3])], 8: [batch(8)]})
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    tracer = Tracer(DirectoryReader(tmp_path), NOW)
    assert tracer.trace(TopicPartition("t", 0), 3).record is not None, "what comes after it is no reason to fail"


def test_strays_are_counted_without_being_read_at_once(tmp_path: Path) -> None:
    whole = [batch(2 * number) for number in range(10)]
    strays = [at_offset(batch(2 * number), 4000 + 2 * number) for number in range(5)]
    folder = write(tmp_path / "t-0", {0: [*whole[:5], *strays, *whole[5:]], 20: [batch(20)]})
    steps = [step for plan in plan_recovery(folder, RecoveryOptions()) for step in plan.steps]
    assert sum(step.given_up for step in steps if step.action is Action.CUT_OUT) == 10


@pytest.mark.parametrize("known_end", [None, 40])
def test_batches_from_elsewhere_do_not_go_after_an_end_that_is_sound(tmp_path: Path, known_end: int | None) -> None:
    """A page of another log over the first one of ours: of what lies before the last index entry, readers of the end
    know nothing, and its batches fitted after it.
    """
    whole = [batch(2 * number) for number in range(20)]
    others = [batch(2 * number, producer_id=9, base_sequence=0) for number in (18, 20, 21)]
    folder = write(tmp_path / "t-0", {0: [*others, *whole[3:]]})
    position = sum(map(len, [*others, *whole[3:10]]))
    (folder / "00000000000000000000.index").write_bytes(struct.pack(">ii", 21, position))
    if known_end is not None:
        (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {known_end}\n")
    account = doors.gaps(folder)
    assert (account.end, sorted(doors.consume(folder))) == (40, list(range(6, 40)))
    assert doors.lost_by(verify(folder)) == [range(6)]
    recover(folder, RecoveryOptions())
    assert sorted(doors.consume(folder)) == list(range(6, 40))


def test_batches_from_elsewhere_go_after_the_end_up_to_where_the_log_is_known_to_reach(tmp_path: Path) -> None:
    whole = [batch(2 * number) for number in range(20)]
    moved = [*whole[:3], *whole[18:], *whole[5:18]]
    folder = write(tmp_path / "t-0", {0: moved})
    (folder / "00000000000000000000.index").write_bytes(struct.pack(">ii", 21, sum(map(len, moved[:10]))))
    (folder / "00000000000000000040.snapshot").touch()
    for _ in range(2):
        assert sorted(doors.consume(folder)) == [*range(6), *range(10, 40)]
        recover(folder, RecoveryOptions())


@pytest.mark.parametrize("is_compacted", [True, False])
def test_damage_in_a_file_that_changed_places_costs_the_other_ones_offsets(
    tmp_path: Path, *, is_compacted: bool
) -> None:
    """What is left of the first segment, nothing, stands under the name of the second: the cleaner did not take it."""
    last = with_delta(bytearray(batch(40, 1)), 1) if is_compacted else batch(40)
    second = [*(batch(2 * number) for number in range(10, 20)), last]
    folder = write(tmp_path / "t-0", {0: second, 20: [bytes(600)], 42: [batch(42)]})
    assert doors.losses(doors.gaps(folder)) == doors.lost_by(verify(folder)) == [range(20)]
    assert any("zeroed" in text for text in doors.ask_files(folder, read_committed=False).told)


def test_a_reading_that_begins_late_finds_what_stands_in_an_earlier_file(tmp_path: Path) -> None:
    """The files of two segments changed places, of which a cleaner emptied the first: the second looked compacted."""
    thinned = with_delta(bytearray(batch(10, 1)), 1)
    folder = write(tmp_path / "t-0", {0: [batch(0), thinned], 12: [batch(22), batch(24)], 20: [], 30: [batch(30)]})
    for start, found in ((0, [0, 1, 10, 22]), (20, [22, 23, 24, 25]), (23, [23, 24, 25, 30]), (26, [30, 31])):
        with contextlib.closing(PartitionReader(folder)) as reader:
            given = [r.offset for b in reader.read(start, 99) for r in b.records() if r.offset >= start]
        assert given[:4] == found


@pytest.mark.parametrize("is_legacy", [False, True])
def test_after_damage_in_a_file_that_changed_places_its_batches_are_found(tmp_path: Path, *, is_legacy: bool) -> None:
    """They go on from those before the damage, though the file's name says otherwise."""
    whole = [old_message(n) if is_legacy else batch(n, 1) for n in range(30)]
    logs: dict[int, Iterable[bytes]] = {
        0: whole[:10],
        10: [*whole[20:23], b"\xa5" * 700, *whole[25:]],
        20: whole[10:20],
    }
    folder = write(tmp_path / "t-0", logs)
    sound = [*range(23), *range(25, 30)]
    assert sorted(doors.consume(folder)) == sorted(LogModel(folder).records) == sound
    recover(folder, RecoveryOptions())
    assert sorted(doors.consume(folder)) == sound


@pytest.mark.parametrize("is_known", [False, True])
def test_an_empty_segment_that_nothing_else_knows_of_proves_no_compaction(tmp_path: Path, *, is_known: bool) -> None:
    """Kafka notes the producers, and the recovery point, wherever it begins a segment; else somebody made a file."""
    thinned = with_delta(bytearray(batch(4, 1)), 1)
    folder = write(tmp_path / "t-0", {0: [batch(0), thinned], 8: [batch(8)], 1000: []})
    if is_known:
        (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1000\n")
    missing = [range(10, 1000)] * (not is_known)
    assert doors.losses(doors.gaps(folder)) == doors.lost_by(verify(folder)) == missing
    assert bool(doors.ask_files(folder, read_committed=False).told) == (not is_known)
    shutil.copy(GOLDEN / "_root" / "meta.properties", tmp_path)
    for is_owner in (False, True):
        answer = doors.ask_server(folder, read_committed=False, is_owner=is_owner)
        assert (sorted(answer.records), bool(answer.told)) == ([0, 1, 4, 8, 9], not is_known)


# --- a log of another partition


def test_a_log_whose_indexes_are_of_another_one_is_named_and_its_indexes_stay(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"]
    for number, folder in enumerate(folders):
        log = open_log(folder, index_interval_bytes=100)
        for n in range(20):
            append(log, make_batch(b"x" * (20 + 15 * number), timestamp=NOW + 10 * n + number))
        log.close()
    (folders[0] / f"{0:020d}.log").write_bytes((folders[1] / f"{0:020d}.log").read_bytes())
    found = list(verify(folders[0]))
    assert [(one.code, Path(one.path).name) for one in found] == [(Code.LOG_MISMATCH, f"{0:020d}.log")]
    assert "may belong to another partition" in found[0].message
    (plan,) = plan_recovery(folders[0], RecoveryOptions())
    assert [step.action for step in plan.steps] == [Action.NONE]


def test_logs_that_changed_names_are_out_of_order_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, index_interval_bytes=100, segment_bytes=1000)
    for n in range(30):
        append(log, make_batch(b"x" * (20 + n), timestamp=NOW + 10 * n))
    log.close()
    first, second = sorted(folder.glob("*.log"))[:2]
    first.rename(folder / "aside")
    second.rename(first)
    (folder / "aside").rename(second)
    found = list(verify(folder))
    assert [one.code for one in found] == [Code.BATCH_OUT_OF_ORDER] * 2
    (plan,) = plan_recovery(folder, RecoveryOptions())
    assert {step.action for step in plan.steps} == {Action.PUT_IN_ORDER, Action.REBUILD}
    recover(folder, RecoveryOptions())
    assert list(verify(folder)) == []


def test_an_index_alone_that_fits_nowhere_is_the_index_that_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, index_interval_bytes=100)
    for n in range(20):
        append(log, make_batch(b"x" * 20, timestamp=NOW + 10 * n))
    log.close()
    index = folder / f"{0:020d}.index"
    data = bytearray(index.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    index.write_bytes(data)
    assert {one.code for one in verify(folder)} == {Code.INDEX_MISMATCH}


# --- a log start that nothing bears out


@pytest.fixture
def beyond_the_end(tmp_path: Path) -> Path:
    """20 records, stopped cleanly, of which the checkpoint says that they begin at 70."""
    folder = write(tmp_path / "t-0", {0: [batch(2 * number) for number in range(10)]})
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nother 0 3\nt 0 70\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    return folder


TOLD = "line 4: t-0 begins at offset 70, it says, but the log was stopped cleanly and ends at offset 20"


def test_stats_diff_and_trace_name_a_log_start_beyond_the_end(beyond_the_end: Path) -> None:
    stats = collect_stats(find_log(beyond_the_end), NOW)
    diff = LogDiff(beyond_the_end, beyond_the_end)
    assert not list(diff)
    assert stats.records == diff.same_records == 20
    for findings in (stats.findings, (diff.findings or [])[:1]):
        assert [(f.code, f.position, f.end_position) for f in findings] == [(Code.LOG_START_WRONG, 14, 20)]
        assert findings[0].message.startswith(TOLD)
    traced = Tracer(DirectoryReader(beyond_the_end.parent), NOW).trace(TopicPartition("t", 0), 7)
    assert traced.record is not None
    assert str(traced.wrong_start).startswith(TOLD)


@pytest.mark.parametrize("damaged_at", [None, 4], ids=["sound", "damaged"])
@pytest.mark.parametrize(
    ("epochs", "start", "message", "starts", "left"),
    [
        (None, 70, TOLD, "0\n1\nother 0 3\n", range(20)),
        ("0\n1\n0 4\n", 14, "t-0 begins at offset 14, it says, but leader-epoch-checkpoint says offset 4",
         "0\n2\nother 0 3\nt 0 4\n", range(4, 20)),
    ],
    ids=["beyond the end", "not that of the leader epochs"],
)  # fmt: skip
@pytest.mark.parametrize("is_alone", [True, False], ids=["its folder", "the directory"])
def test_recover_mends_a_log_start_that_others_contradict_and_puts_it_back(
    beyond_the_end: Path, damaged_at: int | None, epochs: str | None, start: int, message: str, starts: str,
    left: range, *, is_alone: bool,
) -> None:  # fmt: skip
    """What DeleteRecords deleted does not come back: the number is the one that the epochs have, or it is taken out."""
    root = beyond_the_end.parent
    checkpoint = root / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n2\nother 0 3\nt 0 {start}\n")
    if epochs:
        (beyond_the_end / "leader-epoch-checkpoint").write_text(epochs)
    whole = [batch(2 * number) for number in range(10)]
    if damaged_at is not None:
        log = beyond_the_end / f"{0:020d}.log"
        log.write_bytes(b"".join([*whole[:damaged_at], damaged(whole[damaged_at]), *whole[damaged_at + 1 :]]))
    left_over = [offset for offset in left if damaged_at is None or offset // 2 != damaged_at]
    path = beyond_the_end if is_alone else root
    found = next(one for one in verify(path) if one.code is Code.LOG_START_WRONG)
    assert message in found.message
    assert not epochs or found.offset == 4
    assert sorted(doors.consume(beyond_the_end)) == left_over
    before = doors.contents(beyond_the_end)
    with Recovery(root) as recovery:
        recovery.apply(list(plan_recovery(path, RecoveryOptions(), is_locked=True)))
    assert checkpoint.read_text() == starts
    assert list(verify(path)) == []
    assert sorted(doors.consume(beyond_the_end)) == left_over
    with Recovery(root) as recovery:
        recovery.undo([beyond_the_end] if is_alone else [root, beyond_the_end])
    assert doors.contents(beyond_the_end) == before


def test_a_log_start_that_nothing_contradicts_is_believed(beyond_the_end: Path) -> None:
    """Or beyond the end, if a recovery gave the end up."""
    root = beyond_the_end.parent
    for lost in ("[[20, 80]]", "[[20, null]]"):
        (beyond_the_end / "recovery-journal").write_text(f'{{"run": 1, "lost": {lost}}}\n{{"run": 1, "logs": {{}}}}\n')
        assert Code.LOG_START_WRONG not in {finding.code for finding in verify(beyond_the_end)}
        assert doors.consume(beyond_the_end) == {}
    (beyond_the_end / "recovery-journal").unlink()
    (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 14\n")
    for epochs in (None, "0\n0\n", "0\n1\n3 14\n", "0\n1\n3 16\n", "torn"):
        if epochs is not None:
            (beyond_the_end / "leader-epoch-checkpoint").write_text(epochs)
        assert Code.LOG_START_WRONG not in {finding.code for finding in verify(root)}, epochs
        assert sorted(doors.consume(beyond_the_end)) == list(range(14, 20)), epochs


def test_a_log_under_a_wholly_wrong_name_is_called_so(tmp_path: Path) -> None:
    """And not a copy of what other files hold: there are none. A copy is one."""
    folder = write(tmp_path / "t-0", {7000: [batch(2 * number) for number in range(10)]})
    (finding,) = [one for one in verify(folder) if "index" not in one.code]
    assert (finding.code, finding.offset, finding.last_offset) == (Code.SEGMENT_MISNAMED, 0, 19)
    plan = list(plan_recovery(folder, RecoveryOptions()))
    assert [step.given_up for one in plan for step in one.steps if step.action is Action.CUT_OUT] == [20]
    recover(folder, RecoveryOptions())
    assert list(verify(folder)) == []
    whole = [batch(2 * number) for number in range(10)]
    copied = write(tmp_path / "u-0", {0: whole, 7000: whole})
    assert [one.code for one in verify(copied) if "index" not in one.code] == [Code.BATCH_REPEATED]


def test_a_file_that_begins_where_the_log_ends_is_its_last_segment_whatever_it_holds(tmp_path: Path) -> None:
    """So damage in it is named, and a recovery keeps it. Under another name it is a copy, which goes as a whole."""
    for name, codes, left in ((4, [Code.BATCH_REPEATED, Code.GARBAGE], {0, 4}), (6, [Code.BATCH_REPEATED], {0})):
        folder = write(tmp_path / f"t-{name}", {0: [batch(0), batch(2)], name: [batch(0), b"junk" * 30]})
        assert sorted(one.code for one in verify(folder) if "index" not in one.code) == codes
        recover(folder, RecoveryOptions())
        assert {int(path.stem) for path in folder.glob("*.log")} == left
        assert list(verify(folder)) == []
        assert sorted(doors.consume(folder)) == [0, 1, 2, 3]


def test_a_snapshot_that_contradicts_what_is_left_of_a_log_is_made_again_at_once(tmp_path: Path) -> None:
    """The damage after it had kept it from being judged, and a second run was needed."""
    folder = shutil.copytree(GOLDEN / "multisegment_zstd", tmp_path / "t-0")
    shutil.copy(folder / f"{257:020d}.snapshot", folder / f"{344:020d}.snapshot")
    with (folder / f"{344:020d}.log").open("r+b") as file:
        file.write(b"\xd0" * 266)
    recover(folder, RecoveryOptions(is_like_kafka=True))
    assert [one.code for one in verify(folder)] == []


# --- names that nothing reads


def test_copies_under_names_that_nothing_reads_are_named(tmp_path: Path) -> None:
    """Kafka 4.3.1 does not start beside either: "is not in the form of topic-partition", NumberFormatException."""
    folder = write(tmp_path / "t-0", {0: [batch(0)]})
    aside = f"t-0.{'0' * 32}-"
    for name in ("t-0.bak", "t-0 copy", f"{aside}delete", f"{aside}stray", f"{aside}future"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(batch(0))
    (tmp_path / "lost+found").mkdir()
    copy = folder / f"{0:020d} (copy).log"
    copy.write_bytes(batch(0))
    found = {(one.code, one.path) for one in verify(tmp_path) if "index" not in one.code}
    assert found == {
        (Code.FOLDER_MISNAMED, str(tmp_path / "t-0.bak")),
        (Code.FOLDER_MISNAMED, str(tmp_path / "t-0 copy")),
        (Code.SEGMENT_MISNAMED, str(copy)),
    }
    recover(folder, RecoveryOptions())
    assert {one.code for one in verify(tmp_path)} == {Code.FOLDER_MISNAMED}
    assert copy.with_name(f"{copy.name}.before-recovery-1").read_bytes() == batch(0)


@pytest.mark.parametrize("name", ["v0_none_java", "v1_none_kcat", "v1_multisegment"])
def test_old_messages_are_found_after_a_file_s_first_sector_is_lost(tmp_path: Path, name: str) -> None:
    """No batch before the damage says that the file is of an old format."""
    folder = shutil.copytree(GOLDEN / name, tmp_path / "t-0")
    log = folder / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    hit, position = set[int](), 0
    while position < 512:
        offset, length = struct.unpack_from(">qi", data, position)
        hit.add(offset)
        position += 12 + length
    data[:512] = bytes(512)
    log.write_bytes(data)
    left = {record.offset for record in case(name).records()} - hit
    assert set(doors.consume(folder)) == left
    assert doors.losses(doors.gaps(folder)) == doors.lost_by(doors.found(folder)) == [range(len(hit))]
    recover(folder, RecoveryOptions())
    assert set(doors.consume(folder)) == left


def test_a_marker_in_a_segment_that_is_lost_from_a_compacted_log_is_missed(tmp_path: Path) -> None:
    """Its offsets look compacted, but a cleaner takes no marker of a transaction that still has records. Record 43 was
    committed in the lost segment by producer 62, whose epoch is higher after it; its next marker is of an abort.
    """
    root = tmp_path / "data"
    folder = shutil.copytree(GOLDEN / "compacted_txn", root / "compacted_txn-0")
    for name in ("meta.properties", "cleaner-offset-checkpoint"):
        shutil.copy(GOLDEN / "_root" / name, root)
    for path in folder.glob("00000000000000000047.*"):
        path.unlink()
    left = {r.offset for r in case("compacted_txn").committed_records() if not 47 <= r.offset < 92} - {43}
    for ask in (doors.ask_files, doors.ask_server):
        answer = ask(folder, read_committed=True)
        assert set(answer.records) == left
        assert any("39 to 46" in text or "43" in text for text in answer.told), answer.told
    undecided = doors.gaps(folder, read_committed=True).ranges(only=[GapReason.UNDECIDED])
    assert undecided == [range(39, 47)]
    assert [(f.code, f.offset) for f in verify(folder)] == [(Code.TRANSACTION_ORDER, 92)]


def test_an_epoch_that_rises_in_a_transaction_without_a_hole_ends_nothing(tmp_path: Path) -> None:
    """As a transaction goes on that hangs: no marker can be missing, and Kafka's readers go by the next one."""
    marker = end_transaction_batch(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        producer_id=7, producer_epoch=1, timestamp=NOW, base_offset=4,
    )  # fmt: skip
    folder = write(tmp_path / "t-0", {0: [batch(0, **OPEN), batch(2, **{**OPEN, "producer_epoch": 1}), marker]})
    assert doors.ask_files(folder, read_committed=True).told == []
    assert sorted(doors.consume(folder, read_committed=True)) == [0, 1, 2, 3]
    assert {f.code for f in verify(folder)} <= {Code.INDEX_MISSING, Code.TIME_INDEX_MISSING}


@pytest.mark.parametrize("name", ["txn_multisegment", "v2_txn_tv1", "compacted_txn"])
def test_the_index_before_a_lost_last_segment_says_nothing_of_it(tmp_path: Path, name: str) -> None:
    """The lost one had its own, which may have listed what the transactions at the end of the other became. After a
    clean stop, which synced all indexes.
    """
    (tmp_path / ".kafka_cleanshutdown").touch()
    folder = shutil.copytree(GOLDEN / name, tmp_path / "t-0")
    last = max(folder.glob("*.log"))
    for path in folder.glob(f"{last.stem}.*"):
        path.unlink()
    golden = case(name)
    answer = doors.ask_files(folder, read_committed=True)
    shown, all_shown = set(answer.records), set(doors.consume(folder))
    committed = {record.offset for record in golden.committed_records()}
    assert all_shown == {r.offset for r in golden.records() if r.offset < int(last.stem)}
    assert not shown - committed
    undecided = doors.gaps(folder, read_committed=True).ranges(only=[GapReason.UNDECIDED, GapReason.OPEN])
    assert committed & all_shown <= shown.union(*undecided)
    assert answer.told


def test_a_log_that_is_out_of_order_and_damaged_is_not_cut_like_kafka(tmp_path: Path) -> None:
    """It was cut in a file whose other batches were then dropped, without being counted."""
    folder = shutil.copytree(GOLDEN / "v1_multisegment", tmp_path / "t-0")
    for path in folder.glob("00000000000000000147.*"):
        path.rename(path.with_name("00000000000000000313" + path.suffix))
    log = folder / "00000000000000000313.log"
    log.write_bytes(log.read_bytes()[:4650] + bytes(20) + log.read_bytes()[4670:])
    before, left = doors.contents(folder), doors.consume(folder)
    (plan,) = plan_recovery(folder, RecoveryOptions(is_like_kafka=True, accepts_missing=True))
    assert {step.action for step in plan.steps} == {Action.NONE}
    recover(folder, RecoveryOptions(is_like_kafka=True, accepts_missing=True))
    assert doors.contents(folder) == before
    recover(folder, RecoveryOptions(accepts_missing=True))
    assert doors.consume(folder) == left
    assert not doors.found(folder)


def root_of(tmp_path: Path, name: str, metadata: str = "_root") -> tuple[Path, Path]:
    """A data directory that was stopped cleanly, and a partition of Kafka's in it, which no metadata log knows."""
    root = tmp_path / "data"
    folder = shutil.copytree(GOLDEN / name, root / f"{name}-0")
    (folder / "partition.metadata").unlink(missing_ok=True)
    shutil.copy(GOLDEN / metadata / "meta.properties", root)
    (root / ".kafka_cleanshutdown").touch()
    return root, folder


@pytest.mark.parametrize("is_clean", [True, False], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("is_owner", [True, False], ids=["an owner", "a reader"])
def test_clients_of_a_server_are_told_of_offsets_missing_between_segments(
    tmp_path: Path, *, is_clean: bool, is_owner: bool
) -> None:
    """The middle one was cut where a batch ends."""
    root, folder = root_of(tmp_path, "v2_txn_tv1", "_root3")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nv2_txn_tv1 0 85\n")
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    with (folder / "00000000000000000033.log").open("r+b") as file:
        file.truncate(1363)
    answer = doors.ask_server(folder, read_committed=False, is_owner=is_owner)
    assert {r.offset for r in case("v2_txn_tv1").records()} - set(range(46, 69)) == answer.records.keys()
    assert [text.partition(" are ")[0] for text in answer.told] == ["v2_txn_tv1-0: offsets 46 to 68"]


def test_a_server_that_only_reads_tells_of_a_damaged_end_whatever_is_lost_beside_it(tmp_path: Path) -> None:
    """After a clean stop: without an index, or a recovery point, the log is read as after a crash, and the batch was
    taken for one that a crash cut.
    """
    name = "codec_gzip_rdkafka"
    points = (f"0\n1\n{name} 0 45\n", f"0\n1\n{name} 0 -45 1\n", None)
    for number, (point, gone) in enumerate(product(points, (".index", ".timeindex", ".nothing"))):
        root, folder = root_of(tmp_path / str(number), name)
        if point is not None:
            (root / "recovery-point-offset-checkpoint").write_text(point)
        log = folder / "00000000000000000000.log"
        log.with_suffix(gone).unlink(missing_ok=True)
        data = bytearray(log.read_bytes())
        data[1969] ^= 0x80
        log.write_bytes(data)
        answer = doors.ask_server(folder, read_committed=False)
        assert sorted(answer.records) == list(range(40)), (point, gone)
        assert any("40 to 44" in text for text in answer.told), (point, gone, answer.told)


@pytest.mark.parametrize("name", ["v1_gzip_compacted", "v1_none_compacted"])
def test_a_server_tells_of_a_lost_segment_of_an_old_format_as_the_files_do(tmp_path: Path, name: str) -> None:
    """A compressed message of an old format states its last offset: what is missing before it stands in no header."""
    root, folder = root_of(tmp_path, name, "_root3")
    for checkpoint in ("cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"):
        lines = [line for line in (GOLDEN / "_root3" / checkpoint).read_text().splitlines()[2:] if f"{name} " in line]
        (root / checkpoint).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    last = sorted(folder.glob("*.log"))[-2]
    last.rename(last.with_name(f"{int(last.stem) - 1:020d}.log"))
    assert doors.ask_files(folder, read_committed=False).told
    assert doors.ask_server(folder, read_committed=False).told


@pytest.mark.parametrize(("base", "new_base", "lost"), [(217, 223, range(217, 223)), (178, 187, range(0))])
def test_an_owner_tells_of_batches_below_the_name_of_their_segment(
    tmp_path: Path, base: int, new_base: int, lost: range
) -> None:
    """In a compacted topic the hole before the segment passed for the cleaner's. Where the segment is not the last, it
    gives them all the same.
    """
    name = "compacted_tombstones_kept"
    folder = shutil.copytree(GOLDEN / name, tmp_path / f"{name}-0")
    shutil.copytree(GOLDEN / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    shutil.copy(GOLDEN / "_root" / "meta.properties", tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{name} 0 217\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    for path in folder.glob(f"{base:020d}.*"):
        path.rename(path.with_name(f"{new_base:020d}{path.suffix}"))
    answer = doors.ask_server(folder, read_committed=False, is_owner=True)
    assert answer.records.keys() == {r.offset for r in case(name).records()} - set(lost)
    assert bool(answer.told) == bool(lost)


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_server_asks_the_directory_s_metadata_whether_segments_may_be_on_another_store(
    tmp_path: Path, *, has_metadata: bool
) -> None:
    """As the files do; the metadata log that it makes for itself knows of no such topic."""
    folder = shutil.copytree(GOLDEN / "deleterecords", tmp_path / "deleterecords-0")
    shutil.copy(GOLDEN / "_root" / "meta.properties", tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ndeleterecords 0 180\n")
    if has_metadata:
        shutil.copytree(GOLDEN / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    for path in folder.glob("00000000000000000163.*"):
        path.unlink()
    for ask in (doors.ask_files, doors.ask_server):
        answer = ask(folder, read_committed=False)
        assert sorted(answer.records) == list(range(318, 330))
        assert [text.partition(" are ")[0] for text in answer.told] == has_metadata * [
            "deleterecords-0: offsets 180 to 317"
        ]
