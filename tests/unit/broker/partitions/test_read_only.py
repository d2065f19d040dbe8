"""A broker that changes nothing in its directory, and one that finds folders without metadata."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.cluster.image.broker_metadata import NewTopic
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, CorruptRecordError, KafkaError
from core.common.shadow_filesystem import link_tree
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint, read_partition_metadata
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from core.log.log_manager import LogManager
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.support.broker import (
    SteeredNode,
    add_topic,
    ask,
    delete_topic,
    fetch,
    open_broker,
    produce,
    produce_values,
    values_of,
)
from tests.support.logs import NOW, fingerprint, make_batch
from tests.support.manual_clock import ManualClock

DAY_MS = 86_400_000


@pytest.fixture(autouse=True, params=["at once", "late"])
def when(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When logs are read: by the start, or when somebody asks for them, as `plog serve` does it."""
    asked: str = request.param
    if asked == "late":
        monkeypatch.setattr("core.broker.partitions.lazy_logs.AT_ONCE_BYTES", 0)
    return asked


BY_THE_START = pytest.mark.parametrize("when", ["at once"], indirect=True)


def open_read_only(directory: Path, clock: ManualClock | None = None) -> SteeredNode:
    return SteeredNode(directory, BrokerConfig(), clock=clock or ManualClock(NOW), is_read_only=True, loads_late=True)


def all_values(broker: SteeredNode, topic: str = "t") -> list[bytes | None]:
    values: list[bytes | None] = []
    log = broker.services.replicas.find(topic, 0).log
    offset = log.log_start_offset
    while offset < log.high_watermark:
        found = values_of(fetch(broker, offset, topic))
        assert found
        values += found
        offset += len(found)
    return values


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a crash left: several segments, a torn tail, indexes that are not written."""
    broker = open_broker(tmp_path / "data")
    add_topic(broker, internal_segment_bytes="200", retention_ms="-1")
    produce_values(broker, *(b"value %d" % number for number in range(7)))
    broker.services.log_manager.checkpoints.write_recovery_points()
    broker._lock.release()
    last = max((tmp_path / "data" / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"half a batch")
    return tmp_path / "data"


def test_it_serves_and_changes_nothing(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = fingerprint(directory)
    clock = ManualClock(NOW)
    broker = open_read_only(directory, clock)
    assert all_values(broker) == [b"value %d" % number for number in range(7)]
    assert "position 76: garbage: 12 bytes are too few for a batch: no batch, 12 bytes to the end" in caplog.text
    clock.advance(99 * DAY_MS)
    for _ in range(3):
        broker.housekeeping.step()
    broker.housekeeping.apply_retention()
    assert len(all_values(broker)) == 7
    broker.close()
    assert fingerprint(directory) == before


def test_folders_are_taken_by_their_names_as_by_those_who_read_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever id is in them: that may be damaged, or two folders may have changed places."""
    broker = open_broker(tmp_path)
    for topic in "ab":
        add_topic(broker, topic, retention_ms="-1")
        produce_values(broker, topic.encode(), topic=topic)
    broker.close()
    (tmp_path / "a-0").rename(tmp_path / "c")
    (tmp_path / "b-0").rename(tmp_path / "a-0")
    (tmp_path / "c").rename(tmp_path / "b-0")
    before = fingerprint(tmp_path)
    broker = open_read_only(tmp_path)
    assert [all_values(broker, topic) for topic in "ab"] == [[b"b"], [b"a"]]
    assert "a-0 says that it is of another topic than a-0; it is read all the same" in caplog.text
    broker.close()
    assert fingerprint(tmp_path) == before


