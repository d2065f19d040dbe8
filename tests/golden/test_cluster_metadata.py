"""Kafka's own metadata log: what it adds up to, worked out from the records as Kafka's tool printed them."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.image.metadata_log import MetadataLog, read_metadata_image
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.filesystem import FileSystem
from tests.support.golden import GOLDEN
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

FOLDER = "__cluster_metadata-0"


def printed_records() -> list[tuple[str, dict[str, Any]]]:
    """(type, fields) of every record of the log."""
    text = (GOLDEN / f"{FOLDER}.decoded.txt").read_text()
    payloads = [json.loads(line.partition("payload: ")[2]) for line in text.splitlines() if "payload: " in line]
    return [(p["type"], p["data"]) for p in payloads]


def uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    found = read_metadata_image(GOLDEN)
    assert found is not None
    return found


def test_topics_are_those_of_the_folders(image: MetadataImage) -> None:
    ids = {}
    for path in GOLDEN.glob("*/partition.metadata"):
        fields = dict(line.split(": ") for line in path.read_text().splitlines())
        ids[path.parent.name.partition(".")[0]] = uuid(fields["topic_id"])
    for name, topic in image.topics.items():
        folder = f"{name}-0" if name.startswith("__") else name
        assert ids[folder] == topic.topic_id, name
        assert image.topics_by_id[topic.topic_id] is topic


def test_leaders_and_epochs(image: MetadataImage) -> None:
    expected: dict[tuple[bytes, int], list[Any]] = {}  # [leader, leader epoch, partition epoch, isr]
    for kind, data in printed_records():
        if kind == "PARTITION_RECORD":
            key = uuid(data["topicId"]), data["partitionId"]
            expected[key] = [data["leader"], data["leaderEpoch"], data["partitionEpoch"], data["isr"]]
        elif kind == "PARTITION_CHANGE_RECORD":
            state = expected[uuid(data["topicId"]), data["partitionId"]]
            state[2] += 1
            state[3] = data.get("isr", state[3])
            if "leader" in data:
                state[0] = data["leader"]
                state[1] += 1
    found = {
        (topic.topic_id, number): [p.leader, p.leader_epoch, p.partition_epoch, list(p.isr)]
        for topic in image.topics.values()
        for number, p in topic.partitions.items()
    }
    assert found == expected


def test_configs_features_and_producer_ids(image: MetadataImage) -> None:
    configs: dict[tuple[int, str], dict[str, str]] = {}
    features = {}
    next_producer_id = 0
    for kind, data in printed_records():
        if kind == "CONFIG_RECORD":
            of_resource = configs.setdefault((data["resourceType"], data["resourceName"]), {})
            of_resource[data["name"]] = data["value"]
            if data["value"] is None:
                del of_resource[data["name"]]
        elif kind == "FEATURE_LEVEL_RECORD":
            features[data["name"]] = data["featureLevel"]
        elif kind == "PRODUCER_IDS_RECORD":
            next_producer_id = data["nextProducerId"]
    assert image.configs == {resource: values for resource, values in configs.items() if values}
    assert image.features == features
    assert image.next_producer_id == next_producer_id
    (broker,) = image.brokers.values()
    assert (broker.broker_id, broker.fenced) == (1, True), "it was stopped cleanly"


def test_the_snapshot_alone_and_the_log_behind_it(tmp_path: Path, image: MetadataImage) -> None:
    """The same without the part of the log that the snapshot holds, and without the snapshot."""
    shutil.copytree(GOLDEN / FOLDER, tmp_path / FOLDER)
    for snapshot in (tmp_path / FOLDER).glob("*.checkpoint"):
        snapshot.unlink()
    without_snapshot = read_metadata_image(tmp_path)
    assert without_snapshot is not None
    assert without_snapshot.topics == image.topics
    assert without_snapshot.configs == image.configs
    assert without_snapshot.features == image.features


def test_plog_goes_on_where_kafka_stopped(tmp_path: Path, image: MetadataImage) -> None:
    shutil.copytree(GOLDEN / FOLDER, tmp_path / FOLDER)
    log = MetadataLog(tmp_path, 1, ManualClock(NOW), FileSystem())
    end, epoch = log.end_offset, log.epoch
    controller = SingleNodeController(log, 1, bytes(15) + b"\x09")
    controller.register_broker([], None)
    created = controller.create_topics([NewTopic("added")], default_partitions=2, default_replication=1)["added"]
    assert isinstance(created, TopicImage)
    controller.close()
    again = read_metadata_image(tmp_path)
    assert again is not None
    assert again.topics.keys() == image.topics.keys() | {"added"}
    assert again.topics["added"] == created
    assert again.features == image.features
    assert all(p.leader == 1 for topic in again.topics.values() for p in topic.partitions.values())
    reopened = MetadataLog(tmp_path, 1, ManualClock(NOW), FileSystem())
    assert reopened.epoch == epoch + 1
    assert reopened.end_offset > end
    reopened.close()


def test_what_there_is_of_security() -> None:
    """The numbers were counted in what Kafka's tool printed of the log: what was removed is not among them."""
    found = read_metadata_image(GOLDEN.parent / "secured")
    assert found is not None
    assert found.security.summary() == "58 ACLs, 19 SCRAM users, 98 delegation tokens and 4 quotas"
