from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.common.task import finish
from core.common.topic_partition import TopicPartition, random_uuid
from core.files.checkpoint_file import EpochEntry, read_partition_metadata
from core.files.file_names import parse_partition_directory_name
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings
from core.log.log_manager import LogManager
from core.log.partition_log import PartitionLog
from tests.support.disk import RecordingFileSystem
from tests.support.for_each import for_each
from tests.support.logs import NOW, FullDisk, append, cut_as_follower, make_batch
from tests.support.manual_clock import ManualClock

A, B = TopicPartition("a", 0), TopicPartition("b-c", 12)


def new_manager(directory: Path, filesystem: FileSystem | None = None) -> LogManager:
    return LogManager(directory, LogSettings(ManualClock(NOW), filesystem or FileSystem()))


def opened(directory: Path, filesystem: FileSystem | None = None) -> LogManager:
    manager = new_manager(directory, filesystem)
    manager.open_existing(manager.find_partitions(), lambda _: LogConfig())
    manager.forget_clean_shutdown()
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    manager = opened(tmp_path)
    for partition in (A, B):
        log = manager.create(partition, random_uuid(), LogConfig())
        append(log, make_batch(b"x", b"y", b"z"))
    return manager


def test_the_files_of_a_clean_stop(manager: LogManager, tmp_path: Path) -> None:
    manager.logs[B].increment_log_start_offset(2)
    manager.close(broker_epoch=17)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 17}
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\na 0 3\nb-c 12 3\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\na 0 3\nb-c 12 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nb-c 12 2\n"
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    again = opened(tmp_path)
    assert again.had_clean_shutdown
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    found = {tp: (log.log_start_offset, log.log_end_offset) for tp, log in again.logs.items()}
    assert found == {A: (0, 3), B: (2, 3)}
    again.close(broker_epoch=18)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\nnonsense\n")  # which costs time alone
    assert {tp: log.log_end_offset for tp, log in opened(tmp_path).logs.items()} == {A: 3, B: 3}


def test_a_cleaners_checkpoint_that_kafka_made_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("")
    opened(tmp_path)
    assert not caplog.records
    (tmp_path / "cleaner-offset-checkpoint").write_text("x")
    opened(tmp_path)
    assert "line 1: version 'x', expected 0" in caplog.text


def synced_by_close(manager: LogManager, disk: RecordingFileSystem) -> list[str]:
    """What lies in partitions' folders, as often as it is synced, and how often the folders' own names are."""
    before = len(disk.operations)
    manager.close(broker_epoch=1)
    synced = [operation.path for operation in disk.operations[before:] if operation.is_sync]
    root = [path for path in synced if path == manager.directory]
    checkpoints = [path for path in synced if path.parent == manager.directory and path.suffix == ".tmp"]
    others = sorted(str(path.relative_to(manager.directory)) for path in synced if path not in [*root, *checkpoints])
    return [*others, f"root {len(root) - len(checkpoints)}"]


def test_a_clean_stop_syncs_what_changed_once(tmp_path: Path) -> None:
    disk = RecordingFileSystem()
    manager = opened(tmp_path, disk)
    for name in ("unwritten", "written", "flushed"):
        manager.create(TopicPartition(name, 0), random_uuid(), LogConfig())
    for name in ("written", "flushed"):
        append(manager.logs[TopicPartition(name, 0)], make_batch(b"x"))
    manager.logs[TopicPartition("flushed", 0)].flush()
    zero, one = f"{0:020d}", f"{1:020d}"
    assert synced_by_close(manager, disk) == [
        "flushed-0",
        f"flushed-0/{zero}.timeindex",
        f"flushed-0/{one}.snapshot.tmp",
        "written-0",
        f"written-0/{zero}.log",
        f"written-0/{zero}.timeindex",
        f"written-0/{one}.snapshot.tmp",
        "root 1",
    ]
    again = opened(tmp_path, disk)
    assert {tp.topic: log.log_end_offset for tp, log in again.logs.items()} == {
        "unwritten": 0,
        "written": 1,
        "flushed": 1,
    }
    assert synced_by_close(again, disk) == ["root 0"]


def test_a_stop_syncs_away_what_a_failed_write_left(tmp_path: Path) -> None:
    """Else a power cut after a clean stop might leave it after the log's end, which nothing would explain."""
    disk = FullRecordedDisk()
    manager = opened(tmp_path, disk)
    append(manager.create(A, random_uuid(), LogConfig()), make_batch(b"x"))
    manager.close(broker_epoch=1)
    again = opened(tmp_path, disk)
    disk.is_full = True
    with pytest.raises(OSError, match="No space"):
        append(again.logs[A], make_batch(b"y"))
    disk.is_full = False
    assert f"a-0/{0:020d}.log" in synced_by_close(again, disk)


