from __future__ import annotations

import json
import shutil
import traceback
from pathlib import Path
from random import Random

import pytest

from core.cluster.image import metadata_log as metadata_log_module
from core.cluster.image.metadata_log import MetadataLog, read_metadata_image
from core.cluster.image.metadata_record import MetadataRecord, decode_metadata_record, encode_metadata_record
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, MalformedMessageError
from core.common.filesystem import FileSystem
from core.common.topic_partition import random_uuid
from core.inspector.check.verify import verify
from core.protocol.schema.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from core.records.control_record import ControlRecordType
from core.records.record_batch import RecordBatch
from tests.support.asking_disk import FailingDisk
from tests.support.disk import RecordedFile, RecordingFileSystem, crash_states, disk_after
from tests.support.for_each import for_each
from tests.support.logs import NOW, FullDisk
from tests.support.manual_clock import ManualClock
from tests.support.refusals import refused

TOPIC = 2


def open_log(directory: Path, filesystem: FileSystem | None = None) -> MetadataLog:
    return MetadataLog(directory, 1, ManualClock(NOW), filesystem or FileSystem())


def topic(name: str, partitions: int = 1) -> list[MetadataRecord]:
    topic_id = random_uuid()
    return [
        TopicRecord(name, topic_id),
        *(PartitionRecord(number, topic_id, replicas=[1], isr=[1], leader=1) for number in range(partitions)),
    ]


def names(log: MetadataLog) -> set[str]:
    return set(log.image.topics)


def from_outside(directory: Path) -> set[str]:
    image = read_metadata_image(directory)
    assert image is not None
    return set(image.topics)


def batches(log: MetadataLog) -> list[RecordBatch]:
    found = [b for segment in log._log.segments for b in segment.records.iter_batches()]
    return [b for b in found if isinstance(b, RecordBatch)]


@for_each("is_clean", [True, False])
def test_what_was_appended_is_there_again(tmp_path: Path, is_clean: bool) -> None:
    log = open_log(tmp_path)
    assert log.end_offset == 0
    log.append(topic("a", 3))
    log.append([ConfigRecord(TOPIC, "a", "retention.ms", "5")])
    assert from_outside(tmp_path) == {"a"}, "while it is open"
    if is_clean:
        log.close()
    again = open_log(tmp_path)
    assert again.image.topics == log.image.topics
    assert again.image.topic_configs("a") == {"retention.ms": "5"}


def test_every_opening_that_writes_begins_an_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        log = open_log(tmp_path)
        log.append(topic(f"t{epoch}"))
        log.close()
        open_log(tmp_path).close()  # one that does not
        state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_bytes())
        assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, epoch, 0)
    log = open_log(tmp_path)
    leader_changes = [b for b in batches(log) if b.is_control]
    assert [b.partition_leader_epoch for b in leader_changes] == [1, 2, 3]
    keys = {b.records()[0].key for b in leader_changes}
    assert keys == {b"\0\0" + int(ControlRecordType.LEADER_CHANGE).to_bytes(2, "big")}
    log.close()


def test_a_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(topic("a"))
    log.append(topic("b"))
    path = log._log.segments.active.records.path
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)
    again = open_log(tmp_path)
    assert names(again) == {"a"}
    assert len(list(path.parent.glob("*.cut-at-*"))) == 1
    again.append(topic("c"))
    again.close()
    assert names(open_log(tmp_path)) == {"a", "c"}


def test_a_full_disk_leaves_the_image_as_it_is(tmp_path: Path) -> None:
    disk = FullDisk()
    log = open_log(tmp_path, disk)
    log.append(topic("a"))
    disk.is_full = True
    with pytest.raises(KafkaError, match="no space left"):
        log.append(topic("b"))
    assert names(log) == {"a"}
    disk.is_full = False
    log.append(topic("c"))
    log.close()
    assert names(open_log(tmp_path)) == {"a", "c"} == from_outside(tmp_path)
    (metadata,) = tmp_path.rglob("partition.metadata")
    assert metadata.read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_what_could_not_be_synced_is_not_there_after_a_start(tmp_path: Path) -> None:
    """Whoever asked for it was refused, and everybody was served by the image since: a topic whose deletion was refused
    took acknowledged records, which must be there again.
    """
    disk = FailingDisk(window=1)
    log = open_log(tmp_path, disk)
    log.append(topic("a"))
    disk.fails_from = disk.count + 1
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, r"write to \S+\.log: input/output error.*until a restart"):
        log.append([RemoveTopicRecord(log.image.topics["a"].topic_id), *topic("b")])
    with pytest.raises(KafkaError, match="until a restart"):
        log.append(topic("c"))
    assert names(log) == {"a"} == from_outside(tmp_path)
    log.close()
    assert names(open_log(tmp_path)) == {"a"}


