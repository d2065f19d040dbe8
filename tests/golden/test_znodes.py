"""Every node that real Kafka wrote is read, and is the same JSON when it is written again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.zookeeper import znodes
from core.zookeeper.znodes import ConfigEntity, PartitionStateNode, acls_of
from tests.support.for_each import for_each

CAPTURED = [
    json.loads(line) for line in (Path(__file__).parent / "znodes" / "kafka-3.9.ndjson").read_text().split("\n") if line
]

CODECS: dict[str, tuple[Callable[[bytes, str], Any], Callable[[Any], bytes]]] = {
    r"/brokers/ids/\d+": (znodes.decode_broker, lambda node: node.encode()),
    r"/brokers/topics/[^/]+": (znodes.decode_topic, lambda node: node.encode()),
    r"/brokers/topics/[^/]+/partitions/\d+/state": (znodes.decode_partition_state, lambda node: node.encode()),
    r"/cluster/id": (znodes.decode_cluster_id, znodes.encode_cluster_id),
    r"/config/changes/config_change_\d{10}": (znodes.decode_config_change, znodes.encode_config_change),
    r"/config/(topics|brokers|clients|users|ips)/[^/]+(/clients/[^/]+)?": (znodes.decode_config, znodes.encode_config),
    r"/controller": (znodes.decode_controller, lambda node: node.encode()),
    r"/controller_epoch": (znodes.decode_controller_epoch, znodes.encode_controller_epoch),
    r"/feature": (znodes.decode_feature, lambda node: node.encode()),
    r"/latest_producer_id_block": (znodes.decode_producer_id_block, lambda node: node.encode() if node else b""),
}
WITH_DATA = [node for node in CAPTURED if node["data"] is not None]
EMPTY = r"/|/.*/partitions(/\d+)?|/config/users/alice/clients|/admin(/delete_topics(/t2)?)?|/brokers|/cluster|/config"


@for_each("node", WITH_DATA, ids=lambda node: node["path"])
def test_a_node_is_read_and_written(node: dict[str, Any]) -> None:
    path, data = node["path"], node["data"].encode()
    ((decode, encode),) = (codec for pattern, codec in CODECS.items() if re.fullmatch(pattern, path))
    written = encode(decode(data, path))
    assert json.loads(written) == json.loads(data)
    assert b" " not in written


def test_each_kind_was_captured() -> None:
    for pattern in CODECS:
        assert any(re.fullmatch(pattern, node["path"]) for node in WITH_DATA), pattern
    assert {node["path"] for node in CAPTURED if node["ephemeral"]} >= {"/controller", "/brokers/ids/1"}


def test_the_nodes_without_data_are_those_that_brokers_make_and_folders() -> None:
    empty = {node["path"] for node in CAPTURED if node["data"] is None}
    assert set(znodes.PERSISTENT_PATHS) <= empty
    rest = {path for path in empty - set(znodes.PERSISTENT_PATHS) if not re.fullmatch(EMPTY, path)}
    assert rest == set()
    assert znodes.decode_producer_id_block(b"") is None


def test_paths_are_kafkas() -> None:
    paths = {node["path"] for node in CAPTURED}
    assert {
        znodes.broker_path(2),
        znodes.topic_path("__consumer_offsets"),
        znodes.partition_state_path("t1", 1),
        znodes.delete_topic_path("t2"),
        ConfigEntity("brokers", "<default>").path,
        ConfigEntity("clients", "<default>").path,
        ConfigEntity("users", "alice", "app1").path,
        ConfigEntity("ips", "127.0.0.9").path,
        f"{znodes.CONFIG_CHANGE_PREFIX}0000000003",
        *(one for one in (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.FEATURE, znodes.CLUSTER_ID)),
    } <= paths


def test_some_values_as_they_are() -> None:
    """Read off the captured text."""
    by_path: dict[str, list[bytes]] = {}
    for node in WITH_DATA:
        by_path.setdefault(node["path"], []).append(node["data"].encode())
    unclean = znodes.decode_partition_state(by_path["/brokers/topics/t3/partitions/0/state"][-1], "")
    assert unclean == PartitionStateNode(
        leader=3, leader_epoch=3, isr=(3,), controller_epoch=3, leader_recovery_state=1
    )
    moving = [znodes.decode_topic(data, "") for data in by_path["/brokers/topics/t2"]]
    assert any((topic.adding, topic.removing) == ({0: (1,)}, {0: (2,)}) for topic in moving)
    broker = znodes.decode_broker(by_path["/brokers/ids/1"][0], "")
    assert [str(one) for one in broker.endpoints] == ["CLIENT://127.0.0.1:22091", "INTERNAL://127.0.0.1:22291"]
    change = znodes.decode_config_change(by_path["/config/changes/config_change_0000000003"][0], "")
    assert change == ConfigEntity("users", "alice", "app1")


def test_rights_are_those_that_were_seen() -> None:
    """Without `zookeeper.set.acl`: 31, world, anyone, for each node."""
    assert {acl for path in CAPTURED for acl in acls_of(path["path"], is_secured=False)} == {(31, "world", "anyone")}