def test_what_would_change_it_is_refused(directory: Path) -> None:
    broker = open_read_only(directory)
    refused = produce(broker, make_batch(b"x"))
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert refused.error_message == f"this broker was started with --read-only: {directory} is not written to"
    for change in (
        lambda: broker.services.topics.create(NewTopic("new", 1)),
        lambda: delete_topic(broker, "t"),
        lambda: finish(broker.services.topics.create_partitions("t", 4, None, validate_only=False)),
        lambda: broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"retention.ms": "1"}),
    ):
        with pytest.raises(KafkaError, match="--read-only"):
            change()
    asked = MetadataRequest([MetadataRequestTopic(name="nobody")], allow_auto_topic_creation=True)
    assert ask(broker, METADATA, asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.services.transaction_log.next_producer_id() >= 0, (
        "an idempotent producer is told no when it produces, with the reason"
    )


@BY_THE_START
def test_a_start_reads_the_checkpoints_as_often_with_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = mock.Mock(side_effect=read_offset_checkpoint)
    monkeypatch.setattr("core.forensics.known_offsets_of_directory.read_offset_checkpoint", read)
    counts = []
    for partitions in (2, 12):
        live = open_broker(tmp_path / str(partitions))
        finish(live.services.topics.create_all([NewTopic("many", partitions)]))
        live.close()
        read.reset_mock()
        open_read_only(tmp_path / str(partitions)).close()
        counts.append(read.call_count)
    assert counts[0] == counts[1]


@BY_THE_START
def test_beside_a_live_broker(tmp_path: Path) -> None:
    live = open_broker(tmp_path)
    add_topic(live, retention_ms="-1")
    produce_values(live, b"a", b"b")
    beside = open_read_only(tmp_path)
    produce_values(live, b"c")
    assert all_values(beside) == [b"a", b"b"], "as of its start"
    beside.close()
    assert all_values(live) == [b"a", b"b", b"c"]


@BY_THE_START
def test_what_a_live_broker_deletes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = open_broker(tmp_path)
    add_topic(live, internal_segment_bytes="200", retention_ms="-1")
    produce_values(live, *(b"value %d" % number for number in range(7)))
    first, second = sorted((live.directory / "t-0").glob("*.log"))[:2]

    def link_and_delete(*args: Any, **options: Any) -> None:
        link_tree(*args, **options)
        first.unlink()

    monkeypatch.setattr("core.broker.broker_server.link_tree", link_and_delete)
    beside = open_read_only(tmp_path)
    assert all_values(beside) == [b"value %d" % number for number in range(int(second.stem), 7)]


@BY_THE_START
def test_a_live_broker_that_starts_while_the_logs_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it knows of more records, and what it deletes, is no damage."""
    before = open_broker(tmp_path)
    add_topic(before, "a", retention_ms="-1")
    add_topic(before, internal_segment_bytes="200", retention_ms="-1")
    produce_values(before, *(b"value %d" % number for number in range(7)))
    before.close()
    first, second = sorted((tmp_path / "t-0").glob("*.log"))[:2]
    load, asked, live = LogManager._read, list[TopicPartition](), list[SteeredNode]()

    def start_before_the_second(self: LogManager, partition: TopicPartition, *arguments: Any) -> object:
        asked.append(partition)
        if asked == [TopicPartition("a", 0), TopicPartition("t", 0)]:  # later ones are the live broker's own
            live.append(open_broker(tmp_path))
            first.unlink()
            (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 9\n")
        return load(self, partition, *arguments)

    monkeypatch.setattr(LogManager, "_read", start_before_the_second)
    caplog.clear()
    beside = open_read_only(tmp_path)
    assert all_values(beside) == [b"value %d" % number for number in range(int(second.stem), 7)]
    assert "damaged" not in caplog.text


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"could not read .*nowhere: no such file"):
        open_read_only(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_damage_is_not_noted_in_the_directory(directory: Path) -> None:
    first = min((directory / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    before = fingerprint(directory)
    clock = ManualClock(NOW)
    broker = open_read_only(directory, clock)
    clock.advance(DAY_MS)
    for _ in range(9):
        broker.housekeeping.step()
    assert fetch(broker, 0).error_code == ErrorCode.CORRUPT_MESSAGE
    broker.close()
    assert fingerprint(directory) == before


# --- folders without metadata


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Partition folders copied out of a directory: a topic of three partitions, the middle one missing, and another."""
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path / "original", clock)
    add_topic(broker, "t", 3, retention_ms="-1")
    add_topic(broker, "other", retention_ms="-1")
    for number in range(3):
        produce_values(broker, b"p%d" % number, partition=number)
    produce_values(broker, b"x", topic="other")
    broker.services.controller.start_new_leader_epochs([broker.services.replicas.find("t", 2).log.partition] * 5)
    broker.close()
    again = open_broker(tmp_path / "original", clock)
    produce_values(again, b"later", partition=2)
    again.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("t-0", "t-2", "other-0"):
        shutil.copytree(tmp_path / "original" / name, copy / name)
    return copy


