"""Groups read from files are those that the engine, opened on the same directory, tells its clients of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.client.admin.admin import Admin
from core.client.admin.group_admin import GroupAdmin, GroupOffset
from core.client.net.kafka_client import KafkaClient
from core.client.read.group_offset_reset import find_group_partitions
from core.common.clock import SystemClock
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import GroupRecord, group_metadata_record, tombstone
from core.files.directory_lock import DirectoryLock
from core.pipeline.session import Session
from core.protocol.consumer_protocol import write_consumer_protocol
from core.protocol.schema.consumer_protocol import AssignedPartitions, ConsumerProtocolAssignment
from core.protocol.schema.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from core.view.groups.known_groups import FileGroups, GroupSummary, History, KnownGroups, ServerGroups
from core.view.target.log_figures import LogFigures
from tests.support.coordinated import commit, golden_directory, inspected, write_group, write_values
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append_marker, fingerprint, open_log
from tests.support.manual_clock import ManualClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Kafka's groups left, and a classic group with two members, one of them static."""
    directory = golden_directory(tmp_path_factory.mktemp("golden") / "data")
    write_group(directory, "etl", [_classic_group("etl")], count=3)
    commit(directory, "etl", {TopicPartition("grouped", 0): 3, TopicPartition("gone", 0): 8}, count=3, metadata="ä")
    return directory


def _classic_group(group_id: str) -> GroupRecord:
    assignment = ConsumerProtocolAssignment([AssignedPartitions("grouped", [0])])
    read = write_consumer_protocol(assignment, 0)
    members = [
        MemberMetadata("one-1", "one", "client-1", "/10.0.0.1", 60_000, 10_000, b"", read),
        MemberMetadata("two-2", None, "client-2", "/10.0.0.2", 60_000, 10_000, b"", b"nonsense"),
    ]
    return group_metadata_record(group_id, GroupMetadataValue("consumer", 4, "range", "one-1", NOW, members))


@pytest.fixture(scope="module")
def client(golden: Path) -> Iterator[KafkaClient]:
    with Session(directory=golden).open_client(is_read_only=True) as client:
        yield client


def test_a_server_is_asked_the_same(golden: Path, client: KafkaClient) -> None:
    source = ServerGroups(client)
    assert list(source.refresh()) == [(1, 1)]
    assert source.describe("etl") == KnownGroups(inspected(golden)).describe("etl").group
    grouped, ninth, gone = TopicPartition("grouped", 0), TopicPartition("grouped", 9), TopicPartition("gone", 0)
    assert source.bounds({grouped, ninth, gone}) == {
        grouped: (0, 40, ""),
        ninth: (None, None, "there is no partition grouped-9"),
        gone: (None, None, "there is no topic gone any more"),
    }
    assert source.timestamps_at({grouped: 40}) == {}
    (timestamp,) = source.timestamps_at({grouped: 3}).values()
    assert FileGroups(LogFigures(golden, SystemClock()), SystemClock()).timestamps_at({grouped: 3}) == {
        grouped: timestamp
    }


