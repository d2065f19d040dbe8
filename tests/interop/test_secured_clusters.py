"""Clusters of Kafka 3.9 and plog whose brokers speak SASL_SSL with each other, and TLS with ZooKeeper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from core.client.net.authenticator import Authenticator
from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition as Name
from core.files.tls_context import make_context
from core.protocol.schema.controller_request import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest
from core.security.client_settings import parse_client_settings
from tests.support.kafka39 import zookeeper_client
from tests.support.mixed_cluster import MixedCluster, find_controller
from tests.support.oracle import requires_kafka39
from tests.support.secured_cluster import PASSWORDS, Secrets, add_users
from tests.support.waiting import wait_until

pytestmark = requires_kafka39

KAFKA, PLOG = 1, 5
_TWO = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "default.replication.factor": "2",
}


def prepare(client: KazooClient) -> None:
    """Users, and what those may do who come without a login: not what brokers alone may."""
    add_users(client)
    anonymous = [f"User:ANONYMOUS {one}" for one in ("Create", "Alter", "Describe")]
    for path, rights in {
        "Cluster/kafka-cluster": anonymous,
        "Topic/*": ["User:ANONYMOUS All"],
        "Topic/both": ["User:alice All"],
        "Group/*": ["User:alice Read"],
        "TransactionalId/*": ["User:alice All", "User:ANONYMOUS All"],
    }.items():
        parts = [right.split(" ") for right in rights]
        acls = [{"principal": who, "permissionType": "Allow", "operation": one, "host": "*"} for who, one in parts]
        client.create(f"/kafka-acl/{path}", json.dumps({"version": 1, "acls": acls}).encode(), makepath=True)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return Secrets(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module")
def cluster(secrets: Secrets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    settings = {
        **secrets.of_brokers(),
        **_TWO,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker",
    }
    folder = tmp_path_factory.mktemp("secured")
    with MixedCluster(
        folder, kafkas=1, settings=settings, plog_controls=True, prepare=prepare, of_zookeeper=secrets.of_zookeeper
    ) as running:
        yield running


def client_of(cluster: MixedCluster, secrets: Secrets, name: str, **settings: Any) -> dict[str, Any]:
    addresses = ",".join(broker.internal_address for broker in cluster.brokers.values())
    return {"bootstrap.servers": addresses, **secrets.of_client(name), **settings}


def in_transaction(settings: dict[str, Any], topic: str, values: Sequence[bytes], *, commits: bool) -> None:
    producer = Producer({**settings, "transactional.id": f"id-of-{topic}"})
    producer.init_transactions()
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    producer.flush()
    producer.commit_transaction() if commits else producer.abort_transaction()


def committed(settings: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    wait_until(
        lambda: (
            found.extend(one.value() for one in consumer.consume(1000, 1) if one.error() is None) or len(found) >= count
        ),
        lambda: f"{count} records are read; {len(found)} are",
    )
    consumer.close()
    return sorted(found, key=str)


def test_each_follows_the_other(cluster: MixedCluster, secrets: Secrets) -> None:
    """plog is the controller: it makes the topic at Kafka's broker, and each leads one partition of it. The transaction
    has partitions of both; its coordinator, and the group's, are wherever they are.
    """
    cluster.make_topic("both", [KAFKA, PLOG], [PLOG, KAFKA])
    alice = client_of(cluster, secrets, "alice")
    values = [b"%03d" % number * 300 for number in range(200)]
    in_transaction(alice, "both", values, commits=True)
    in_transaction(alice, "both", [b"never"] * 20, commits=False)
    assert committed(alice, "both", 200) == sorted(values, key=str)
    for number in range(2):
        cluster.wait_until_equal(Name("both", number), [KAFKA, PLOG])
        cluster.wait_for(Name("both", number), isr=[KAFKA, PLOG])


@pytest.mark.parametrize("node_id", [KAFKA, PLOG])
def test_a_client_is_no_broker(cluster: MixedCluster, secrets: Secrets, node_id: int) -> None:
    """Neither one that logs in at the brokers' listener, nor one that comes by the listener for clients."""
    host, _, port = cluster.brokers[node_id].internal_address.rpartition(":")
    found = parse_client_settings(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": secrets.jaas("alice"),
            "ssl.truststore.location": str(secrets.folder / "ca.pem"),
        }
    ).security
    assert found.tls is not None
    assert found.login is not None
    asked = AllocateProducerIdsRequest(PLOG, -1)
    transport = SocketTransport(host, int(port), context=make_context(found.tls))
    with closing(ClientConnection(transport, Authenticator(found.login))) as connection:
        answer = connection.call(ALLOCATE_PRODUCER_IDS, asked)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert cluster.call(node_id, ALLOCATE_PRODUCER_IDS, asked).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_registrations_are_as_kafkas(cluster: MixedCluster) -> None:
    with zookeeper_client(cluster.kafka.connect) as client:
        texts = {node_id: client.get(f"/brokers/ids/{node_id}")[0].decode() for node_id in (KAFKA, PLOG)}
    for node_id, broker in cluster.brokers.items():
        host, port = broker.address.split(":")
        node = json.loads(texts[node_id])
        own = {"timestamp", "features", "plog_previous_epoch"}
        assert {key: value for key, value in node.items() if key not in own} == {
            "version": 5,
            "host": host,
            "port": int(port),
            "jmx_port": -1,
            "endpoints": [f"CLIENT://{broker.address}", f"INTERNAL://{broker.internal_address}"],
            "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "INTERNAL": "SASL_SSL"},
        }