class FullRecordedDisk(FullDisk, RecordingFileSystem):
    pass


def test_logs_are_closed_in_several_threads_as_in_one(tmp_path: Path) -> None:
    files: list[dict[str, bytes]] = []
    for threads in (1, 4):
        directory = tmp_path / str(threads)
        directory.mkdir()
        manager = opened(directory)
        for number in range(40):
            log = manager.create(TopicPartition("t", number), bytes(15) + b"t", LogConfig())
            for count in range(number % 3):
                append(log, make_batch(b"%d" % count))
        manager.close(broker_epoch=1, threads=threads)
        assert manager.closing_text == "stopping: 40 of 40 partitions closed"
        files.append({str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()})
    assert files[0] == files[1]
    assert ".kafka_cleanshutdown" in files[0]


def test_a_log_that_can_not_be_closed_leaves_the_others_clean(manager: LogManager, tmp_path: Path) -> None:
    (tmp_path / "a-0" / f"{3:020d}.snapshot.tmp").mkdir()
    manager.close(broker_epoch=1, threads=4)
    assert "a-0" in str(manager.offline[A])
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert "b-c 12 3" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_a_stop_that_can_not_be_noted_is_logged(
    manager: LogManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".kafka_cleanshutdown.tmp").mkdir()
    manager.close(broker_epoch=1)
    (message,) = caplog.messages
    assert str(tmp_path / ".kafka_cleanshutdown") in message
    assert message.endswith("; the next start reads the logs as after a crash")
    assert not new_manager(tmp_path).had_clean_shutdown


def test_a_start_after_a_crash(manager: LogManager, tmp_path: Path) -> None:
    manager.checkpoints.write_recovery_points()
    torn = tmp_path / "a-0" / f"{0:020d}.log"
    torn.write_bytes(torn.read_bytes() + b"half a batch")
    again = new_manager(tmp_path)
    assert not again.had_clean_shutdown
    loaded = again.open_existing(again.find_partitions(), lambda _: LogConfig())
    assert [one.log.partition for one in loaded if one.was_cut] == [A]
    assert again.logs[B].log_end_offset == 3


def test_a_log_that_cannot_be_opened_leaves_the_others_alone(manager: LogManager, tmp_path: Path) -> None:
    manager.logs[A].flush()
    manager.checkpoints.write_recovery_points()
    log = tmp_path / "a-0" / f"{0:020d}.log"
    log.unlink()
    log.mkdir()
    again = opened(tmp_path)
    assert set(again.logs) == {B}
    assert "is a directory" in str(again.offline[A])
    again.close(broker_epoch=1)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()  # that log was never checked
    assert "a 0 3" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_deleting_a_partition(manager: LogManager, tmp_path: Path) -> None:
    (renamed,) = finish(manager.remove([A]))
    assert parse_partition_directory_name(renamed.name) is None
    assert not (tmp_path / "a-0").exists()
    assert manager.find_deleted_directories() == [renamed]
    manager.delete([renamed])
    assert manager.find_deleted_directories() == []
    assert finish(manager.remove([A])) == []
    manager.close(broker_epoch=1)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nb-c 12 3\n"


def test_what_can_not_be_deleted_keeps_nothing_else_from_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Keeps(FileSystem):
        def unlink(self, path: Path) -> None:
            if path.name == "kept":
                raise OSError(5, "Input/output error", str(path))
            super().unlink(path)

    manager = opened(tmp_path, Keeps())
    paths = [tmp_path / name for name in ("a", "kept", "b")]
    for path in paths:
        path.touch()
    manager.delete(paths)
    assert [path.name for path in paths if path.exists()] == ["kept"]
    assert caplog.messages == [f"could not delete {tmp_path}/kept: input/output error"]


def test_a_new_partition_takes_nothing_from_a_deleted_one_of_that_name(manager: LogManager, tmp_path: Path) -> None:
    manager.logs[A].flush()
    manager.logs[A].increment_log_start_offset(2)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_starts()
    finish(manager.remove([A]))
    manager.checkpoints.forget([A])
    log = manager.create(A, random_uuid(), LogConfig())
    append(log, make_batch(b"new"))
    again = opened(tmp_path)  # as after a crash
    assert (again.logs[A].log_start_offset, again.logs[A].log_end_offset) == (0, 1)


def test_a_checkpoint_that_is_late_does_not_replace_a_newer_one(manager: LogManager, tmp_path: Path) -> None:
    late: list[Callable[[], None]] = []
    manager.logs[A].flush()
    manager.checkpoints.write_recovery_points(lambda work, then=None: late.append(work))
    manager.logs[B].flush()
    manager.checkpoints.write_recovery_points()
    newest = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    late[0]()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == newest == "0\n2\na 0 3\nb-c 12 3\n"