def test_a_partition_that_is_refused_does_not_hide_the_others(
    golden: Path, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Admin.list_offsets

    def refuse(admin: Admin, timestamps: Mapping[TopicPartition, int], **how: Any) -> dict[TopicPartition, int]:
        if TopicPartition("txn_open", 0) in timestamps:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")
        return ask(admin, timestamps, **how)

    monkeypatch.setattr(Admin, "list_offsets", refuse)
    names = ("grouped", "txn_empty_and_offsets", "txn_open")
    found = ServerGroups(client).bounds([TopicPartition(name, 0) for name in names])
    assert {partition.topic: bounds.problem for partition, bounds in found.items()} == {
        "grouped": "", "txn_empty_and_offsets": "", "txn_open": "not yours"
    }  # fmt: skip


def test_a_partition_without_a_leader_has_no_end(
    golden: Path, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka's tool, which writes - for it."""
    topics = client.refresh()
    partitions = {0: replace(topics["grouped"].partitions[0], leader=-1)}
    leaderless = {**topics, "grouped": replace(topics["grouped"], partitions=partitions)}
    monkeypatch.setattr(client, "refresh", lambda *_, **__: leaderless)
    committed = {TopicPartition("grouped", 0): GroupOffset(3, ""), TopicPartition("txn_open", 0): GroupOffset(0, "")}
    rows = find_group_partitions(client, KnownGroups(inspected(golden)).describe("etl").group, committed, NOW)
    assert [(row.partition.topic, row.end_offset, row.lag, row.problem) for row in rows] == [
        ("grouped", None, None, "grouped-0 has no leader"),
        ("txn_open", 18, 18, ""),
    ]


def test_a_list_has_members_partitions_and_lag(golden: Path) -> None:
    groups = {group.group_id: group for group in KnownGroups(inspected(golden)).list_groups().groups}
    etl, classic = groups["etl"], groups["classic-java"]
    assert (etl.state, etl.members, etl.partitions, etl.lag) == ("Stable", 2, 2, 37)
    assert etl.problem == "the lag of 1 partition is not known: no folder of gone-0 is here"
    assert (classic.state, classic.members, classic.partitions, classic.lag) == ("Empty", 0, 1, 0)
    assert groups["kip848-java"].lag == 33


class _SlowClock(ManualClock):
    """Every look at it takes a second."""

    def monotonic_ms(self) -> int:
        self.advance(1000)
        return super().monotonic_ms()


def test_a_long_list_is_shown_as_it_comes(golden: Path) -> None:
    *shown, last = KnownGroups(inspected(golden), _SlowClock()).steps()
    assert {listing.is_whole for listing in shown} == {False}
    assert last.is_whole
    at_once = KnownGroups(inspected(golden)).list_groups().groups
    assert [g.group_id for g in last.groups] == [g.group_id for g in at_once]
    assert len(shown) > len(list(KnownGroups(inspected(golden), ManualClock()).steps()))


def test_figures_stand_until_there_are_newer_ones(golden: Path) -> None:
    groups = KnownGroups(inspected(golden))
    first = next(iter(groups.steps()))
    assert {group.lag for group in first.groups} == {None}
    whole = groups.list_groups()
    again = next(iter(groups.steps()))
    assert (again.groups, again.is_whole) == (whole.groups, False)


def test_an_unknown_group_is_refused_as_by_a_broker(golden: Path, client: KafkaClient) -> None:
    failures = []
    for describe in (KnownGroups(inspected(golden)).describe, GroupAdmin(client).describe):
        with pytest.raises(KafkaError) as failure:
            describe("elt")
        failures.append((failure.value.code, failure.value.message, failure.value.hint))
    assert failures[0] == failures[1]
    assert failures[0][0] is ErrorCode.GROUP_ID_NOT_FOUND


def test_nothing_is_written_and_no_lock_is_needed(golden: Path) -> None:
    before = fingerprint(golden)
    with Session(directory=golden).open_client(is_read_only=True):
        groups = KnownGroups(inspected(golden))
        groups.list_groups()
        groups.describe("etl")
        list(groups.history("etl", TopicPartition("grouped", 0)))
    assert fingerprint(golden) == before


# --- as it goes on


def _summary(groups: KnownGroups, group_id: str) -> GroupSummary:
    return next(group for group in groups.list_groups().groups if group.group_id == group_id)


def test_what_is_appended_is_taken_up(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", b"b", b"c")
    commit(tmp_path, "g", {T0: 1})
    groups = KnownGroups(inspected(tmp_path))
    assert _summary(groups, "g").lag == 2
    commit(tmp_path, "g", {T0: 2})
    assert _summary(groups, "g").lag == 1
    write_values(tmp_path, "t-0", b"d", b"e")
    write_values(tmp_path, "t-1", b"f")
    commit(tmp_path, "g", {T1: 0})
    assert _summary(groups, "g").lag == 4
    write_group(tmp_path, "g", [tombstone(OffsetCommitValue, "g", *T0)])
    found = groups.describe("g")
    assert [(row.partition, row.lag) for row in found.rows] == [(T1, 1)]


def test_a_log_that_is_cut_off_or_made_again_is_read_again(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", b"b", b"c")
    commit(tmp_path, "g", {T0: 1})
    commit(tmp_path, "h", {T0: 3})
    groups = KnownGroups(inspected(tmp_path))
    assert [group.group_id for group in groups.list_groups().groups] == ["g", "h"]
    shutil.rmtree(tmp_path / "__consumer_offsets-0")
    commit(tmp_path, "i", {T0: 2})
    assert [group.group_id for group in groups.list_groups().groups] == ["i"]
    shutil.rmtree(tmp_path / "__consumer_offsets-0")
    listing = groups.list_groups()
    assert (listing.groups, listing.problems) == (
        [],
        [f"{tmp_path} has no __consumer_offsets, in which groups are kept"],
    )
    shutil.rmtree(tmp_path)
    with pytest.raises(AccessError, match="there is no data directory"):
        groups.list_groups()


def test_what_a_transaction_commits_counts_from_its_marker_on(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", b"b", b"c")
    commit(tmp_path, "g", {T0: 1})
    producer: dict[str, Any] = {"is_transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    commit(tmp_path, "g", {T0: 3}, **producer)
    groups = KnownGroups(inspected(tmp_path))
    assert groups.describe("g").rows[0].offset == 1
    log = open_log(tmp_path / "__consumer_offsets-0")
    append_marker(log, 7, is_commit=True)
    log.close()
    assert groups.describe("g").rows[0].offset == 3


def test_the_lag_in_time_is_that_of_the_first_record_that_is_not_read(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", timestamp=NOW)
    write_values(tmp_path, "t-0", b"b", b"c", timestamp=NOW + HOUR_MS)
    for group_id, offset in (("start", 0), ("middle", 1), ("end", 3), ("beyond", 9)):
        commit(tmp_path, group_id, {T0: offset})
    groups = KnownGroups(inspected(tmp_path), ManualClock(NOW + 3 * HOUR_MS))
    lags = {name: groups.describe(name).rows[0].lag_ms for name in ("start", "middle", "end", "beyond")}
    assert lags == {"start": 3 * HOUR_MS, "middle": 2 * HOUR_MS, "end": 0, "beyond": None}


def test_a_group_behind_the_start_of_a_log_is_told_so(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", b"b", b"c")
    commit(tmp_path, "g", {T0: 1})
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    (row,) = KnownGroups(inspected(tmp_path), ManualClock(NOW + HOUR_MS)).describe("g").rows
    assert (row.lag, row.lag_ms, row.problem) == (
        2,
        HOUR_MS - 2,
        "1 below the log's start: deleted before they were read; 1 can still be read",
    )


# --- what can't be had


def test_a_broken_partition_does_not_hide_the_others(tmp_path: Path) -> None:
    directory = golden_directory(tmp_path / "data")
    expected = KnownGroups(inspected(directory))
    known = {group.group_id for group in expected.list_groups().groups}
    folder = directory / "__consumer_offsets-1"
    data = bytearray((folder / "00000000000000000000.log").read_bytes())
    data[70] ^= 1
    (folder / "00000000000000000000.log").write_bytes(data)
    listing = KnownGroups(inspected(directory)).list_groups()
    assert {group.group_id for group in listing.groups} < known
    assert len(listing.problems) == 1
    assert listing.problems[0].startswith("__consumer_offsets-1: offset 0: crc-mismatch: ")


def test_a_record_that_is_none_of_a_coordinators_is_told(tmp_path: Path) -> None:
    commit(tmp_path, "g", {T0: 1})
    write_group(tmp_path, "g", [GroupRecord(b"\x00\x01\x00\x7f", b"x")])
    listing = KnownGroups(inspected(tmp_path)).list_groups()
    assert [group.group_id for group in listing.groups] == ["g"]
    told = "__consumer_offsets-0: offset 1: a record is passed over: no record of a coordinator"
    assert listing.problems[0].startswith(told)


def test_a_damaged_metadata_log_leaves_the_groups(tmp_path: Path) -> None:
    directory = golden_directory(tmp_path / "data")
    shutil.copytree(GOLDEN / "__cluster_metadata-0", directory / "__cluster_metadata-0")
    for path in (directory / "__cluster_metadata-0").glob("*.checkpoint"):
        path.write_bytes(path.read_bytes()[:100])
    groups = KnownGroups(inspected(directory))
    assert groups.describe("classic-java").rows[0].offset == 40
    assert groups.list_groups().problems[0].startswith("the metadata log can't be read: ")


# --- history


def _history(groups: KnownGroups, group_id: str, partition: TopicPartition) -> History:
    return list(groups.history(group_id, partition))[-1]


def test_history_has_the_commits_that_are_left(tmp_path: Path) -> None:
    for hour in range(4):
        write_values(tmp_path, "t-0", *[b"x"] * 100, timestamp=NOW + hour * HOUR_MS)
    for seconds, offset in ((0, 10), (10, 60), (HOUR_MS // 1000 + 1, 60)):
        commit(tmp_path, "g", {T0: offset, T1: 5}, time_ms=NOW + 1000 + seconds * 1000, metadata=f"at {seconds}")
        commit(tmp_path, "other", {T0: 99})
    write_group(tmp_path, "g", [tombstone(OffsetCommitValue, "g", *T0)], timestamp=NOW + 2 * HOUR_MS)
    history = _history(KnownGroups(inspected(tmp_path)), "g", T0)
    assert [(commit.offset, commit.rate) for commit in history.commits] == [
        (10, None),
        (60, 5.0),
        (60, 0.0),
        (None, None),
    ]
    assert [commit.lag for commit in history.commits] == [90, 40, 140, None]
    assert [commit.time_ms - NOW for commit in history.commits] == [1000, 11_000, HOUR_MS + 2000, 2 * HOUR_MS]
    assert (history.problem, history.is_whole, history.total) == ("", True, 4)


def test_history_is_read_again_when_it_has_grown(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"x")
    commit(tmp_path, "g", {T0: 0})
    groups = KnownGroups(inspected(tmp_path), ManualClock(NOW + 10**12))
    first = _history(groups, "g", T0)
    assert _history(groups, "g", T0) is first
    commit(tmp_path, "g", {T0: 1})
    assert [one.offset for one in _history(groups, "g", T0).commits] == [0, 1]


def test_history_of_nothing_says_why(golden: Path, client: KafkaClient) -> None:
    groups = KnownGroups(inspected(golden))
    history = _history(groups, "nobody", T0)
    assert (history.commits, history.problem) == ([], "no partition of __consumer_offsets here knows group nobody")
    groups._source = ServerGroups(client)
    groups.find_client = lambda: client  # type: ignore[method-assign]
    history = _history(groups, "etl", T0)
    assert history.problem == "not known from a server: it keeps the last commit alone"


def test_the_golden_history_is_what_the_decoder_of_kafka_prints(golden: Path) -> None:
    """The commits of __consumer_offsets-N.decoded.txt, by Kafka's own tool."""
    history = _history(KnownGroups(inspected(golden)), "kip848-java", TopicPartition("grouped", 0))
    assert [(commit.offset, commit.metadata) for commit in history.commits][-1] == (7, "metadata: ünïcode")


# --- who is asked


def test_a_directory_in_use_by_who_does_not_listen_is_read_from_its_files(tmp_path: Path) -> None:
    commit(tmp_path, "g", {T0: 1})
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    try:
        groups = KnownGroups(inspected(tmp_path))
        assert [group.group_id for group in groups.list_groups().groups] == ["g"]
        assert groups.note.startswith("read from the files, as far as they are written; the directory is in use by")
        lock.announce("127.0.0.1:1")  # nobody listens there
        assert [group.group_id for group in groups.list_groups().groups] == ["g"]
        assert "which can't be asked: " in groups.note
    finally:
        lock.release()
    groups.list_groups()
    assert groups.note == "read from the files"


def test_a_copied_partition_of_the_topic_alone_shows_its_groups(tmp_path: Path) -> None:
    """A broker finds no group in it but by chance: it would count the topic's partitions by the highest number."""
    shutil.copytree(GOLDEN / "__consumer_offsets-1", tmp_path / "__consumer_offsets-1")
    for looked_at in (tmp_path, tmp_path / "__consumer_offsets-1"):
        groups = KnownGroups(inspected(looked_at))
        names = [group.group_id for group in groups.list_groups().groups]
        assert names == ["bulk-2", "bulk-5", "classic-java", "classic-rdkafka", "kip848-java", "txn-group"]
        (row,) = groups.describe("kip848-java").rows
        assert (row.offset, row.lag, row.problem) == (7, None, "no folder of grouped-0 is here")


def test_one_partition_alone_is_looked_at_with_the_groups_of_its_directory(golden: Path) -> None:
    looked_at = inspected(golden / "grouped-0")
    assert looked_at.reader is not None
    assert list(looked_at.reader.partitions) == [TopicPartition("grouped", 0)]
    assert _summary(KnownGroups(looked_at), "classic-java").lag == 0
    assert replace(looked_at.session).directory == golden / "grouped-0"
