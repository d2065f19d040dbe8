"""ACLs of a cluster of Kafka 3.9 and plog, both with AclAuthorizer: what either writes the other obeys at once.

All is plaintext, so everybody is User:ANONYMOUS, and ACLs tell hosts apart: brokers and the owner come from 127.0.0.1,
a client from 127.0.0.2. The tests share one cluster, Kafka's broker 1 and plog's 5, and run in this order.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.message import Api
from core.protocol.schema.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from core.protocol.schema.quotas_and_users import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from core.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.kafka39 import zookeeper_client
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import requires_kafka39, run_tool
from tests.support.server import call_plog
from tests.support.waiting import wait_until

pytestmark = requires_kafka39

KAFKA, PLOG = 1, 5
ANYBODY, OWNER, CLIENT = "User:ANONYMOUS", "127.0.0.1", "127.0.0.2"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:boss",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "default.replication.factor": "2",
}
SECOND = 1.0
"""In which a change reaches the other brokers; of the machine."""
_connect = socket.create_connection


def prepare(client: KazooClient) -> None:
    """Brokers can't enter the cluster without it, so no broker can be asked to write it."""
    entry = {"principal": ANYBODY, "permissionType": "Allow", "operation": "All", "host": OWNER}
    data = json.dumps({"version": 1, "acls": [entry]}).encode()
    for path in ("Cluster/kafka-cluster", "Topic/*", "Group/*", "TransactionalId/*"):
        client.create(f"/kafka-acl/{path}", data, makepath=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    folder = tmp_path_factory.mktemp("acls")
    with MixedCluster(folder, kafkas=1, settings=SETTINGS, prepare=prepare) as running:
        yield running


def ask(cluster: MixedCluster, node_id: int, api: Api[Any, Any], request: Any, host: str = OWNER) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", partial(_connect, source_address=(host, 0)))
        return cluster.call(node_id, api, request)


def seen_by_client(cluster: MixedCluster, node_id: int, topic: str) -> ErrorCode:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return ErrorCode.of(ask(cluster, node_id, METADATA, request, CLIENT).topics[0].error_code)


def acl(
    name: str, operation: AclOperation = AclOperation.READ, *, is_prefix: bool = False, host: str = CLIENT
) -> AclCreation:
    pattern_type = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    return AclCreation(ResourceType.TOPIC, name, pattern_type, ANYBODY, host, operation, AclPermissionType.ALLOW)


def filter_of(name: str | None, pattern_type: PatternType = PatternType.ANY) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        ResourceType.TOPIC, name, pattern_type, ANYBODY, CLIENT, AclOperation.ANY, AclPermissionType.ANY
    )


def create(cluster: MixedCluster, node_id: int, *acls: AclCreation) -> None:
    results = ask(cluster, node_id, CREATE_ACLS, CreateAclsRequest(list(acls))).results
    assert [one.error_code for one in results] == [0] * len(acls), results


def delete(cluster: MixedCluster, node_id: int, asked: DeleteAclsFilter) -> Sequence[str]:
    (result,) = ask(cluster, node_id, DELETE_ACLS, DeleteAclsRequest([asked])).filter_results
    assert result.error_code == 0
    assert all(one.error_code == 0 for one in result.matching_acls)
    return [one.resource_name for one in result.matching_acls]


@pytest.mark.parametrize(("here", "there"), [(KAFKA, PLOG), (PLOG, KAFKA)])
def test_a_right_that_one_gives_and_takes_holds_with_the_other(cluster: MixedCluster, here: int, there: int) -> None:
    topic = f"t{here}"
    cluster.make_topic(topic, (here, there))
    cluster.wait_until_known(topic)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def wait_for(error: ErrorCode) -> None:
        assert seen_by_client(cluster, here, topic) is error, "it holds from the next request"
        wait_until(lambda: seen_by_client(cluster, there, topic) is error, f"{there} obeys {here}", seconds=SECOND)

    wait_for(refused)
    create(cluster, here, acl(topic))
    wait_for(ErrorCode.NONE)
    create(cluster, there, acl(topic, AclOperation.WRITE))  # into the same node, by its version
    assert delete(cluster, here, filter_of(topic, PatternType.LITERAL)) == [topic] * 2
    wait_for(refused)
    create(cluster, here, acl("t", is_prefix=True))
    wait_for(ErrorCode.NONE)
    assert delete(cluster, there, filter_of(topic, PatternType.MATCH)) == ["t"]
    wait_until(lambda: seen_by_client(cluster, here, topic) is refused, f"{here} obeys {there}", seconds=SECOND)