def test_a_late_checkpoint_says_nothing_of_a_partition_that_was_made_again(manager: LogManager, tmp_path: Path) -> None:
    """It was asked for before the partition was deleted, and is written after another one has its name."""
    late: list[Callable[[], None]] = []
    manager.logs[A].flush()
    manager.logs[A].increment_log_start_offset(2)
    manager.checkpoints.write_recovery_points(lambda work, then=None: late.append(work))
    manager.checkpoints.write_log_starts(lambda work, then=None: late.append(work))
    manager.checkpoints.write_cleaned(A, 2, lambda work, then=None: late.append(work))
    finish(manager.remove([A]))
    manager.checkpoints.forget([A])
    append(manager.create(A, random_uuid(), LogConfig()), make_batch(b"new"))
    for write in late:
        write()
    assert A not in manager.checkpoints.clean_offsets
    again = opened(tmp_path)  # as after a crash
    assert (again.logs[A].log_start_offset, again.logs[A].log_end_offset) == (0, 1)


def test_folders_of_no_topic_are_kept_under_another_name(manager: LogManager, tmp_path: Path) -> None:
    manager.close(broker_epoch=1)
    other = new_manager(tmp_path)
    assert other.set_aside_strays({}).keys() == set()
    names = sorted(p.name.partition(".")[0] for p in tmp_path.glob("*-stray"))
    assert names == ["a-0", "b-c-12"]
    assert other.find_deleted_directories() == [], "nobody deletes them"
    assert all((p / "00000000000000000000.log").stat().st_size for p in tmp_path.glob("*-stray"))


def test_a_topic_does_not_get_the_records_of_another_one_of_its_name(tmp_path: Path) -> None:
    mine, other = random_uuid(), random_uuid()
    manager = opened(tmp_path)
    log = manager.create(A, other, LogConfig())
    assert manager.create(A, other, LogConfig()) is log
    append(log, make_batch(b"other's"))
    manager.close(broker_epoch=1)
    assert read_partition_metadata(log.directory) == other
    assert new_manager(tmp_path).create(A, other, LogConfig()).log_end_offset == 1
    assert new_manager(tmp_path).set_aside_strays({A: other}) == {A: tmp_path / "a-0"}
    log = new_manager(tmp_path).create(A, mine, LogConfig())
    assert (log.log_end_offset, read_partition_metadata(log.directory)) == (0, mine)
    assert len(list(tmp_path.glob("a-0.*-stray"))) == 1


@pytest.mark.parametrize("content", [b"", b"version: 7\ntopic_id: x", None])
def test_a_folder_without_a_readable_topic_id_gets_it_again(tmp_path: Path, content: bytes | None) -> None:
    topic_id = random_uuid()
    append(opened(tmp_path).create(A, topic_id, LogConfig()), make_batch(b"x"))
    path = tmp_path / "a-0" / "partition.metadata"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    log = opened(tmp_path).create(A, topic_id, LogConfig())
    assert (log.log_end_offset, read_partition_metadata(log.directory)) == (1, topic_id)


@for_each(
    "name, partition",
    [
        ("a-0", A),
        ("b-c-12", B),
        ("a-", None),
        ("a", None),
        ("a-0x", None),
        ("a-0.0123456789abcdef0123456789abcdef-delete", None),
        ("a-0.0123456789abcdef0123456789abcdef-stray", None),
    ],
)
def test_names_of_partition_folders(name: str, partition: TopicPartition | None) -> None:
    assert parse_partition_directory_name(name) == partition