def test_they_are_served_as_they_are(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic_id = read_partition_metadata(folders / "t-0")
    for _ in range(2):
        broker = open_broker(folders)
        assert broker.services.image.topics["t"].topic_id == topic_id
        assert values_of(fetch(broker, 0, partition=0)) == [b"p0"]
        assert values_of(fetch(broker, 0, partition=2)) == [b"p2", b"later"]
        assert values_of(fetch(broker, 0, "other")) == [b"x"]
        described = ask(broker, METADATA, MetadataRequest([MetadataRequestTopic(name="t")])).topics[0].partitions
        assert [(p.partition_index, p.leader_id) for p in described] == [(0, 1), (1, -1), (2, 1)]
        assert fetch(broker, 0, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.close()
    assert caplog.text.count("topic t came without metadata: 2 partitions") == 1
    assert not (folders / "t-1").exists()


def test_nothing_is_deleted_until_somebody_says_so(folders: Path) -> None:
    clock = ManualClock(NOW + 999 * DAY_MS)
    broker = open_broker(folders, clock, log_retention_ms="1000", log_retention_bytes="1")
    broker.housekeeping.apply_retention()
    assert values_of(fetch(broker, 0)) == [b"p0"]
    assert not broker.services.replicas.find("t", 0).log.config.is_compacted
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"retention.ms": "1000"})
    broker.housekeeping.apply_retention()
    assert fetch(broker, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_no_leader_epoch_is_used_twice(folders: Path) -> None:
    """An (epoch, offset) names one record, also where another broker wrote the first ones."""
    checkpoint = (folders / "t-2" / "leader-epoch-checkpoint").read_text().split("\n")
    latest = int(checkpoint[-2].split()[0])
    assert latest > 0
    broker = open_broker(folders)
    assert broker.services.replicas.find("t", 2).leader_epoch > latest
    broker.close()
    (folders / "t-2" / "leader-epoch-checkpoint").unlink()
    shutil.rmtree(folders / "__cluster_metadata-0")
    again = open_broker(folders)
    assert again.services.replicas.find("t", 2).leader_epoch > latest


@pytest.mark.parametrize("is_second_start", [False, True])
def test_damage_does_not_cost_what_lies_behind_it(folders: Path, is_second_start: bool) -> None:
    """Nothing says up to where the log was safe: only what is torn at its very end is cut."""
    path = folders / "t-2" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data + b"torn")
    if is_second_start:  # a crash before anything more was noted
        open_broker(folders)._lock.release()
    broker = open_broker(folders)
    assert fetch(broker, 0, partition=2).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_of(fetch(broker, 1, partition=2)) == [b"later"]
    assert [p.name for p in (folders / "t-2").glob("*.cut-at-*")] == [f"{path.name}.cut-at-{len(data)}"]


def test_nothing_is_missing_where_nobody_knows_how_far_a_log_was_safe(folders: Path) -> None:
    path = folders / "t-2" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"no batch at all, and no crash leaves that")
    broker = open_read_only(folders)
    log = broker.services.replicas.find("t", 2).log
    assert (log.log_end_offset, log.gaps) == (2, [])


def test_read_only(folders: Path) -> None:
    before = fingerprint(folders)
    broker = open_read_only(folders)
    assert values_of(fetch(broker, 0, partition=2)) == [b"p2", b"later"]
    broker.close()
    assert fingerprint(folders) == before


def test_a_copy_without_meta_properties_is_the_nodes_that_wrote_it(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, node_id="7")
    add_topic(broker, retention_ms="-1")
    produce_values(broker, b"a")
    broker.close()
    (tmp_path / "meta.properties").unlink()
    again = open_broker(tmp_path)
    assert again.services.node.node_id == 7
    assert values_of(fetch(again, 0)) == [b"a"]


