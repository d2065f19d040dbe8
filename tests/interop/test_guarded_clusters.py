"""A cluster of plogs in a real ZooKeeper, to which ACLs and quotas come; kazoo writes them, as Kafka's tools do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.free_ports import free_ports
from tests.support.server import Server, call_plog
from tests.support.waiting import wait_for_exit, wait_until
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper

pytestmark = [requires_zookeeper, pytest.mark.java]

ACLS = {"version": 1, "acls": [{"principal": "User:a", "permissionType": "Deny", "operation": "All", "host": "*"}]}


def member(directory: Path, number: int, zookeeper: str, *arguments: str) -> Server:
    return Server(
        directory / f"b{number}", "--zookeeper", zookeeper, "--new-cluster", "--node-id", str(number), *arguments
    )


def put(zookeeper: ZooKeeperServer, path: str, value: object) -> None:
    with zookeeper.client() as client:
        client.create(path, json.dumps(value).encode(), makepath=True)


def test_it_is_left_when_acls_come_and_not_joined_again(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    where = zookeeper.address + chroot
    (port,) = free_ports(1)
    outside = ["--listen", f"0.0.0.0:{port}", "--advertise", f"127.0.0.1:{port}"]
    put(zookeeper, f"{chroot}/config/users/alice", {"version": 1, "config": {"producer_byte_rate": "1000"}})
    with member(tmp_path, 1, where, *outside) as first, member(tmp_path, 2, where) as second:
        bootstrap = f"127.0.0.1:{port}"
        assert "warning: the metadata hold 1 quota, and plog obeys none of them" in first.log.read_text()
        done = call_plog(
            "topic", "create", "t", "--partitions", "4", "--replication-factor", "2", "--bootstrap-server", bootstrap
        )
        assert done.returncode == 0, done.stderr
        produce = ("produce", "t", "--bootstrap-server", bootstrap)
        assert call_plog(*produce, stdin=b"".join(b"%d\n" % number for number in range(20))).returncode == 0
        put(zookeeper, f"{chroot}/kafka-acl/Topic/t", ACLS)
        assert first.process is not None
        assert wait_for_exit(first.process) == 2
        log = first.log.read_text()
        sentence = f"the metadata hold 1 ACL and 1 quota, and plog obeys none of them: not served on 0.0.0.0:{port}"
        assert f"leaving the cluster: {sentence}" in log
        assert f"error: {sentence}" in log
        assert "has not taken over" not in log

        def leads_all() -> bool:
            shown = call_plog("topic", "describe", "t", "--bootstrap-server", second.address, "--output", "json")
            return shown.returncode == 0 and b'"leader":1' not in shown.stdout.replace(b" ", b"")

        wait_until(leads_all)
        read = call_plog("consume", "t", "--bootstrap-server", second.address)
        assert sorted(map(int, read.stdout.split())) == list(range(20)), read.stderr
        again = call_plog(
            "serve", "--zookeeper", where, "--node-id", "3", "--data-dir", str(tmp_path / "b3"), "--listen", "0.0.0.0:0"
        )
        assert (again.returncode, b"the metadata hold 1 ACL" in again.stderr) == (2, True)
        assert not (tmp_path / "b3").exists()