@pytest.mark.parametrize("suffixes", [["log"], ["log", "index", "timeindex", "snapshot"]], ids=["log", "all files"])
def test_a_start_says_that_the_first_segment_is_gone(
    tmp_path: Path, suffixes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And leaves what proves it: the epochs."""
    manager = opened(tmp_path)
    log = manager.create(A, random_uuid(), LogConfig(segment_bytes=200))
    for _ in range(6):
        append(log, make_batch(b"x", b"y"))
    assert len(log.segments) > 2
    second = [segment.base_offset for segment in log.segments][1]
    manager.close(broker_epoch=1)
    for suffix in suffixes:
        (tmp_path / "a-0" / f"{0:020d}.{suffix}").unlink(missing_ok=True)
    opened(tmp_path).close(broker_epoch=2)
    assert f"a-0: offsets 0 to {second - 1} are not in the log" in caplog.text
    assert ("a-0: segment 0 is missing, an index of it is here" in caplog.text) == (suffixes == ["log"])
    caplog.clear()
    opened(tmp_path)
    assert f"a-0: offsets 0 to {second - 1} are not in the log" in caplog.text


def test_a_start_says_nothing_of_segments_that_were_deleted(
    manager: LogManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = manager.create(A, random_uuid(), LogConfig(segment_bytes=200))
    log.roll()
    for path in log.delete_oldest([log.segments.first]):
        path.unlink()
    manager.close(broker_epoch=1)
    (tmp_path / "log-start-offset-checkpoint").unlink()
    caplog.clear()
    opened(tmp_path)
    assert "not in the log" not in caplog.text


# --- followers


@pytest.mark.parametrize("is_synced", [False, True])
def test_the_epochs_of_records_that_are_back_are_known(tmp_path: Path, is_synced: bool) -> None:
    """The broker was killed before the new log start of a deletion of records was on the disk; its epochs were. Without
    them a follower that parts ways there would be told to go on.
    """
    topic_id = random_uuid()
    log = opened(tmp_path).create(A, topic_id, LogConfig())
    for epoch, offset in ((1, 0), (2, 1), (4, 4)):
        log.leader_epochs.assign(epoch, offset)
        log.append_as_leader(make_batch(*[b"x"] * (3 if epoch == 2 else 1)), epoch)
    log.leader_epochs.assign(5, log.log_end_offset)
    before = log.leader_epochs.entries
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(2)
    assert log.leader_epochs.entries[0] == EpochEntry(2, 2)
    if is_synced:  # and so no batch is read again
        (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\na 0 {log.log_end_offset}\n")
    again = opened(tmp_path).create(A, topic_id, LogConfig())  # as after a kill
    assert again.log_start_offset == 0
    assert again.leader_epochs.entries == before
    assert again.leader_epochs.end_offset_of(1, again.log_end_offset) == (1, 1)


CHECKPOINTS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"


def half_committed(manager: LogManager) -> PartitionLog:
    """A log with 6 records, one a batch, of which 4 are known to be committed; all are flushed."""
    log = manager.create(TopicPartition("c", 0), random_uuid(), LogConfig())
    for value in range(6):
        log.append_as_leader(make_batch(b"%d" % value), 0)
    log.update_high_watermark(4)
    log.flush()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    return log


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_start_knows_the_high_watermark_of_before(manager: LogManager, tmp_path: Path, *, is_killed: bool) -> None:
    """It is not the log's end: others may not have the records above it."""
    partition = half_committed(manager).partition
    if not is_killed:
        manager.close(broker_epoch=1)
    log = opened(tmp_path).logs[partition]
    assert (log.high_watermark, log.log_end_offset) == (4, 6)


def test_a_truncation_is_in_the_checkpoints_before_it_is_in_the_log(manager: LogManager, tmp_path: Path) -> None:
    log = half_committed(manager)
    for write in manager.forget_safety({log.partition: 2, A: 99}):
        write()
    lines = [line for file in CHECKPOINTS for line in (tmp_path / file).read_text().splitlines()]
    assert [line for line in lines if line.startswith(f"{log.partition.topic} ")] == ["c 0 2", "c 0 2"]
    assert log.log_end_offset == 6
    log.truncate_to(2)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (2, 2, 2)
    assert manager.logs[A].log_end_offset == 3


def test_nothing_is_cut_before_what_others_write_meanwhile_is_overruled(manager: LogManager, tmp_path: Path) -> None:
    log = half_committed(manager)
    partition = log.partition
    for write in manager.forget_safety({partition: 2}):
        write()
    log.flush()  # as the flusher does, before the log is cut
    begun: list[Callable[[], None]] = []
    manager.checkpoints.write_recovery_points(lambda write, _=None: begun.append(write))
    again = manager.forget_safety({partition: 2})
    assert again
    for write in begun + again:
        write()
    assert not manager.forget_safety({partition: 2})
    assert [(tmp_path / file).read_text().splitlines()[-1] for file in CHECKPOINTS] == ["c 0 2"] * 2
    assert log.log_end_offset == 6
    assert not manager.forget_safety({partition: 6}), "nobody took for safe what is cut"


def test_a_truncation_within_a_batch_takes_it_whole(manager: LogManager, tmp_path: Path) -> None:
    manager.logs[A].flush()
    manager.checkpoints.write_recovery_points()
    cut_as_follower(manager, A, 2)
    assert manager.logs[A].log_end_offset == 0
    for file in CHECKPOINTS:
        assert "a 0 0" in (tmp_path / file).read_text()


def test_what_came_after_a_truncation_is_cut_and_not_damaged_if_a_power_cut_tears_it(
    manager: LogManager, tmp_path: Path
) -> None:
    log = half_committed(manager)
    cut_as_follower(manager, log.partition, 2)
    for value in range(4):
        log.append_as_leader(make_batch(b"new %d" % value), 1)
    path = log.segments.active.records.path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of offset 5, which was safe before
    path.write_bytes(data)
    again = opened(tmp_path).logs[log.partition]
    assert (again.log_end_offset, again.gaps) == (5, [])