def test_names_that_no_topic_has_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a b-0").mkdir()
    (tmp_path / "a b-0" / "00000000000000000000.log").touch()
    broker = open_broker(tmp_path)
    assert not broker.services.image.topics
    assert "the folders of a b are left alone" in caplog.text
    broker.close()
    assert (tmp_path / "a b-0").is_dir()


# --- damage to what describes the directory


def damage(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def test_a_damaged_meta_properties_keeps_no_reader_from_the_records(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "meta.properties").write_bytes(bytes(40))
    before = fingerprint(directory)
    broker = open_read_only(directory)
    assert all_values(broker) == [b"value %d" % number for number in range(7)]
    broker.close()
    assert fingerprint(directory) == before
    assert f"in {directory / 'meta.properties'}; the directory is served without it" in caplog.text


def test_a_broker_that_writes_says_what_to_do_with_a_damaged_meta_properties(directory: Path) -> None:
    (directory / "meta.properties").write_bytes(bytes(40))
    with pytest.raises(CorruptRecordError) as caught:
        open_broker(directory)
    assert "restore it from a copy" in str(caught.value.hint)


def test_who_only_reads_says_of_damaged_metadata_that_it_is_passed_over(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(directory / "__cluster_metadata-0" / f"{0:020d}.log", 200)
    open_read_only(directory).close()
    assert "__cluster_metadata-0: damage: " in caplog.text
    assert "are passed over" in caplog.text
    assert "kept aside" not in caplog.text  # nothing is cut off a directory that nobody writes to


def last_batch_before(broker: SteeredNode) -> int:
    """Where the next batch of metadata goes."""
    return (broker.directory / "__cluster_metadata-0" / f"{0:020d}.log").stat().st_size


def with_damaged_metadata(directory: Path) -> Path:
    """Of the metadata, the batch that tells of topic `u` is damaged, and sound ones follow."""
    broker = open_broker(directory)
    add_topic(broker, retention_ms="-1")
    position = last_batch_before(broker)
    add_topic(broker, "u", retention_ms="-1")
    add_topic(broker, "v", retention_ms="-1")
    for topic in "tuv":
        produce_values(broker, topic.encode(), topic=topic)
    broker.close()
    damage(directory / "__cluster_metadata-0" / f"{0:020d}.log", position + 70)
    return directory


def test_topics_whose_metadata_are_damaged_are_served_to_readers(tmp_path: Path) -> None:
    broker = open_read_only(with_damaged_metadata(tmp_path))
    assert [all_values(broker, topic) for topic in "tuv"] == [[b"t"], [b"u"], [b"v"]]


def test_metadata_with_sound_records_after_damage_are_not_cut(tmp_path: Path) -> None:
    def logs() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.glob("*/*.log")}

    with_damaged_metadata(tmp_path)
    before = logs()
    with pytest.raises(CorruptRecordError, match=r"sound records after it in .*__cluster_metadata-0") as caught:
        open_broker(tmp_path)
    assert f"plog recover {tmp_path}" in str(caught.value.hint)
    assert logs() == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not list(tmp_path.glob("*/*.cut-at-*"))


@pytest.mark.parametrize("damaged", ["u", "v"])  # within the metadata log, and at its end
def test_topics_whose_metadata_a_recovery_gave_up_keep_their_folders(tmp_path: Path, damaged: str) -> None:
    broker = open_broker(tmp_path)
    positions = {}
    for topic in "tuv":
        positions[topic] = last_batch_before(broker)
        add_topic(broker, topic, retention_ms="-1")
        produce_values(broker, topic.encode(), topic=topic)
    broker.close()
    damage(tmp_path / "__cluster_metadata-0" / f"{0:020d}.log", positions[damaged] + 70)
    with Recovery(tmp_path) as recovery:
        recovery.apply(list(plan_recovery(tmp_path, RecoveryOptions(), is_locked=True)))
    for _ in range(2):
        broker = open_broker(tmp_path)
        assert [all_values(broker, topic) for topic in "tuv"] == [[b"t"], [b"u"], [b"v"]]
        broker.close()
    assert not list(tmp_path.glob("*-stray"))
