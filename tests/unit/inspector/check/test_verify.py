"""Rules between batches, and between the files of a folder: each broken once, each finding where it belongs."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.common.salvaging_file import SalvagingFile
from core.files.directory_lock import DirectoryLock
from core.files.file_names import META_PROPERTIES
from core.forensics.partition_reader import PartitionReader
from core.inspector.check import segment_check
from core.inspector.check.findings import Code, Finding
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.recover.recovery_plan import Action, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from core.records.checksum import crc32c_by_table
from core.records.record_batch import set_base_offset_and_leader_epoch
from tests.support.damage import patch, places
from tests.support.logs import append, make_batch, make_marker, open_log

PRODUCER = {"producer_id": 7, "producer_epoch": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten batches of an idempotent producer, two records each, over several segments; offsets 0 to 19."""
    directory = tmp_path / "data" / "t-0"
    log = open_log(directory, segment_bytes=600, index_interval_bytes=100)
    for number in range(10):
        append(log, make_batch(b"a" * 40, b"b" * 40, base_sequence=2 * number, **PRODUCER))
    log.close()
    assert len(list(directory.glob("*.log"))) > 2
    return directory


def codes(path: Path, *, is_deep: bool = False) -> list[Code]:
    return [finding.code for finding in verify(path, options=VerifyOptions(is_deep=is_deep))]


def only(path: Path, *, is_deep: bool = False) -> Finding:
    (finding,) = verify(path, options=VerifyOptions(is_deep=is_deep))
    return finding


def rewrite(folder: Path, number: int, position: int, data: bytes) -> None:
    """Changes a batch, and its checksum with it."""
    place = places(folder)[number]
    patch(place.path, place.position + position, data)
    whole = place.path.read_bytes()[place.position : place.end]
    patch(place.path, place.position + 17, struct.pack(">I", crc32c_by_table(whole[21:])))