def test_an_error_that_is_raised_until_a_restart_holds_nothing_of_those_it_was_raised_for(tmp_path: Path) -> None:
    disk = FailingDisk(window=1)
    log = open_log(tmp_path, disk)
    log.append(topic("a"))
    disk.fails_from = disk.count + 1
    lengths = set()
    for _ in range(4):
        with pytest.raises(KafkaError, match="until a restart") as refused:
            log.append(topic("b"))
        lengths.add(len(list(traceback.walk_tb(refused.value.__traceback__))))
    assert len(lengths) <= 2, "of the first one, and of the others"
    log.close()


def test_a_power_cut_does_not_bring_back_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told that the next start does not find it may rely on that."""
    disk = RecordingFileSystem()
    log = open_log(tmp_path / "data", disk)
    log.append(topic("a"))
    sync, refusals = RecordedFile.sync, iter([OSError(5, "Input/output error")])

    def refuse_once(file: RecordedFile) -> None:
        for error in refusals:
            raise error
        sync(file)

    monkeypatch.setattr(RecordedFile, "sync", refuse_once)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append(topic("b"))
    states = list(crash_states(tmp_path / "data", disk.operations, Random(5), subsets_up_to=4, samples=4))
    for number, state in enumerate(states):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write_to(folder)
        assert names(open_log(folder)) == {"a"}


def test_nothing_is_appended_after_a_change_that_was_written_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log_module, "_MAX_BATCH_BYTES", 500)
    disk = FullDisk()
    log = open_log(tmp_path, disk)
    log.append(topic("a"))
    flush = log._log.flush

    def fill_the_disk() -> None:
        flush()
        disk.is_full = True

    monkeypatch.setattr(log._log, "flush", fill_the_disk)  # it is full when the first batch of several is synced
    with pytest.raises(KafkaError, match="until a restart"):
        log.append(topic("wide", 100))
    disk.is_full = False
    monkeypatch.setattr(log._log, "flush", flush)
    with pytest.raises(KafkaError, match="until a restart"):
        log.append(topic("c"))
    log.close()
    assert names(open_log(tmp_path)) == {"a"}


@for_each("window, is_clean", [(1, True), (1, False), (2, False), (3, True), (1 << 30, False)])
def test_what_is_refused_is_not_kept_or_the_answer_says_so(tmp_path: Path, window: int, is_clean: bool) -> None:
    """At whatever operation the disk begins to refuse, of a new log's first change and of a later one."""
    answers = set()
    for first in range(1, 16):
        for known in ((), ("a",)):
            directory = tmp_path / f"{first} {len(known)}"
            disk = FailingDisk(window=window)
            log = open_log(directory, disk)
            for name in known:
                log.append(topic(name))
            disk.fails_from = disk.count + first - 1
            answer, expected = ErrorCode.NONE, {*known, "b"}
            try:
                log.append(topic("b"))
            except KafkaError as error:
                answer, expected = error.code, set(known)
            later = ErrorCode.NONE
            try:
                log.append(topic("c"))
                expected.add("c")
            except KafkaError as error:
                later = error.code
            assert later in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR) or answer is ErrorCode.NONE
            answers.add(answer)
            perhaps = {name for name, code in (("b", answer), ("c", later)) if code is ErrorCode.REQUEST_TIMED_OUT}
            if is_clean:
                log.close()
            found = from_outside(directory)
            assert expected <= found <= expected | perhaps, f"operation {first}: {answer!r} {later!r}"
            assert names(open_log(directory)) == found
            assert names(open_log(directory)) == found
    assert answers == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR} | (
        {ErrorCode.REQUEST_TIMED_OUT} if window > 1 else set()
    )