def test_nodes_have_the_rights_that_kafka_gives(cluster: MixedCluster) -> None:
    """Of the nodes that brokers made; both have one login, their certificate's name."""
    ours, anybody = (31, "x509", "CN=broker,O=plog"), (1, "world", "anyone")
    rights: dict[str, set[tuple[int, str, str]]] = {}
    secret = set()
    with zookeeper_client(cluster.kafka.connect) as client:
        for path in walk(client, "/"):
            try:
                rights[path] = {(one.perms, one.id.scheme, one.id.id) for one in client.get_acls(path)[0]}
            except NoAuthError:
                secret.add(path)
            except NoNodeError:
                pass
    assert secret >= {"/config/brokers", "/plog-login-secret"}
    prepared = {path for path, acls in rights.items() if acls == {(31, "world", "anyone")}}
    written = re.compile(r"/|/consumers|/config(/users(/\w+)?)?|/kafka-acl(/.*)?")
    assert [path for path in prepared if not written.fullmatch(path)] == []
    assert {path: rights[path] for path in rights.keys() - prepared if rights[path] != {ours, anybody}} == {}
    assert {f"/brokers/ids/{node_id}" for node_id in (KAFKA, PLOG)} <= rights.keys() - prepared


def walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    with suppress(NoNodeError, NoAuthError):
        for name in client.get_children(path):
            yield from walk(client, f"{path.rstrip('/')}/{name}")


def test_the_controller_goes_to_kafka_and_comes_back(cluster: MixedCluster, secrets: Secrets) -> None:
    """Its requests go the other way then; a broker that starts again follows, and a password that is wrong is said."""
    alice = client_of(cluster, secrets, "alice")
    cluster.plog.stop()
    wait_until(lambda: find_controller(cluster.kafka.zookeeper.address) == KAFKA, "Kafka's broker is the controller")
    cluster.plog.start()
    for number in range(2):
        cluster.wait_for(Name("both", number), isr=[KAFKA, PLOG])
    cluster.elect(Name("both", 1))
    in_transaction(alice, "both", [b"after"] * 20, commits=True)
    for number in range(2):
        cluster.wait_until_equal(Name("both", number), [KAFKA, PLOG])


def test_a_password_that_changes(cluster: MixedCluster, secrets: Secrets) -> None:
    """Each broker is refused by the other when its session ends; both go on when the password is theirs again."""
    read = len(cluster.plog.log.read_text())

    def refusals() -> list[str]:
        return re.findall("SCRAM-SHA-512 for 'broker': Authentication failed", cluster.plog.log.read_text()[read:])

    secrets.change_password("broker", "another")
    wait_until(refusals, "plog's broker is refused")
    secrets.change_password("broker", PASSWORDS["broker"])
    in_transaction(client_of(cluster, secrets, "alice"), "both", [b"again"] * 20, commits=True)
    for number in range(2):
        cluster.wait_until_equal(Name("both", number), [KAFKA, PLOG])
    assert len(refusals()) <= 5, "not once a second"


def test_no_password_is_in_a_log(cluster: MixedCluster) -> None:
    for log in (cluster.plog.log, *(broker.log for broker in cluster.kafka.brokers.values())):
        text = log.read_text()
        assert not [name for name, password in PASSWORDS.items() if password in text], log
    assert "obeys none" not in cluster.plog.log.read_text()


# --- plogs alone, with certificates


@pytest.fixture(scope="module")
def plogs(secrets: Secrets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Each broker has a certificate of its own, of whose name a rule makes User:broker."""
    prefix = "listener.name.internal.ssl"
    settings = {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SSL",
        f"{prefix}.truststore.location": str(secrets.folder / "ca.pem"),
        f"{prefix}.client.auth": "required",
        f"{prefix}.principal.mapping.rules": "RULE:^CN=([a-z]+)-[0-9]+,.*$/$1/,DEFAULT",
        **_TWO,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker",
    }
    of_one = {6: {f"{prefix}.keystore.location": str(secrets.write("broker-6"))}}
    of_one[7] = {f"{prefix}.keystore.location": str(secrets.write("broker-7"))}
    folder = tmp_path_factory.mktemp("plogs")
    with MixedCluster(
        folder, kafkas=0, plogs=(6, 7), settings=settings, of_one=of_one, plog_controls=True, prepare=prepare
    ) as running:
        yield running


def test_plogs_by_their_certificates(plogs: MixedCluster) -> None:
    plogs.make_topic("both", [6, 7], [7, 6])
    settings = {"bootstrap.servers": plogs.address}
    in_transaction(settings, "both", [b"v" * 1000] * 100, commits=True)
    for number in range(2):
        plogs.wait_until_equal(Name("both", number), [6, 7])