# --- one file


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000006.index"])
def test_a_sound_file_is_read_once(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And told of once; a damaged one is read again, and told of no more than before."""
    path = folder / name
    assert path.exists()
    log = path.with_suffix(".log")
    with monkeypatch.context() as patched:
        patched.setattr("core.forensics.log_map.LogMap", None)
        told: list[int] = []
        assert list(verify(path, told.append)) == []
        assert sum(told) == log.stat().st_size
    patch(log, log.stat().st_size - 3, b"#")
    told = []
    assert (only(log).code, [f.code for f in verify(log, told.append)]) == (Code.CRC_MISMATCH, [Code.CRC_MISMATCH])
    assert sum(told) == log.stat().st_size


def test_a_log_alone_that_ends_before_the_next_one_begins_is_short(folder: Path) -> None:
    first = min(folder.glob("*.log"))
    place = [place for place in places(folder) if place.path == first][-1]
    first.write_bytes(first.read_bytes()[: place.position])
    found = [finding for finding in verify(first) if finding.path == str(first)]
    assert [(f.code, f.offset, f.last_offset) for f in found] == [(Code.LOG_SHORT, 4, 5)]


# --- what is broken once


def change_snapshot(folder: Path) -> None:
    path = max(folder.glob("*.snapshot"))
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 20, 999)  # the last sequence
    struct.pack_into(">I", data, 2, crc32c_by_table(bytes(data[6:])))
    path.write_bytes(data)


BROKEN: dict[str, tuple[Callable[[Path], object], Code, str, str]] = {
    "a count that the batch has no room for": (
        lambda folder: rewrite(folder, 1, 57, struct.pack(">i", 3)), Code.BAD_COUNT, "log", "3 records",
    ),
    "records that do not decode": (lambda folder: rewrite(folder, 1, 61, b"\x7f"), Code.BAD_BATCH, "log", ""),
    "a snapshot that the log contradicts": (
        change_snapshot, Code.SNAPSHOT_MISMATCH, "snapshot", "producer 7: last sequence 999, by the log 19",
    ),
    "leader epochs that the log contradicts": (
        lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 6\n"),
        Code.LEADER_EPOCHS_MISMATCH, "leader-epoch-checkpoint", "epoch 1 at offset",
    ),
}  # fmt: skip
"""What is done, what is found, in which file, and what the message says."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_once_is_found_once_where_it_belongs(folder: Path, name: str) -> None:
    damage, code, file, said = BROKEN[name]
    damage(folder)
    finding = only(folder, is_deep=code is Code.BAD_BATCH)
    assert (finding.code, finding.path.endswith(file), said in finding.message) == (code, True, True), finding


def test_an_epoch_below_the_one_before(folder: Path) -> None:
    for number, epoch in enumerate((2, 2, 1), start=3):
        place = places(folder)[number]
        patch(place.path, place.position + 12, struct.pack(">i", epoch))
    assert Code.EPOCHS_NOT_RISING in codes(folder)


def test_deep_finds_records_that_do_not_fit_their_header(folder: Path) -> None:
    rewrite(folder, 1, 35, struct.pack(">q", 1))  # the largest timestamp
    assert Code.BAD_BATCH not in codes(folder)
    finding = next(f for f in verify(folder, options=VerifyOptions(is_deep=True)) if f.code is Code.BAD_BATCH)
    assert "its header says 1" in finding.message


def test_a_flipped_bit_of_a_base_offset_is_located_by_what_stands_around_it(folder: Path) -> None:
    place = places(folder)[2]
    patch(place.path, place.position + 5, b"\x04")
    finding = only(folder)
    assert finding.code is Code.OFFSETS_NOT_RISING
    assert finding.fix == (place.position + 5, 4, 0)
    assert (finding.offset, finding.last_offset, finding.records) == (4, 5, 2)


def test_a_torn_tail_is_no_append_of_whoever_holds_the_lock_and_looks(folder: Path) -> None:
    last = sorted(folder.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + bytes(range(1, 40)))
    lock = DirectoryLock(folder.parent)
    lock.acquire()
    try:
        of_others = [one.code for one in verify(folder)]
        own = [one.code for one in verify(folder, options=VerifyOptions(is_locked=True))]
        tails = []
        for is_locked in (False, True):
            with contextlib.closing(PartitionReader(folder, is_locked=is_locked)) as reader:
                assert len(list(reader.reading.items(0))) == 10
                tails.append(reader.reading.tail is not None)
    finally:
        lock.release()
    assert of_others == [], "somebody may be writing just now"
    assert tails == [False, True]
    assert own == [one.code for one in verify(folder)] != []


def test_a_flipped_bit_of_a_base_offset_hides_no_damage_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(8):
        append(log, make_batch(b"a" * 40, b"b" * 40))
    log.close()
    stands = places(tmp_path / "t-0")
    patch(stands[2].path, stands[2].position + 5, b"\x04")
    for damaged in stands[5:7]:
        patch(damaged.path, damaged.end - 5, b"?")
    found = [(one.position, one.offset, one.last_offset) for one in verify(tmp_path / "t-0")]
    assert found == [(stands[2].position, 4, 5), (stands[5].position, 10, 13)]


def test_a_sector_of_zeros_in_a_batch_is_named(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"x" * 5000))
    append(log, make_batch(b"y"))
    log.close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    patch(path, 1024, bytes(512))
    finding = only(tmp_path / "t-0")
    assert finding.code is Code.CRC_MISMATCH
    assert finding.message.endswith(": bytes 1024 to 1535 are zeros")


def test_the_odd_epoch_is_that_of_fewer_batches_not_of_fewer_records(tmp_path: Path) -> None:
    """Near the log's end a large batch may hold more offsets than all after it; two batches say that it is wrong."""
    log = open_log(tmp_path / "t-0")
    for records in (1, 1, 9, 1, 1):
        append(log, make_batch(*[b"x"] * records))
    log.close()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    place = places(tmp_path / "t-0")[2]
    patch(place.path, place.position + 12, b"\x02")
    finding = only(tmp_path / "t-0")
    assert (finding.code, finding.offset) == (Code.EPOCHS_NOT_RISING, 2)
    assert finding.fix == (place.position + 12, 2, 0)


