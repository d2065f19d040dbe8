"""`plog cluster features`: of a broker alone, of files, and of clusters whose brokers differ.

tests/interop/test_cluster_features.py and test_finalized_features.py hold it against Kafka's own tool, in clusters of
plog's and of Kafka's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.completion import complete_feature, complete_lowered_feature, complete_new_level
from core.client.admin import cluster_status
from core.client.cluster_admin.cluster_admin import ClusterAdmin
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from tests.support.server import Server, call_plog

PLOG = {"group.version": (0, 1), "transaction.version": (0, 2)}


def told(*arguments: str, server: str, code: int = 0) -> str:
    """What it says beside its listing."""
    done = call_plog("cluster", "features", *arguments, "--bootstrap-server", server)
    assert done.returncode == code, done.stderr.decode()
    return done.stderr.decode()


def rows(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = call_plog("cluster", "features", *arguments, "--output", "json")
    assert done.returncode == code, done.stderr.decode()
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def levels(found: list[dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    return {row["feature"]: (row["finalized"], row["min"], row["max"], *row["brokers"]) for row in found}


@pytest.mark.longer
def test_a_broker_alone_and_the_directory_that_it_leaves(tmp_path: Path) -> None:
    """It begins as a new Kafka does (tests/interop/test_transaction_answers.py), and keeps what it is told."""
    with Server(tmp_path / "data") as server:
        where = ("--bootstrap-server", server.address)
        fresh = {"group.version": (1, 0, 1, 1), "metadata.version": (33, 7, 33, 1), "transaction.version": (2, 0, 2, 1)}
        assert levels(rows(*where)) == fresh
        assert "nothing to do: the levels are so already" in told("--upgrade", "all", server=server.address)

        lower = ("--downgrade", "transaction.version=1")
        assert "without --dry-run; nothing was changed" in told(*lower, "--dry-run", server=server.address)
        assert levels(rows(*where)) == fresh
        assert rows(*lower, *where) == [
            {"feature": "transaction.version", "before": 2, "level": 1, "result": "lowered"}
        ]  # fmt: skip
        assert levels(rows(*where))["transaction.version"] == (1, 0, 2, 1)
        assert "--upgrade all --bootstrap-server" in told(server=server.address)
        assert rows(*lower, *where) == [
            {"feature": "transaction.version", "before": 1, "level": 1, "result": "not needed"}
        ]  # fmt: skip

        said = told("--upgrade", "transaction.version", server=server.address, code=2)
        assert "warning: brokers that don't support transaction.version 2 can't join the cluster any more\n" in said
        assert (
            "error: --upgrade may keep brokers out of the cluster, and there is no terminal to ask for a confirmation\n"
            in said
        )
        said = told("--downgrade", "group.version=0", "--unsafe", server=server.address, code=2)
        assert "warning: group.version 0: members of groups of the consumer protocol are refused" in said
        assert "error: --unsafe may lose what only the higher level keeps" in said
        assert levels(rows(*where))["group.version"][0] == 1

        said = told("--upgrade", "group.version=7", server=server.address, code=1)
        assert "error: INVALID_UPDATE_VERSION: group.version can't be set to 7" in said
        assert "warning" not in said
        assert "no terminal to ask" not in said
        said = told("--upgrade", "group.version=7", "--yes", server=server.address, code=1)
        assert "error: INVALID_UPDATE_VERSION: group.version can't be set to 7" in said
        assert "can't be set to 7" in told("--upgrade", "group.version=7", "--dry-run", server=server.address, code=1)
        assert "hint: did you mean group.version?" in told("--upgrade", "group.versoin", server=server.address, code=2)
        shown = call_plog("cluster", "features", *where).stdout.decode().splitlines()
        assert [line.split() for line in shown] == [
            ["feature", "finalized", "min", "max", "brokers"],
            ["group.version", "1", "0", "1", "all"],
            ["metadata.version", "33", "7", "33", "all"],
            ["transaction.version", "1", "0", "2", "all"],
        ]
        context: Any = type("Context", (), {"params": {"bootstrap_server": server.address}})
        assert complete_feature(context, "") == ["all", "group.version", "metadata.version", "transaction.version"]
        assert complete_lowered_feature(context, "") == ["group.version", "metadata.version", "transaction.version"]
        server.stop()
    assert levels(rows("--data-dir", str(tmp_path / "data"))) == fresh | {"transaction.version": (1, 0, 2, 1)}
    done = call_plog("cluster", "features", "--data-dir", str(tmp_path / "data"))
    assert b"no broker serves the directory: this is what its files say" in done.stderr


def test_levels_of_a_new_cluster_are_completed() -> None:
    assert complete_new_level("") == ["none", "group.version=", "transaction.version="]
    assert complete_new_level("g") == ["group.version="]


# --- brokers that differ


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, shared_server: Server) -> ClusterDescription:
    """What the server is taken to say; a test changes it."""
    broker = BrokerDescription(1, {"": "a:1"}, versions={}, features=PLOG)
    description = ClusterDescription("id", 1, [broker], features_epoch=7)
    monkeypatch.setattr(cluster_status, "describe_cluster", lambda _client: description)
    return description


def test_who_lacks_what_is_in_a_line_of_its_own(found: ClusterDescription, shared_server: Server) -> None:
    found.brokers.append(BrokerDescription(2, {"": "b:1"}, versions={}, features={"transaction.version": (0, 1)}))
    found.brokers.append(BrokerDescription(3, {"": "c:1"}, is_fenced=True))
    assert [
        (row["feature"], row["min"], row["max"], row["brokers"])
        for row in rows("--bootstrap-server", shared_server.address)
    ] == [
        ("group.version", 0, 0, [2]),
        ("group.version", 0, 1, [1]),
        ("transaction.version", 0, 1, [2]),
        ("transaction.version", 0, 2, [1]),
    ]
    said = told(server=shared_server.address)
    assert "would finalize transaction.version 1\n" in said
    assert "note: broker 3 is fenced, and can't be asked\n" in said
    assert "finalized levels as of epoch 7\n" in said
    found.features["transaction.version"] = 2
    said = told(server=shared_server.address, code=1)
    assert "error: broker 2 does not support transaction.version 2, which is finalized\n" in said
    found.brokers[1:] = [BrokerDescription(2, {"": "b:1"}, versions={}, features={})]
    said = told(server=shared_server.address, code=1)
    assert "error: broker 2 does not support transaction.version 2, which is finalized\n" in said


def test_a_cluster_without_features(found: ClusterDescription, shared_server: Server) -> None:
    found.brokers[:] = [BrokerDescription(1, {"": "a:1"}, versions={}, features={})]
    assert rows("--bootstrap-server", shared_server.address) == []
    assert "no broker knows of any feature" in told(server=shared_server.address)


def test_what_brokers_support_is_not_guessed_while_one_is_away(
    found: ClusterDescription, shared_server: Server
) -> None:
    failure = ConnectionFailedError("could not connect to b:1")
    found.brokers.append(BrokerDescription(2, {"": "b:1"}, failure=failure))
    assert "error: could not connect to b:1\n" in told(server=shared_server.address, code=3)
    assert "error: could not connect to b:1\n" in told(
        "--upgrade", "all", "--yes", server=shared_server.address, code=3
    )


def test_kafkas_with_zookeeper_are_named_where_there_may_be_some(
    found: ClusterDescription, shared_server: Server
) -> None:
    said = told("--upgrade", "all", "--dry-run", server=shared_server.address)
    assert "don't support group.version 1, transaction.version 2, as Kafka's with ZooKeeper, can't join" in said
    found.brokers[:] = [
        BrokerDescription(1, {}, features={**PLOG, "metadata.version": (7, 30), "kraft.version": (0, 1)})
    ]
    said = told("--upgrade", "all", "--dry-run", server=shared_server.address, code=1)  # it has no kraft.version
    assert "Kafka's" not in said
    assert "warning: kraft.version is never lowered again\n" in said
    assert "warning: metadata.version can be lowered again only if no metadata is lost by that\n" in said


def test_features_that_are_refused_one_by_one(
    found: ClusterDescription, shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Kafka 3.9 with ZooKeeper."""
    refused = {"group.version": KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "broker 2 is too old")}
    monkeypatch.setattr(ClusterAdmin, "update_features", lambda *_updates, **_options: refused)
    found_rows = rows("--upgrade", "all", "--yes", "--bootstrap-server", shared_server.address, code=1)
    assert [row["result"] for row in found_rows] == ["INVALID_UPDATE_VERSION: broker 2 is too old", "raised"]
