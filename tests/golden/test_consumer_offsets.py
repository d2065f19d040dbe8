"""__consumer_offsets as Kafka wrote it: every record, and what the groups then have committed."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from core.broker.coordinators.coordinator_log import partition_of
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import read_record
from core.files.file_records import FileRecords
from core.protocol.message_codec import codec
from core.protocol.message_json import message_to_json
from core.protocol.schema.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from core.protocol.schema.group_offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from core.protocol.schema.groups import LIST_GROUPS, ListGroupsRequest
from core.records.record_batch import RecordBatch
from tests.support.broker import ask, open_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN

FOLDERS = [f"__consumer_offsets-{number}" for number in range(3)]
LINE = re.compile(r"\| offset: (\d+) .*? key: (\{.*?\}) payload: (<DELETE>|\{.*\})$")
BATCH = re.compile(r"baseOffset: (\d+) .* producerId: (-?\d+) .* isTransactional: (true|false) isControl: (true|false)")


class Said(NamedTuple):
    """What Kafka's own tool says of a record; of the transaction of a producer, or of none (-1)."""

    offset: int
    key: dict[str, Any]
    value: dict[str, Any] | None
    producer_id: int


def said_by_kafka(folder: str) -> Iterator[Said | tuple[int, bool]]:
    """Records, and (producer id, is a commit) for markers."""
    producer_id = -1
    for line in (GOLDEN / f"{folder}.decoded.txt").read_text().splitlines():
        batch = BATCH.match(line)
        if batch is not None:
            producer_id = int(batch[2]) if batch[3] == "true" else -1
        record = LINE.match(line)
        if record is not None:
            value = None if record[3] == "<DELETE>" else json.loads(record[3])
            yield Said(int(record[1]), json.loads(record[2]), value, producer_id)
        elif "endTxnMarker" in line:
            yield producer_id, "COMMIT" in line


@for_each("folder", FOLDERS)
def test_every_record_says_what_kafka_says_of_it(folder: str) -> None:
    said = {s.offset: s for s in said_by_kafka(folder) if isinstance(s, Said)}
    records = FileRecords(GOLDEN / folder / f"{0:020d}.log", FileSystem().open_read)
    seen = 0
    for batch in records.iter_batches():
        assert isinstance(batch, RecordBatch)
        for record in () if batch.is_control else batch.records():
            assert record.key is not None
            read = read_record(record.key, record.value)
            assert read is not None
            key, value, _ = read
            theirs = said[record.offset]
            assert record.key[:2] == int(theirs.key["type"]).to_bytes(2)
            assert message_to_json(key, 0) == theirs.key["data"]
            assert partition_of(getattr(key, "group", None) or key.group_id, len(FOLDERS)) == int(folder[-1])
            assert record.key[2:] == codec(type(key), 0).encode(key)
            seen += 1
            if record.value is None:
                assert theirs.value is None
                continue
            assert theirs.value is not None
            version = int(theirs.value["version"])
            assert with_members_opened(message_to_json(value, version)) == theirs.value["data"]
            assert record.value == version.to_bytes(2) + codec(type(value), version).encode(value)
    assert seen == len(said) > 1


def with_members_opened(value: dict[str, Any]) -> dict[str, Any]:
    """Kafka's tool decodes what consumers told each other, and shows all that the newest version has."""
    for member in value.get("members", ()):
        for name, class_ in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            data = base64.b64decode(member[name])
            message, _ = codec(class_, int.from_bytes(data[:2])).decode(memoryview(data), 2)
            member[name] = message_to_json(message, 3)
    return value


def committed_by_kafka() -> dict[str, dict[TopicPartition, tuple[int, int, str]]]:
    """(offset, leader epoch, metadata) by group and partition, by Kafka's tool's words alone."""
    found: dict[str, dict[TopicPartition, tuple[int, int, str]]] = {}
    for folder in FOLDERS:
        pending: dict[int, list[Said]] = {}
        for said in said_by_kafka(folder):
            if not isinstance(said, Said):
                producer_id, is_commit = said
                taken = pending.pop(producer_id, []) if is_commit else []
            elif said.producer_id >= 0:
                pending.setdefault(said.producer_id, []).append(said)
                taken = []
            else:
                taken = [said]
            for record in taken:
                if record.key["type"] not in ("0", "1"):
                    continue
                key = record.key["data"]
                group = found.setdefault(key["group"], {})
                partition = TopicPartition(key["topic"], key["partition"])
                if record.value is None:
                    group.pop(partition, None)
                else:
                    data = record.value["data"]
                    group[partition] = data["offset"], data["leaderEpoch"], data["metadata"]
    return {group: offsets for group, offsets in found.items() if offsets}


def test_groups_keep_their_offsets(tmp_path: Path) -> None:
    """Under a broker that starts on the folders alone."""
    for folder in (*FOLDERS, "grouped-0"):
        if (GOLDEN / folder).exists():
            shutil.copytree(GOLDEN / folder, tmp_path / folder)
    broker = open_broker(tmp_path)
    expected = committed_by_kafka()
    assert len(expected) > 3
    listed = ask(broker, LIST_GROUPS, ListGroupsRequest())
    assert set(expected) <= {group.group_id for group in listed.groups}
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in expected])
    for group in ask(broker, OFFSET_FETCH, request, 9).groups:
        found = {
            TopicPartition(topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata)
            for topic in group.topics
            for p in topic.partitions
        }
        assert found == expected[group.group_id]
    broker.close()
