"""`plog group`, `plog transaction` and `plog inspect` say the same of one directory: the first two ask a broker in
their process, the third replays the coordinators' topics from the files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.client.admin import group_survey
from core.client.admin.group_admin import GroupAdmin, ListedGroup
from core.client.write.transaction_admin import TransactionDescription
from core.common.clock import SystemClock
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import group_metadata_record
from core.protocol.consumer_protocol import write_consumer_protocol
from core.protocol.schema.consumer_protocol import AssignedPartitions, ConsumerProtocolAssignment
from core.protocol.schema.group_records import GroupMetadataValue, MemberMetadata
from core.view.groups.known_groups import FileGroups, KnownGroups
from core.view.groups.known_transactions import KnownTransactions
from core.view.target.log_figures import LogFigures
from tests.support.coordinated import commit, golden_directory, inspected, write_group, write_values
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.logs import NOW, append, fingerprint, make_batch, open_log
from tests.support.server import call_plog

GROUPED, GONE, SHORT = TopicPartition("grouped", 0), TopicPartition("gone", 0), TopicPartition("t", 0)
MINUTES_MS = 600_000


def of_kafka(directory: Path) -> None:
    """Groups and transactions of Kafka; and members, offsets outside their logs, and a transaction that hangs."""
    golden_directory(directory)
    assignment = write_consumer_protocol(ConsumerProtocolAssignment([AssignedPartitions("grouped", [0])]), 0)
    members = [
        MemberMetadata("one-1", "one", "client-1", "/10.0.0.1", 60_000, 10_000, b"", assignment),
        MemberMetadata("two-2", None, "client-2", "/10.0.0.2", 60_000, 10_000, b"", b"nonsense"),
    ]
    value = GroupMetadataValue("consumer", 4, "range", "one-1", NOW, members)
    write_group(directory, "etl", [group_metadata_record("etl", value)], count=3)
    connect = GroupMetadataValue("connect", 2, "compatible", "one-1", NOW, members[:1])
    write_group(directory, "connect-1", [group_metadata_record("connect-1", connect)], count=3)
    write_values(directory, "t-0", b"a", b"b", b"c", b"d")
    (directory / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    commit(directory, "etl", {GROUPED: 3, GONE: 8, SHORT: 1}, count=3, metadata="ä")
    commit(directory, "beyond", {GROUPED: 99, SHORT: 4}, count=3)
    log = open_log(directory / "hanging-0")
    append(log, make_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.close()


def with_damage(directory: Path) -> None:
    """The same, with a bit flipped in a partition of each coordinators' topic."""
    of_kafka(directory)
    for name in ("__consumer_offsets-1", "__transaction_state-1"):
        path = directory / name / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)


def of_sample(directory: Path) -> None:
    shutil.copytree(SAMPLE_DATA / "open-transaction", directory)


DIRECTORIES: dict[str, Callable[[Path], None]] = {"Kafka's": of_kafka, "damaged": with_damage, "sample": of_sample}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {name: tmp_path_factory.mktemp("alike") / "data" for name in DIRECTORIES}
    for name, path in paths.items():
        DIRECTORIES[name](path)
    return paths


def asked(directory: Path, *command: str) -> list[dict[str, Any]]:
    """The rows of a command, which ends with 1 if what it rests on is damaged, or a transaction hangs."""
    done = call_plog(*command, "--output", "json", "--data-dir", str(directory))
    assert done.returncode in (0, 1), done.stderr.decode()
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@for_each("name", ["Kafka's", "damaged"])
def test_groups(name: str, made: dict[str, Path]) -> None:
    before = fingerprint(made[name])
    groups = KnownGroups(inspected(made[name]))
    shown = [
        {"group": g.group_id, "state": g.state, "type": g.type, "protocol_type": g.protocol_type}
        for g in groups.list_groups().groups
    ]
    assert shown == asked(made[name], "group", "list")
    views = [groups.describe(group.group_id) for group in groups.list_groups().groups]
    names = [view.group.group_id for view in views]
    assert {"kip848-java", "etl", "connect-1", "beyond"} < set(names)
    rows = [(view.group.group_id, row) for view in views for row in view.rows]
    for (group_id, row), other in zip(rows, asked(made[name], "group", "describe", *names), strict=True):
        assert (group_id, *row.partition) == (other["group"], other["topic"], other["partition"])
        assert (row.offset, row.end_offset, row.lag) == (other["offset"], other["end_offset"], other["lag"])
        assert row.metadata == other["metadata"]
        reader = row.member and (row.member.member_id, row.member.client_id, row.member.client_host)
        assert (reader or (None, None, None)) == (other["member_id"], other["client_id"], other["host"])
        assert (row.lag_ms is None) == (other["lag_ms"] is None)
        assert abs((row.lag_ms or 0) - (other["lag_ms"] or 0)) < MINUTES_MS, "only the clock moves on between them"
        assert (row.problem or None) == other["note"] or row.end_offset is None, "each says why in its own words"
    assert asked(made[name], "group", "describe", "--members", *names) == [
        {
            "group": view.group.group_id,
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "partitions": None if member.partitions is None else sorted(map(str, member.partitions)),
        }
        for view in views
        for member in view.group.members
    ]
    assert fingerprint(made[name]) == before