def test_kafka_acls_at_plog(cluster: MixedCluster) -> None:
    where = ("--bootstrap-server", cluster.plog.address, "--consumer", "--topic", f"t{KAFKA}", "--group", "g")
    who = ("--allow-principal", ANYBODY, "--allow-host", CLIENT)
    done = run_tool("org.apache.kafka.tools.AclCommand", "--add", *where, *who)
    assert done.returncode == 0, done.stderr.decode()
    assert f"host={CLIENT}, operation=READ, permissionType=ALLOW" in done.stdout.decode()
    wait_until(lambda: seen_by_client(cluster, KAFKA, f"t{KAFKA}") is ErrorCode.NONE, "Kafka obeys", seconds=SECOND)

    def listed(node_id: int) -> list[tuple[Any, ...]]:
        found = ask(cluster, node_id, DESCRIBE_ACLS, DescribeAclsRequest(1, None, 1, None, None, 1, 1)).resources
        return sorted(
            (one.resource_type, one.resource_name, one.pattern_type, acl.principal, acl.host, acl.operation)
            for one in found
            for acl in one.acls
        )

    assert listed(PLOG) == listed(KAFKA)
    assert (ResourceType.GROUP, "g", PatternType.LITERAL, ANYBODY, CLIENT, AclOperation.READ) in listed(KAFKA)


def test_users_are_written_and_read_by_both(cluster: MixedCluster) -> None:
    for node_id, user in ((KAFKA, "by kafka"), (PLOG, "by plog")):
        new = ScramCredentialUpsertion(user, 1, 4096, b"salt", b"\0" * 32)
        request = AlterUserScramCredentialsRequest(upsertions=[new])
        results = ask(cluster, node_id, ALTER_USER_SCRAM_CREDENTIALS, request).results
        assert [one.error_code for one in results] == [0]
    with zookeeper_client(cluster.kafka.connect) as client:
        texts = [client.get(f"/config/users/{name}")[0] for name in ("by%20kafka", "by%20plog")]
    assert json.loads(texts[0]) == json.loads(texts[1]), "one text for one password and salt"

    def described(node_id: int) -> list[tuple[str, int, int]]:
        answer = ask(cluster, node_id, DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(None))
        return [(one.user, info.mechanism, info.iterations) for one in answer.results for info in one.credential_infos]

    assert sorted(described(KAFKA)) == [("by kafka", 1, 4096), ("by plog", 1, 4096)]
    wait_until(lambda: sorted(described(PLOG)) == sorted(described(KAFKA)), "plog has heard of both", seconds=SECOND)
    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion("by kafka", 1)])
    assert [one.error_code for one in ask(cluster, PLOG, ALTER_USER_SCRAM_CREDENTIALS, request).results] == [0]
    assert described(KAFKA) == [("by plog", 1, 4096)]


def test_a_topic_is_made_for_a_client_that_may_create_it(cluster: MixedCluster) -> None:
    """plog asks the controller, Kafka's broker, by its own rights; the client's are checked before."""

    def asked() -> ErrorCode:
        request = MetadataRequest([MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
        return ErrorCode.of(ask(cluster, PLOG, METADATA, request, CLIENT).topics[0].error_code)

    for operation in (AclOperation.DESCRIBE, AclOperation.CREATE):
        assert asked() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        create(cluster, PLOG, acl("made", operation))
    assert not cluster.state(TopicPartition("made", 0))
    wait_until(lambda: asked() is ErrorCode.NONE, "it is made")


def test_brokers_without_their_right_wait_for_it(cluster: MixedCluster) -> None:
    """The follower of each is refused, and so is whoever asks the controller; nothing is lost."""
    partitions = [TopicPartition("moving", number) for number in range(2)]
    cluster.make_topic("moving", (KAFKA, PLOG), (PLOG, KAFKA))
    cluster.wait_until_known("moving")

    def produce(text: bytes) -> None:
        lines = b"".join(b"%d:%s\n" % (number, text) for number in range(20))
        where = ("--bootstrap-server", cluster.address, "--key-separator", ":")
        done = call_plog("produce", "moving", "--acks", "1", *where, stdin=lines)
        assert done.returncode == 0, done.stderr

    produce(b"before")
    with zookeeper_client(cluster.kafka.connect) as client:
        kept, _ = client.get("/kafka-acl/Cluster/kafka-cluster")

        def put(data: bytes) -> None:
            client.set("/kafka-acl/Cluster/kafka-cluster", data)
            client.create("/kafka-acl-changes/acl_changes_", b"CLUSTER:kafka-cluster", sequence=True)

        put(kept.replace(b'"All"', b'"Describe"'))
        produce(b"meanwhile")
        way = (
            "the leader answers TOPIC_AUTHORIZATION_FAILED; this broker is User:ANONYMOUS there, who lacks a right: "
            f"plog acl add (or kafka-acls --add) --allow-principal {ANYBODY} --allow-host {OWNER} "
            "--operation ClusterAction --cluster"
        )
        wait_until(lambda: way in cluster.plog.log.read_text(), lambda: cluster.plog.log.read_text())
        put(kept)
    for partition in partitions:
        cluster.wait_for(partition, isr=(KAFKA, PLOG))
        cluster.wait_until_equal(partition, (KAFKA, PLOG))
    assert cluster.plog.is_running