def test_a_transaction_that_did_not_end_never_was(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    ended, open_ = topic("ended"), topic("open")
    records = [BeginTransactionRecord("x"), *ended, EndTransactionRecord(), BeginTransactionRecord("y"), *open_]
    log._begin_epoch()
    log._append_batch(
        [metadata_log_module.Record(n, NOW, None, encode_metadata_record(r)) for n, r in enumerate(records)]
    )
    again = open_log(tmp_path)
    assert names(again) == {"ended"} == from_outside(tmp_path)
    again.append(topic("later"))
    again.close()
    assert names(open_log(tmp_path)) == {"ended", "later"}, "what follows is not of that transaction"


def test_a_long_log_becomes_a_snapshot_at_a_clean_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log_module, "_SNAPSHOT_AFTER_BYTES", 1000)
    log = open_log(tmp_path)
    for number in range(20):
        log.append(topic(f"t{number}", 2))
    log.append([RemoveTopicRecord(log.image.topics["t3"].topic_id)])
    end = log.end_offset
    log.close()
    folder = tmp_path / "__cluster_metadata-0"
    assert [p.name for p in folder.glob("*.checkpoint")] == [f"{end:020d}-0000000001.checkpoint"]
    assert [p.name for p in folder.glob("*.log")] == [f"{end:020d}.log"]
    assert list(verify(folder)) == [], "what the snapshot holds is not lost"
    again = open_log(tmp_path)
    assert again.image.topics == log.image.topics
    assert (again.end_offset, from_outside(tmp_path)) == (end, names(log))
    again.append(topic("after"))
    again._write_snapshot()
    again.close()
    assert len(list(folder.glob("*.checkpoint"))) == 1, "the newer one stands for both"
    assert names(open_log(tmp_path)) == names(log) | {"after"}


def test_a_kill_or_a_power_cut_while_a_snapshot_is_written_loses_no_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes when what it says is on the disk elsewhere."""
    monkeypatch.setattr(metadata_log_module, "_SNAPSHOT_AFTER_BYTES", 0)
    disk = RecordingFileSystem()
    log = open_log(tmp_path / "data", disk)
    log.append(topic("a"))
    log.append(topic("b"))
    begun, random = len(disk.operations), Random(5)
    log.close()
    left = 0
    for end in range(begun, len(disk.operations) + 1):
        operations = disk.operations[:end]
        cut = crash_states(tmp_path / "data", operations, random, subsets_up_to=3, samples=3)
        for state in (disk_after(tmp_path / "data", operations), *cut):
            left += 1
            folder = tmp_path / str(left)
            folder.mkdir()
            state.write_to(folder)
            assert names(open_log(folder)) == {"a", "b"}
    assert left > 50


def test_a_snapshot_that_ends_within_a_batch_is_gone_on_from(tmp_path: Path) -> None:
    """What it covers is not applied again: there a topic is deleted that it does not know any more."""
    first = topic("a")
    removal = RemoveTopicRecord(first[0].topic_id)  # type: ignore[attr-defined]
    covered = open_log(tmp_path / "covered")
    covered.append(first)
    covered.append([removal])
    covered._write_snapshot()
    log = open_log(tmp_path / "data")
    log.append(first)
    log.append([removal, *topic("b")])
    (snapshot,) = covered.directory.glob("*.checkpoint")
    shutil.copy(snapshot, log.directory)
    log.close()
    assert from_outside(tmp_path / "data") == {"b"}
    assert names(open_log(tmp_path / "data")) == {"b"}


def test_a_damaged_snapshot_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log_module, "_SNAPSHOT_AFTER_BYTES", 0)
    log = open_log(tmp_path)
    log.append(topic("a"))
    log.close()
    (snapshot,) = (tmp_path / "__cluster_metadata-0").glob("*.checkpoint")
    data = bytearray(snapshot.read_bytes())
    data[150] ^= 1
    snapshot.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="crc"):
        read_metadata_image(tmp_path)
    with pytest.raises(CorruptRecordError) as caught:
        open_log(tmp_path)
    assert str(snapshot) in str(caught.value)


def test_many_records_go_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log_module, "_MAX_BATCH_BYTES", 500)
    log = open_log(tmp_path)
    log.append(topic("wide", 100))
    sizes = [b.size_bytes for b in batches(log) if not b.is_control]
    assert len(sizes) > 5
    assert max(sizes) < 700
    assert len(open_log(tmp_path).image.topics["wide"].partitions) == 100


@for_each("value", [None, b"", b"\x01", b"\x02\x02\x00", b"\x01\xff\x7f\x00", b"\x01\x02\x63", b"\x01\x02\x00"])
def test_what_is_no_metadata_record(value: bytes | None) -> None:
    with pytest.raises(MalformedMessageError):
        decode_metadata_record(value)


def test_a_record_about_no_topic_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(topic("a"))
    with pytest.raises(KeyError):  # it is written by then
        log.append(topic("b")[1:])
    log.close()
    for read in (read_metadata_image, open_log):
        with pytest.raises(CorruptRecordError, match="__cluster_metadata-0 is about a topic that it does not have"):
            read(tmp_path)