# --- producers


def remove_batch(folder: Path, number: int) -> None:
    """Leaves no hole in the offsets: those behind move up."""
    found = places(folder)
    place, rest = found[number], [p for p in found[number + 1 :] if p.path == found[number].path]
    data = place.path.read_bytes()
    moved = bytearray(data[: place.position])
    for later in rest:
        whole = bytearray(data[later.position : later.end])
        struct.pack_into(">q", whole, 0, later.offset - (place.end_offset - place.offset))
        moved += whole
    place.path.write_bytes(moved)


def test_a_producers_sequences_wrap(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    for number, base_sequence in enumerate((2**31 - 2, 0, 3)):  # two records each: 2 is missing
        batch = make_batch(b"a", b"b", base_sequence=base_sequence, **PRODUCER)
        set_base_offset_and_leader_epoch(batch, 2 * number, 0)
        with path.open("ab") as file:
            file.write(batch.buffer)
    (gap,) = (finding for finding in verify(path) if finding.code is Code.SEQUENCE_GAP)
    assert "sequence 3 of producer 7, expected 2" in gap.message


def test_a_gap_in_a_producers_sequences(folder: Path) -> None:
    for path in {*folder.glob("00000000000000000018.*"), *folder.glob("*.snapshot")}:
        path.unlink()
    found = places(folder)
    removed = next(number for number, place in enumerate(found) if place.path == found[-1].path)
    remove_batch(folder, removed)
    (folder.parent / META_PROPERTIES).write_text("")
    finding = {f.code: f for f in verify(folder)}[Code.SEQUENCE_GAP]
    assert f"sequence {2 * removed + 2} of producer 7, expected {2 * removed}" in finding.message
    assert finding.records == 0, "no offset is missing"


def test_a_gap_in_a_producers_sequences_is_a_part_of_the_hole_beside_it(folder: Path) -> None:
    remove_batch(folder, 1)
    findings = {f.code: f for f in verify(folder)}
    assert findings[Code.OFFSETS_MISSING].records == 2
    assert Code.SEQUENCE_GAP not in findings


def write_twice(directory: Path) -> None:
    """A batch, and another one with its sequence."""
    log = open_log(directory)
    append(log, make_batch(b"a", base_sequence=0, **PRODUCER))
    log.close()
    path = directory / "00000000000000000000.log"
    again = bytearray(path.read_bytes())
    struct.pack_into(">q", again, 0, 1)
    path.write_bytes(path.read_bytes() + again)
    next(directory.glob("*.snapshot")).unlink()


def write_transactions(directory: Path, *ends: bool, producer_epoch: int = 0) -> None:
    """A record and a marker for each; no snapshot has the epochs."""
    log = open_log(directory)
    for number, is_commit in enumerate(ends):
        fields = {"producer_id": 7, "producer_epoch": producer_epoch, "base_sequence": number}
        append(log, make_batch(b"a", is_transactional=True, **fields))
        log.append_as_leader(make_marker(7, is_commit=is_commit, producer_epoch=producer_epoch), 0, from_client=False)
    log.close()
    for path in directory.glob("*.snapshot"):
        path.unlink()


def test_a_batch_twice_but_for_kafkas_group_coordinator_which_begins_each_with_sequence_0(tmp_path: Path) -> None:
    for name, expected in (("t-0", [Code.SEQUENCE_GAP]), ("__consumer_offsets-0", [])):
        write_twice(tmp_path / name)
        assert codes(tmp_path / name) == expected


def test_a_coordinator_epoch_below_the_one_before(tmp_path: Path) -> None:
    """A coordinator that was replaced wrote the second marker."""
    directory = tmp_path / "t-0"
    write_transactions(directory, True, True)
    marker = places(directory)[1]
    epoch = marker.end - marker.position - 1 - 4  # before the number of headers
    rewrite(directory, 1, epoch, struct.pack(">i", 5))
    finding = only(directory)
    assert (finding.code, finding.offset) == (Code.TRANSACTION_ORDER, 3)
    assert "marker of coordinator epoch 0, the one before was of 5" in finding.message
    rewrite(directory, 3, epoch, struct.pack(">i", 6))
    assert codes(directory) == []


def test_a_marker_of_an_epoch_below_its_producers(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_transactions(directory, True, producer_epoch=1)
    assert codes(directory) == []
    rewrite(directory, 1, 51, struct.pack(">h", 0))
    finding = next(f for f in verify(directory) if f.code is Code.TRANSACTION_ORDER)
    assert finding.offset == 1
    assert "marker of epoch 0, the producer's is 1" in finding.message


def test_a_write_outside_an_open_transaction(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_transactions(directory, True, True)
    rewrite(directory, 2, 21, struct.pack(">h", 0))
    assert codes(directory) == []
    rewrite(directory, 2, 21, struct.pack(">h", 0x10))
    first, marker, second, _ = places(directory)
    data = first.path.read_bytes()
    moved = bytearray(data[second.position : second.end])  # in the place of the first marker: the transaction is open
    struct.pack_into(">q", moved, 0, 1)
    struct.pack_into(">h", moved, 21, 0)
    struct.pack_into(">I", moved, 17, crc32c_by_table(bytes(moved[21:])))
    first.path.write_bytes(data[: marker.position] + moved)
    assert Code.TRANSACTION_ORDER in codes(directory)


def test_an_aborted_transaction_that_the_index_does_not_know(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_transactions(directory, False)
    index = directory / "00000000000000000000.txnindex"
    whole = index.read_bytes()
    index.unlink()
    assert codes(directory) == [Code.TRANSACTION_INDEX_MISMATCH]
    for position in (2, 10, 18, 26):  # each of its numbers
        index.write_bytes(whole[: position + 7] + bytes([whole[position + 7] ^ 4]) + whole[position + 8 :])
        assert codes(directory) in ([Code.TRANSACTION_INDEX_MISMATCH] * 2, [Code.TRANSACTION_INDEX_MISMATCH],
                                    [Code.TRANSACTION_INDEX_CORRUPT])  # fmt: skip


@pytest.mark.parametrize("number", [0, -1])
def test_an_index_entry_of_the_last_batch_whose_offset_is_one_too_high(tmp_path: Path, number: int) -> None:
    """Of a segment whose end is known: else batches may have been lost that were written together with that one."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=100, segment_bytes=1000)
    for _ in range(20):
        append(log, make_batch(b"a" * 90, b"b"))
    log.close()
    index = sorted((tmp_path / "t-0").glob("*.index"))[number]
    position = index.stat().st_size - 8
    relative, points_at = struct.unpack(">ii", index.read_bytes()[position:])
    patch(index, position, struct.pack(">ii", relative + 1, points_at))
    finding = only(tmp_path / "t-0")
    assert (finding.code, finding.path, finding.position) == (Code.INDEX_MISMATCH, str(index), position)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    assert codes(tmp_path / "t-0") == ([Code.INDEX_MISMATCH] if number == 0 else [])


# --- files beside the log


def test_files_that_kafka_makes_empty(folder: Path, tmp_path: Path) -> None:
    """Of a replica that has no record yet, and of a cleaner that has cleaned nothing."""
    (folder.parent / "cleaner-offset-checkpoint").write_text("")
    empty = tmp_path / "data" / "t-1"
    open_log(empty).close()
    (empty / "leader-epoch-checkpoint").write_text("")
    assert codes(folder.parent) == []
    (folder / "leader-epoch-checkpoint").write_text("")
    assert codes(folder.parent) == [Code.CHECKPOINT_CORRUPT]


def test_a_checkpoint_that_knows_of_more(folder: Path) -> None:
    (folder.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 25\n")
    finding = only(folder)
    assert (finding.code, finding.records) == (Code.LOG_SHORT, 5)
    assert finding.message == "the log ends at offset 20, replication-offset-checkpoint knows of offset 24"
    assert codes(folder.parent) == [Code.LOG_SHORT]


def test_a_missing_segment_is_found_where_no_cleaner_was(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    for path in folder.glob(f"{logs[1].stem}.*"):
        path.unlink()
    assert Code.OFFSETS_MISSING in codes(folder), "nothing proves that a cleaner was here"
    (folder.parent / META_PROPERTIES).write_text("")
    findings = {f.code: f for f in verify(folder)}
    finding = findings[Code.OFFSETS_MISSING]
    assert (finding.offset, finding.last_offset) == (int(logs[1].stem), int(logs[2].stem) - 1)
    (folder.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {logs[2].stem.lstrip('0')}\n")
    assert Code.OFFSETS_MISSING not in codes(folder)


def test_topic_ids_that_differ(tmp_path: Path) -> None:
    for number, topic_id in enumerate(("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAQ")):
        log = open_log(tmp_path / f"t-{number}")
        log.close()
        (tmp_path / f"t-{number}" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    finding = only(tmp_path)
    assert finding.code is Code.TOPIC_ID_MISMATCH
    assert finding.path.endswith("t-1/partition.metadata")


def test_a_topic_with_the_id_of_another_is_named(tmp_path: Path) -> None:
    """As of a folder that somebody copied: a broker takes up one of the two; `recover` can't tell which is right."""
    for name in ("t-0", "u-0", "u-1"):
        open_log(tmp_path / name).close()
        (tmp_path / name / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    found = list(verify(tmp_path))
    assert [(f.code, Path(f.path).parent.name) for f in found] == [(Code.TOPIC_ID_MISMATCH, n) for n in ("u-0", "u-1")]
    assert "topic id AAAAAAAAAAAAAAAAAAAAAQ is that of t as well" in found[0].message
    steps = [step for plan in plan_recovery(tmp_path, RecoveryOptions()) for step in plan.steps]
    assert {step.action for step in steps} == {Action.NONE}


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "00000000000000000000.log"
    os.mkfifo(pipe)
    with pytest.raises(AccessError, match="is no regular file"):
        list(verify(pipe))
    address = tmp_path / "00000000000000000000.snapshot"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        with pytest.raises(AccessError, match="is no regular file"):
            list(verify(address))
    dangling = tmp_path / "00000000000000000007.log"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AccessError, match="nowhere, which is not there"):
        list(verify(dangling))


def test_a_link_to_a_folder_is_followed_when_it_is_named(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link-0"
    link.symlink_to(folder)
    assert codes(link) == []


def test_a_file_that_is_cut_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.forensics.batch_scanner import BatchScanner

    last = places(folder)[-1]
    walk = BatchScanner(last.path, int(last.path.stem))
    os.truncate(last.path, last.position + 5)
    items = list(walk)
    assert items[-1].end_position == last.position + 5  # type: ignore[union-attr]
    monkeypatch.undo()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_went_with_its_log_meanwhile_is_not_missed(
    folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention renames the `.log` first, then the indexes; the `.log` may have been opened before."""
    first = min(folder.glob("*.log"))
    open_index = segment_check.open_salvaging

    def delete_and_open(path: Path) -> SalvagingFile:
        if path == first.with_suffix(suffix):
            for gone in (first, path):
                gone.rename(f"{gone}.deleted")
        return open_index(path)

    monkeypatch.setattr(segment_check, "open_salvaging", delete_and_open)
    assert not {Code.INDEX_MISSING, Code.TIME_INDEX_MISSING} & {finding.code for finding in verify(folder)}


def test_files_under_other_names_are_looked_at_and_a_folder_with_such_a_name_is_not(folder: Path) -> None:
    for name in ("copy.snapshot", "copy.index"):
        (folder / name).write_bytes(b"garbage")
    (folder / "more.snapshot").mkdir()
    found = [(one.code, Path(one.path).name) for one in verify(folder)]
    assert found == [(Code.SNAPSHOT_CORRUPT, "copy.snapshot"), (Code.INDEX_CORRUPT, "copy.index")]