@for_each("name", ["Kafka's", "damaged"])
def test_readers_of_a_topic(name: str, made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the coordinators' topic has them; the coordinators are asked about many groups at once, or one by one."""
    source = FileGroups(LogFigures(made[name], SystemClock()), SystemClock())
    for _ in source.refresh():
        pass
    expected = []
    for group in source.list_groups():
        for topic in ("grouped", "t"):
            commits = {
                p: one
                for coordinator in (part.coordinator for part in source._topic.parts.values())
                for p, one in coordinator.offsets(group.group_id).items()
                if p.topic == topic
            }
            if commits:
                newest = time_text(max(one.commit_timestamp for one in commits.values()))
                lag = sum(max((source.bounds([p])[p].end or 0) - one.offset, 0) for p, one in commits.items())
                expected.append((group.group_id, topic, group.state, len(commits), lag, newest))
    columns = ("group", "topic", "state", "partitions", "lag", "last_commit")
    names = ["--topic", "grouped", "--topic", "t"]
    rows = asked(made[name], "group", "list", *names)
    assert [tuple(row[column] for column in columns) for row in rows] == expected
    assert ("etl", "t", "Stable", 1, 3, "2023-11-14T22:13:20.000Z") in expected
    members = {row["group"]: (row["type"], row["members"]) for row in rows}
    assert (members["etl"], members["kip848-java"]) == (("classic", 2), ("consumer", 0))
    monkeypatch.setattr(group_survey, "fetch_offsets", lambda *_: {})
    monkeypatch.setattr(group_survey, "_describe_several", lambda *_: {})
    assert asked(made[name], "group", "list", *names) == rows
    (one,) = asked(made[name], "group", "list", "--topic", "t:0", "--state", "stable", "--no-times")
    assert (one["group"], one["last_commit"]) == ("etl", None)


def test_groups_of_other_types_are_named(made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A share group has APIs of its own: whether it reads the topic is not known."""
    shared = [ListedGroup("workers", "share", "Stable", "share", 1)]
    monkeypatch.setattr(GroupAdmin, "list_groups", lambda _: shared)
    done = call_plog("group", "list", "--topic", "t", "--output", "json", "--data-dir", str(made["Kafka's"]))
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert b"note: not known from a group of its type: whether workers reads it\nno group reads t\n" in done.stderr


def test_offsets_outside_their_logs(made: dict[str, Path]) -> None:
    """Kafka's tool gives the same lags: the end less the offset, and none without an end."""
    rows = asked(made["Kafka's"], "group", "describe", "etl", "beyond")
    assert [(row["topic"], row["offset"], row["lag"], row["note"]) for row in rows] == [
        ("gone", 8, None, "there is no topic gone any more"),
        ("grouped", 3, 37, None),
        ("t", 1, 3, "1 below the log's start: deleted before they were read; 2 can still be read"),
        ("grouped", 99, -59, "59 above the log's end: the next fetch is out of range"),
        ("t", 4, 0, None),
    ]


@for_each("name", DIRECTORIES)
def test_transactions(name: str, made: dict[str, Path]) -> None:
    before = fingerprint(made[name])
    *_, listing = KnownTransactions(inspected(made[name])).steps()
    assert asked(made[name], "transaction", "list") == [
        {
            "transactional_id": one.found.transactional_id,
            "state": one.found.state,
            "producer_id": one.found.producer_id,
            "coordinator": one.found.coordinator,
        }
        for one in listing.ids
    ]
    described = asked(made[name], "transaction", "describe", *[one.found.transactional_id for one in listing.ids])
    for one, other in zip(listing.ids, described, strict=True):
        found = one.found
        assert isinstance(found, TransactionDescription)
        assert (found.producer_epoch, found.timeout_ms) == (other["producer_epoch"], other["timeout_ms"])
        assert (time_text(found.started_ms) if found.started_ms >= 0 else None) == other["started"]
        assert sorted(map(str, found.partitions)) == other["partitions"]
    found = asked(made[name], "transaction", "find-hanging", "--all")
    assert found
    for open_, other in zip(listing.open_transactions, found, strict=True):
        assert (open_.partition.topic, open_.partition.partition) == (other["topic"], other["partition"])
        assert open_.known == (None if other["transactional_id"] is None else open_.known)
        for field in (
            "start_offset", "producer_id", "producer_epoch", "is_hanging", "pins_last_stable_offset",
            "last_stable_offset", "high_watermark",
        ):  # fmt: skip
            assert getattr(open_, field) == other[field]
        assert time_text(open_.since_ms) == other["since"]
        assert time_text(open_.last_timestamp) == other["last_write"]
    assert fingerprint(made[name]) == before
